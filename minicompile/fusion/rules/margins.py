"""Rules: images with a margin of their own pixels, and its gradient.

A pixel of a margin is one of the image: its mirror, or the nearest. So the
larger image is a way to read the smaller. In the backward, a pixel asks
each place that shows it; PyTorch's kernel adds each place to its pixel,
atomically on a GPU. Inductor's are in torch/_inductor/decomposition.py and
torch/_decomp/decompositions.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import prod

from ...core.index import Index, index
from ...core.loops import Expression
from ..lowerings import RULES, LoweringContext, Value, axes, points
from .indexing import (TRUE, both, compare, inside_or, operation,
                       with_axis)
from .pooling import chosen, total

#: How many places may show a pixel, at most, if a loop adds them up.
MOST = 27


def by_axis(rank: int, widths: Sequence[int]
            ) -> Iterator[tuple[int, int, int]]:
    """A dimension, and how wide the margin before and after it is."""
    for k, before in enumerate(widths[::2]):
        yield rank - 1 - k, before, widths[2 * k + 1]


def padded(context: LoweringContext, a: Value, widths: Sequence[int],
           mirrored: bool) -> Value:
    """The image within its margin."""
    for axis, before, after in by_axis(len(a.shape), widths):
        shape = with_axis(a.shape, axis, a.shape[axis] + before + after)
        point, last = points(axes(shape)), a.shape[axis] - 1
        place = point[axis] - before
        at = partial(with_axis, point, axis)
        if mirrored:
            other = inside_or(a, at(-place), inside_or(
                a, at(last * 2 - place), None))
        else:
            other = operation("where", compare("lt", place, index(0)),
                              a.at(at(index(0))), a.at(at(last)))
        a = replace(a, shape=shape, element=inside_or(a, at(place), other))
    return a


def showing(here: Index, size: Index, before: int, after: int,
            mirrored: bool) -> list[tuple[Index, Expression]]:
    """The places along a dimension that show what is `here`, from the
    first; and the condition of each that it does."""
    body, end = (here + before, TRUE), size + before
    if not mirrored:
        first, last = compare("lt", here, index(1)), compare(
            "ge", here, size - 1)
        return [*((index(k), first) for k in range(before)), body,
                *((end + k, last) for k in range(after))]
    near = [(index(before) - here, compare("ge", here, index(1)))]
    far = [(end + size - 2 - here, compare("lt", here, size - 1))]
    return [*near * (before > 0), body, *far * (after > 0)]


def padded_back(context: LoweringContext, gradient: Value, a: Value,
                widths: Sequence[int], mirrored: bool) -> Value | None:
    """The sum of the gradients of the places that show each pixel."""
    if not all(isinstance(width, int) for width in widths):
        return None  # a size decides
    along = {axis: showing(context.point[axis], a.shape[axis], *around,
                           mirrored)
             for axis, *around in by_axis(len(a.shape), widths)}
    if prod(map(len, along.values())) > MOST:
        return None
    outer = len(a.shape) - len(along)
    return total(context, [chosen(
        reduce(both, (condition for _, condition in part)), gradient,
        (*context.point[:outer], *(place for place, _ in part)))
        for part in product(*(along[axis] for axis in sorted(along)))])


RULES |= {
    f"{name}_pad{k}d{suffix}": partial(rule, mirrored=name == "reflection")
    for name in ("reflection", "replication") for k in (1, 2, 3)
    for suffix, rule in (("", padded), ("_backward", padded_back))}
