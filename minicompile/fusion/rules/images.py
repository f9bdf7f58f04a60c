"""Rules: images that are read in another way: resized, or in a margin.

An element of an image that is three times as large is one of the image's,
at a third of its place. A pixel of a margin is one of the image: its
mirror, or the nearest. So the larger image is no memory but a way to read
the smaller, and loops nest so that none divides. By other factors, a GPU's
kernel computes the place as PyTorch's does, which moves each element by
itself. In the backward, a pixel asks each place that shows it; PyTorch's
kernel adds each place to its pixel, atomically on a GPU. Inductor's are
torch/_inductor/lowering.py:upsample_nearestnd and decomposition.py, and
torch/_decomp/decompositions.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import prod

import torch

from ...core.index import Index, index
from ...core.loops import Const, Expression
from ..lowerings import (RULES, LoweringContext, Point, Value, axes, cast,
                         number, operation, points)
from . import indexing
from .indexing import TRUE, Picked, both, compare, inside_or, with_axis
from .pooling import total, window_of

#: How many elements an element is repeated to, at most, if a loop adds up
#: their gradients; and how many places may show a pixel of a margin.
REPEATED, MOST_PLACES = 16, 27


def factors(small: Point, large: Point, scales: tuple[float | None, ...]
            ) -> list[int] | None:
    """How many times each size is in another, if PyTorch, which multiplies
    places by a float32, also finds each element where it is exactly."""
    found = []
    for old, new, scale in zip(small, large, scales or [None] * 3):
        old, new = old.constant, new.constant
        if not old or not new or new % old:
            return None
        step = torch.tensor(1 / scale if scale else old / new)
        places = torch.arange(new)
        if not (places * step).floor().equal((places // (new // old)).float(
                )):
            return None
        found.append(new // old)
    return found


def larger(context: LoweringContext, a: Value, _: object,
           *scales: float | None) -> Value | None:
    """Each element, about as many times as the image grows."""
    images, channels, *place = context.point
    sizes = a.shape[2:], context.shape[2:]
    times = factors(*sizes, scales)
    if not times and context.device.type not in indexing.STOPS:
        return None
    found = [i // n for i, n in zip(place, times)] if times else map(
        partial(nearest, context), place, *sizes, scales or [None] * 3)
    return a.moved(context.shape, (images, channels, *found))


def nearest(context: LoweringContext, place: Index, old: Index, new: Index,
            scale: float | None) -> Index:
    """The place in the smaller image, as a float32 finds it."""
    def as_float(value: Index) -> Expression:
        return cast(number(value), torch.float32)

    step = Const(torch.tensor(1 / scale).item(), torch.float32) if (
        scale) else operation("div", as_float(old), as_float(new))
    at = operation("floor", operation("mul", as_float(place), step))
    return index(Picked(f"{context.node.name}_{place}", old, operation(
        "minimum", cast(at, torch.int64), cast(
            number(old - 1), torch.int64))))


def larger_back(context: LoweringContext, gradient: Value, _: object,
                __: object, *scales: float | None) -> Value | None:
    """The sum of the gradients of the elements that each one became."""
    times = factors(context.shape[2:], gradient.shape[2:], scales)
    if not times or prod(times) > REPEATED:
        return None
    return total(context, gradient, window_of(context, times, times))


def by_axis(rank: int, widths: Sequence[int]
            ) -> Iterator[tuple[int, int, int]]:
    """A dimension, and how wide the margin before and after it is."""
    return zip(reversed(range(rank)), widths[::2], widths[1::2])


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
    if prod(map(len, along.values())) > MOST_PLACES:
        return None
    outer = len(a.shape) - len(along)
    return total(context, gradient, {
        (*context.point[:outer], *(place for place, _ in part)):
        reduce(both, (condition for _, condition in part))
        for part in product(*(along[axis] for axis in sorted(along)))})


RULES |= {
    **{f"upsample_nearest{k}d": larger for k in (1, 2, 3)},
    **{f"upsample_nearest{k}d_backward": larger_back for k in (1, 2, 3)},
    **{f"{name}_pad{k}d{suffix}": partial(
        rule, mirrored=name == "reflection")
       for name in ("reflection", "replication") for k in (1, 2, 3)
       for suffix, rule in (("", padded), ("_backward", padded_back))}}
