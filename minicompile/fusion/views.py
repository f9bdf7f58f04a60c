"""Lowering rules that only say where an element comes from.

In: a Site and values. Out: values that ask their source at another point:
views, and what puts sources side by side (cat, pad), where a mask says
which source is asked. Nothing here moves memory. Inductor's counterpart
is the views of torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.index import Index, in_range, index, not_negative, product
from ..core.layout import flatten, row_major, unflatten
from ..core.loops import Expression, Op
from .pointwise import number
from .site import Site
from .sizes import size_of, sizes_of
from .values import (Point, Value, both, broadcast, cast, compare, masked,
                     moved_to)


def reshape(site: Site, a: Value, *_) -> Value:
    """The elements of `a`, in the same order, in the result's shape."""
    return reshaped(a, site.shape)


def reshaped(a: Value, shape: tuple[Index, ...]) -> Value:
    """The elements of `a`, in the same order, in another shape."""
    if a.shape == shape:
        return a
    blocks = list(common_blocks(shape, a.shape))

    def where(point: Point) -> Point:
        found: tuple[Index, ...] = ()
        for new, old in blocks:
            rest = len(point) - len(new)
            point, at = point[:rest], point[rest:]
            found = (at if new == old else unflatten(
                flatten(at, row_major(new)), old)) + found
        return found
    return moved_to(a, shape, where)


def common_blocks(new: tuple[Index, ...], old: tuple[Index, ...]):
    """Both shapes cut into the smallest blocks of equal size, last one
    first."""
    while new or old:
        same = new and old and new[-1] == old[-1]
        m, n = (1, 1) if same else _block(new, old)
        yield new[len(new) - m:], old[len(old) - n:]
        new, old = new[:len(new) - m], old[:len(old) - n]


def _block(new: tuple[Index, ...],
           old: tuple[Index, ...]) -> tuple[int, int]:
    """How many last dimensions of each shape make the first equal block."""
    for m in range(len(new) + 1):
        for n in range(len(old) + 1):
            if m + n and (product(new[len(new) - m:])
                          == product(old[len(old) - n:])):
                return m, n
    return len(new), len(old)


def permute(site: Site, a: Value, order: Sequence[int]) -> Value:
    """Dimension `order[k]` of `a` becomes dimension k."""
    order = [axis % len(order) for axis in order]
    return moved_to(a, site.shape, lambda point: tuple(
        point[order.index(axis)] for axis in range(len(order))))


def transpose(site: Site, a: Value, first: int = 0,
              second: int = 1) -> Value:
    """Two dimensions exchanged; t() exchanges the first two."""
    order = list(range(len(a.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(site, a, order)


def expand(site: Site, a: Value, *_, **__) -> Value:
    """`a` repeated along dimensions of size 1 and new ones."""
    return broadcast(a, site.shape)


def slice_(site: Site, a: Value, axis: int = 0, start=None, end=None,
           step: int = 1) -> Value | None:
    """a[start:end:step] along one dimension."""
    first = from_start(start, a.shape[axis])
    if first is None or not isinstance(step, int):
        return None
    return shifted(site, a, axis, lambda i: i * step + first)


def from_start(place: int | Index | None, size: Index) -> Index | None:
    """A place that may be counted from the end, from the start: if it is
    known which it is. It is inside, as the result is not empty."""
    place = size_of(place or 0)
    if not_negative(place):
        return place
    if size.constant is not None:
        return index(max(0, int(place) + int(size)))
    return place + size if not_negative(place + size) else None


def select(site: Site, a: Value, axis: int, at: int) -> Value | None:
    """a[at] along one dimension, which disappears."""
    axis, first = axis % len(a.shape), from_start(at, a.shape[axis])
    return None if first is None else moved_to(
        a, site.shape, lambda point: (*point[:axis], first, *point[axis:]))


def shifted(site: Site, a: Value, axis: int, change,
            shape: tuple[Index, ...] | None = None) -> Value:
    """A view that changes the index along one dimension."""
    axis %= len(a.shape)
    return moved_to(a, shape or site.shape, lambda point: (
        *point[:axis], change(point[axis]), *point[axis + 1:]))


def split(site: Site, a: Value, _: int | Sequence[int],
          axis: int = 0) -> tuple[Value, ...]:
    """Pieces side by side along one dimension, as the results are."""
    found, start = [], index(0)
    for piece in site.result:
        shape = sizes_of(piece.shape)
        found.append(shifted(site, a, axis,
                             lambda i, at=start: i + at, shape))
        start += shape[axis]
    return tuple(found)


def unbind(site: Site, a: Value, axis: int = 0) -> tuple[Value, ...]:
    """a[0], a[1], … along one dimension."""
    return tuple(select(site, a, axis, at)
                 for at in range(len(site.result)))


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


def cat(site: Site, sources: Sequence[Value], axis: int = 0) -> Value:
    """Sources one after the other along a dimension."""
    axis %= len(site.shape)
    ends = [index(0)]
    for source in sources:
        ends.append(ends[-1] + source.shape[axis])
    parts = list(zip(sources, ends, ends[1:], strict=False))

    def body(point: Point) -> Expression:
        chosen = None
        for source, start, end in reversed(parts):
            inside = between(point[axis], start, end, ends[-1])
            at = (*point[:axis], point[axis] - start, *point[axis + 1:])
            if inside is True:
                return cast(source.at(at), site.dtype)
            if inside is False:
                continue
            part = masked(cast(source.at(at), site.dtype), inside)
            chosen = part if chosen is None else Op(
                "where", (inside, part, chosen), site.dtype)
        return chosen
    return site.value(body)


def stack(site: Site, sources: Sequence[Value], axis: int = 0) -> Value:
    """Sources side by side along a new dimension."""
    axis %= len(site.shape)
    thin = (*site.shape[:axis], index(1), *site.shape[axis + 1:])
    return cat(site, [reshaped(source, thin) for source in sources], axis)


def between(where: Index, start: Index, end: Index,
            size: Index) -> Expression | bool:
    """Whether start <= where < end, `where` being in 0 … size - 1."""
    if in_range(where - start, end - start):
        return True
    if in_range(where - end, size) or in_range(
            start - 1 - where, size):
        return False
    mask = None if start == 0 else compare("ge", where, start)
    return mask if end == size and mask is not None else both(
        mask, compare("lt", where, end))


def pad(site: Site, a: Value, widths: Sequence[int],
        fill: bool | int | float = 0) -> Value:
    """`a` with `fill` around it; negative widths cut it off."""
    left = [0] * len(a.shape)
    for k, width in enumerate(widths[::2]):
        left[len(left) - 1 - k] = width

    def body(point: Point) -> Expression:
        at = tuple(i - n if n else i for i, n in zip(point, left))
        return inside_or(a, at, cast(number(fill), site.dtype))
    return site.value(body)


def inside_or(a: Value, at: Point, other: Expression) -> Expression:
    """`a` at a point, or `other` where the point lies outside of it."""
    inside = None
    for i, size in zip(at, a.shape, strict=True):
        if not in_range(i, index(size)):
            inside = both(inside, both(compare("ge", i, index(0)),
                                       compare("lt", i, size)))
    if inside is None:
        return a.at(at)
    return Op("where", (inside, masked(a.at(at), inside), other), a.dtype)


def slice_scatter(site: Site, a: Value, source: Value, axis: int = 0,
                  start=None, end=None, step: int = 1) -> Value | None:
    """`a` with `source` in place of a[start:end:step]."""
    if step != 1:
        return None
    start = from_start(start, a.shape[axis])
    if start is None:
        return None

    def body(point: Point) -> Expression:
        i = point[axis]
        at = (*point[:axis], i - start, *point[axis:][1:])
        return inside_or(source, at, a.at(point))
    return site.value(body)


def select_scatter(site: Site, a: Value, source: Value, axis: int,
                   at: int) -> Value | None:
    """`a` with `source` in place of a[at]."""
    axis %= len(a.shape)
    at = from_start(at, a.shape[axis])
    if at is None:
        return None
    shape = (*a.shape[:axis], index(1), *a.shape[axis + 1:])
    row = moved_to(source, shape, lambda p: (*p[:axis], *p[axis + 1:]))
    return slice_scatter(site, a, row, axis, at, at + 1)


#: Rules whose result is a view: eager would share the memory.
VIEWS = {
    "view.default": reshape, "_unsafe_view": reshape, "reshape": reshape,
    "unsqueeze": reshape, "squeeze": reshape,
    "permute": permute, "transpose": transpose, "t": transpose,
    "expand": expand, "slice": slice_, "select": select,
    "split": split, "split_with_sizes": split, "unbind": unbind,
    "alias": expand, "detach": expand, "lift_fresh": expand,
}

GATHERING = {
    "cat": cat, "stack": stack, "constant_pad_nd": pad, "flip": flip,
    "repeat": repeat,
    "slice_scatter": slice_scatter, "select_scatter": select_scatter,
    "split_copy": split, "split_with_sizes_copy": split,
    "unsafe_split": split, "unsafe_split_with_sizes": split,
}
