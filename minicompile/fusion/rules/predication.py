"""Rules: a point decides which of several tensors is read.

`cat` puts tensors one after the other. At a given point exactly one of
them is read, and which one is known only when the loop runs. So the loop
reads all of them under masks: this is predication. If the point is known
to lie in one source, no mask is needed: a slice of a `cat` is its source.
The same question, inside or not, gives padding and `x[1:3] = y`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...core.index import (Index, Variable, atoms_of, index, not_negative,
                           product, substitute)
from ...core.loops import Expression, Load, Op, Position, rewrite
from ..lowerings import (RULES, LoweringContext, fakes, number, sight,
                         view)
from ..values import Point, Value, cast, moved_to, size_of


def with_axis(point: Point, axis: int, where: Index) -> Point:
    """The point, or the shape, with another Index at one place."""
    return (*point[:axis], where, *point[axis:][1:])


def both(a: Expression | None, b: Expression) -> Expression:
    """Whether both conditions hold; None is a condition that does."""
    return b if a is None else Op("logical_and", (a, b), torch.bool)


def compare(name: str, where: Index, bound: Index) -> Expression:
    """`where < bound` and the like, between positions; what `where` has
    added to its variables goes to the other side."""
    start = substitute(where, {v: index(0) for v in atoms_of(where)
                               if isinstance(v, Variable)})
    return Op(name, (Position(where - start, torch.int64),
                     Position(bound - start, torch.int64)), torch.bool)


def inside_or(a: Value, at: Point, other: Expression | None) -> Expression:
    """`a` at a point, or `other` where the point lies outside of it;
    without `other`, no such point occurs."""
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
    part = rewrite(a.at(at), lambda part: replace(
        part, mask=both(part.mask, inside)) if isinstance(part, Load)
        else part)
    return part if other is None else Op(
        "where", (inside, part, other), a.dtype)


def cat(context: LoweringContext, sources: Sequence[Value],
        axis: int = 0) -> Value:
    """Sources one after the other along a dimension."""
    axis, end = axis % len(context.shape), index(0)
    parts: list[tuple[Value, Index]] = []
    for source in sources:
        parts.insert(0, (source.to(context.dtype), end))
        end += source.shape[axis]

    def body(point: Point) -> Expression:
        found = None
        for source, start in parts:
            found = inside_or(source, with_axis(
                point, axis, point[axis] - start), found)
        return found
    return context.value(body)


def pad(context: LoweringContext, a: Value, widths: Sequence[int],
        fill: bool | int | float = 0) -> Value:
    """`a` with `fill` around it; negative widths cut it off."""
    inner = len(a.shape) - len(widths) // 2
    left = [0] * inner + [*widths[-2::-2]]
    return context.value(lambda point: inside_or(
        a, tuple(i - n for i, n in zip(point, left)),
        cast(number(fill), context.dtype)))


def slice_scatter(context: LoweringContext, a: Value, source: Value,
                  axis: int = 0, *_) -> Value | None:
    """`a` with `source` in place of the part that a slice views."""
    (fake, _, *args), kwargs = fakes(context.node)
    part = sight(torch.ops.aten.slice, fake, *args, **kwargs)
    axis %= len(a.shape)
    inner = product(a.shape[axis + 1:])
    if size_of(part.stride(axis)) != inner:
        return None  # every other one
    start = size_of(part.storage_offset()) // inner
    return context.value(lambda point: inside_or(
        source, with_axis(point, axis, point[axis] - start), a.at(point)))


def flip(context: LoweringContext, a: Value, axes: Sequence[int]) -> Value:
    """`a` backwards along some dimensions."""
    axes = {axis % len(a.shape) for axis in axes}
    return moved_to(a, context.shape, lambda point: tuple(
        size - 1 - i if axis in axes else i
        for axis, (i, size) in enumerate(zip(point, a.shape))))


def repeat(context: LoweringContext, a: Value, *_) -> Value:
    """`a` laid several times side by side."""
    skip = len(context.shape) - len(a.shape)
    return moved_to(a, context.shape, lambda point: tuple(
        i % size for i, size in zip(point[skip:], a.shape)))


RULES |= {
    "cat": cat, "constant_pad_nd": pad, "flip": flip, "repeat": repeat,
    "slice_scatter": slice_scatter,
    **dict.fromkeys(("unsafe_split", "unsafe_split_with_sizes"),
                    lambda *given: view(*given)),  # with its own memory
}
