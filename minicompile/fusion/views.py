"""Lowering rules that only say where an element comes from.

In: a Site and values. Out: values that ask their source at another point:
views, and what puts sources side by side (cat, pad), where a mask says
which source is asked. Nothing here moves memory. Inductor's counterpart
is the views of torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from ..core.graph import tensors_of
from ..core.graph import value as fake_of
from ..core.index import Index, index, not_negative, product, substitute
from ..core.layout import flatten, row_major, unflatten
from ..core.loops import Expression, Op
from .pointwise import number
from .site import Site
from .sizes import size_of, sizes_of
from .values import (Point, Value, axes, both, broadcast, cast, compare,
                     masked, moved_to, points, with_axis)


def seen(a: Value, shape: tuple[Index, ...], stride: tuple[Index, ...],
         offset: Index | int = 0) -> Value:
    """What a tensor of this shape, stride and offset sees in the memory
    of `a`, were `a` contiguous."""
    own = axes(shape)
    where = unflatten(flatten(points(own), stride) + offset, a.shape)

    def moved(point: Point) -> Point:
        at = dict(zip(own, point, strict=True))
        return tuple(substitute(i, at) for i in where)
    return moved_to(a, shape, moved)


def view(site: Site, a: Value, *_, **__) -> Value | tuple[Value, ...]:
    """A view, or several: what the operator makes of strides."""
    args, kwargs = fakes(site.node)
    made = sight(site.node.target, *args, **kwargs)
    found = tuple(seen(a, sizes_of(fake.shape), sizes_of(part.stride()),
                       size_of(part.storage_offset()))
                  for fake, part in zip(tensors_of(fake_of(site.node)),
                                        tensors_of(made), strict=True))
    return found[0] if isinstance(made, torch.Tensor) else found


def sight(operator, fake: torch.Tensor, *args, **kwargs):
    """What an operator sees of a contiguous tensor of this shape, which
    needs no elements for it."""
    with enable_python_dispatcher():
        return operator(torch.empty(fake.shape, device="meta"),
                        *args, **kwargs)


def fakes(node: fx.Node) -> tuple[tuple, dict]:
    """The node's arguments, as fake tensors and SymInts."""
    return fx.node.map_aggregate((node.args, node.kwargs), lambda leaf: (
        fake_of(leaf) if isinstance(leaf, fx.Node) else leaf))


def reshape(site: Site, a: Value, *_) -> Value:
    """The elements of `a`, in the same order, in the result's shape."""
    return reshaped(a, site.shape)


def reshaped(a: Value, shape: tuple[Index, ...]) -> Value:
    """The elements of `a`, in the same order, in another shape."""
    return a if a.shape == shape else seen(a, shape, row_major(shape))


def expand(site: Site, a: Value, *_, **__) -> Value:
    """`a` repeated along dimensions of size 1 and new ones."""
    return broadcast(a, site.shape)


def flip(site: Site, a: Value, axes: Sequence[int]) -> Value:
    """`a` backwards along some dimensions."""
    axes = {axis % len(a.shape) for axis in axes}
    return moved_to(a, site.shape, lambda point: tuple(
        size - 1 - i if axis in axes else i
        for axis, (i, size) in enumerate(zip(point, a.shape))))


def repeat(site: Site, a: Value, *_) -> Value:
    """`a` laid several times side by side."""
    skip = len(site.shape) - len(a.shape)
    return moved_to(a, site.shape, lambda point: tuple(
        i % size for i, size in zip(point[skip:], a.shape)))


def inside_or(a: Value, at: Point, other: Expression | None) -> Expression:
    """`a` at a point, or `other` where the point lies outside of it;
    without `other`, nobody asks there."""
    inside = None
    for i, size in zip(at, a.shape, strict=True):
        if not_negative(-1 - i) or not_negative(i - size):
            return other
        if not not_negative(i):
            inside = both(inside, compare("ge", i, index(0)))
        if not not_negative(size - 1 - i):
            inside = both(inside, compare("lt", i, size))
    if inside is None:
        return a.at(at)
    part = masked(a.at(at), inside)
    return part if other is None else Op(
        "where", (inside, part, other), a.dtype)


def cat(site: Site, sources: Sequence[Value], axis: int = 0) -> Value:
    """Sources one after the other along a dimension."""
    axis, end = axis % len(site.shape), index(0)
    parts: list[tuple[Value, Index]] = []
    for source in sources:
        parts.insert(0, (source.to(site.dtype), end))
        end += source.shape[axis]

    def body(point: Point) -> Expression:
        found = None
        for source, start in parts:
            found = inside_or(source, with_axis(
                point, axis, point[axis] - start), found)
        return found
    return site.value(body)


def stack(site: Site, sources: Sequence[Value], axis: int = 0) -> Value:
    """Sources side by side along a new dimension."""
    thin = with_axis(site.shape, axis % len(site.shape), index(1))
    return cat(site, [reshaped(source, thin) for source in sources], axis)


def pad(site: Site, a: Value, widths: Sequence[int],
        fill: bool | int | float = 0) -> Value:
    """`a` with `fill` around it; negative widths cut it off."""
    left = [0] * len(a.shape)
    for k, width in enumerate(widths[::2]):
        left[len(left) - 1 - k] = width
    return site.value(lambda point: inside_or(
        a, tuple(i - n for i, n in zip(point, left)),
        cast(number(fill), site.dtype)))


def replacing(operator):
    """The rule of `a` with `source` in place of what a slice or select
    sees of it."""
    def rule(site: Site, a: Value, source: Value, axis: int = 0,
             *_) -> Value | None:
        (fake, _, *args), kwargs = fakes(site.node)
        part = sight(operator, fake, *args, **kwargs)
        axis %= len(a.shape)
        inner = product(a.shape[axis + 1:])
        start = size_of(part.storage_offset()) // inner
        sizes, steps = sizes_of(part.shape), sizes_of(part.stride())
        if len(sizes) == len(a.shape) and steps[axis] != inner:
            return None  # every other one
        thick = reshaped(source, with_axis(a.shape, axis, sizes[axis] if (
            len(sizes) == len(a.shape)) else index(1)))
        return site.value(lambda point: inside_or(
            thick, with_axis(point, axis, point[axis] - start),
            a.at(point)))
    return rule


#: Rules whose result is a view: eager would share the memory.
VIEWS = {
    **{name: reshape for name in
       "view.default _unsafe_view reshape unsqueeze squeeze".split()},
    **{name: expand for name in "expand alias detach lift_fresh".split()},
    **{name: view for name in """permute transpose t slice select split
       split_with_sizes unbind diagonal unfold""".split()},
}

GATHERING = {
    "cat": cat, "stack": stack, "constant_pad_nd": pad, "flip": flip,
    "repeat": repeat, "slice_scatter": replacing(torch.ops.aten.slice),
    "select_scatter": replacing(torch.ops.aten.select),
    "unsafe_split": view, "unsafe_split_with_sizes": view,
}
