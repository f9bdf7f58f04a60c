"""Rules: resizing to the nearest.

An element of an image that is three times as large is one of the image's,
at a third of its place. So the larger image is no memory but a way to read
the smaller, and loops nest so that none divides. By other factors, a GPU's
kernel computes the place as PyTorch's does, which moves each element by
itself. Inductor's are torch/_inductor/lowering.py:upsample_nearestnd and
decomposition.py.
"""

from __future__ import annotations

from functools import partial
from math import prod

import torch

from ...core.index import Index, index
from ...core.loops import Const, Expression
from ..lowerings import RULES, LoweringContext, Point, Value, cast, number
from . import indexing
from .indexing import Picked, operation
from .pooling import total, within

#: How many elements an element is repeated to, at most, if a loop adds up
#: their gradients.
MOST = 16


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
    if not times or prod(times) > MOST:
        return None
    return total(context, map(gradient.at, within(context, times, times)))


RULES |= {
    **{f"upsample_nearest{k}d": larger for k in (1, 2, 3)},
    **{f"upsample_nearest{k}d_backward": larger_back for k in (1, 2, 3)}}
