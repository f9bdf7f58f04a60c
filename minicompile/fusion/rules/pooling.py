"""Rules: pooling in small windows, forward and backward.

A loop reads the elements of a window one after the other: its neighbours
do the same, so that all but the first lie in a cache. In the backward an
element asks the few windows that it lies in, instead of each window adding
to its elements: no two threads write to one place. The maximum's place is
found on the way. PyTorch's kernels are better where windows are large, and
on a CPU at the gradients of those that overlap and move by more than one,
so there the operator runs. Inductor's are the lowerings of
`max_pool2d_with_indices` and `avg_pool2d`, and of their gradients, in
torch/_inductor/lowering.py.
"""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import product as product_of
from math import ceil, inf, prod

import torch

from ...core.index import index, not_negative
from ...core.loops import Const, Expression, Position, accurate
from ..lowerings import (RULES, LoweringContext, Point, Value, cast,
                         divided_by, operation)
from .arithmetic import reshaped
from .indexing import TRUE, both, compare, inside_or, test, with_axis

#: How much a loop reads at most for an element: a window, or the windows
#: that it lies in; and how far those that overlap move at most.
POOLED = {"cuda": (9, inf), "cpu": (16, 1)}

Pair = Sequence[int]


def spread(*numbers: Pair) -> list[Pair]:
    """Numbers for each of two dimensions; a single number is for both."""
    return [[*each] * (2 // len(each)) for each in numbers]


def pays(context: LoweringContext, size: Pair, step: Pair,
         back: bool = False) -> bool:
    """Whether a loop is to read these windows, or to go `back`: then it
    reads all that an element lies in."""
    most, farthest = POOLED.get(context.device.type, (0, 0))
    read = prod(ceil(k / n) if back else k for k, n in zip(size, step))
    return context.dtype.is_floating_point and read <= most and not (
        back and read > 1 and max(step) > farthest)


def window_of(context: LoweringContext, size: Pair, step: Pair,
              margin: Pair = (0, 0, 0), apart: Pair = (1, 1, 1)
              ) -> dict[Point, Expression]:
    """The points of a result's window, row by row, on no condition."""
    outer, inner = context.point[:-len(size)], context.point[-len(size):]
    corner = [i * n - m for i, n, m in zip(inner, step, margin)]
    return {(*outer, *(i + k * n for i, k, n in zip(corner, steps, apart))):
            TRUE for steps in product_of(*map(range, size))}


def around(context: LoweringContext, size: Pair, step: Pair, margin: Pair
           ) -> dict[Point, Expression]:
    """The windows that an element may lie in, the first in memory first,
    and whether it does; not whether there is such a window."""
    *outer, row, column = context.point
    inner, found = [i + m for i, m in zip((row, column), margin)], {}
    for back in product_of(*(range(ceil(k / n))[::-1]
                             for k, n in zip(size, step))):
        at = [i // n - k for i, n, k in zip(inner, step, back)]
        found[*outer, *at] = reduce(both, (
            compare("lt", i - place * n, index(k))
            for i, place, n, k in zip(inner, at, step, size)))
    return found


def total(context: LoweringContext, a: Value,
          places: Mapping[Point, Expression], by: int = 1) -> Value:
    """The sum of the elements at those places in `a` whose condition holds,
    in this order, divided and rounded."""
    dtype, zero = accurate(context.dtype), Const(0, a.dtype)
    found = context.value(reduce(partial(operation, "add"), (
        cast(operation("where", holds, inside_or(a, at, zero), zero), dtype)
        for at, holds in places.items())))
    return (found if by == 1 else divided_by(found, by)).to(context.dtype)


def averaged(context: LoweringContext, a: Value, size: Pair,
             step: Pair = (), margin: Pair = (0,), _: bool = False,
             include: bool = True, by: int | None = None,
             back: bool = False) -> Value | None:
    """The mean of each window; or, going `back`, the gradient of each,
    divided among its elements; None if windows have different numbers."""
    image, pooled = (context, a) if back else (a, context)
    size, step, margin = how = spread(size, step or size, margin)
    whole = all(
        (include or not m) and not_negative(end + m - (n - 1) * s + m - k)
        for end, n, k, s, m in zip(
            image.shape[-2:], pooled.shape[-2:], *how))
    if not (by or whole) or not pays(context, size, step, back):
        return None
    return total(context, a, (around if back else window_of)(context, *how),
                 by or prod(size))


def adaptive(context: LoweringContext, a: Value, *_, back: bool = False
             ) -> Value | None:
    """The same, if all windows have one size and lie side by side."""
    image, pooled = (context, a) if back else (a, context)
    sides = [*zip(image.shape[-2:], pooled.shape[-2:])]
    size = [(old // new).constant for old, new in sides]
    fits = all(k and old == new * k for k, (old, new) in zip(size, sides))
    return averaged(context, a, size, back=back) if fits else None


def greatest(context: LoweringContext, a: Value, size: Pair,
             step: Pair = (), margin: Pair = (0,), apart: Pair = (1,), *_
             ) -> tuple[Value, Value] | None:
    """The greatest element of each window, and its place in the image:
    the first of equal ones, and the last NaN."""
    size, step, margin, apart = spread(size, step or size, margin, apart)
    if not pays(context, size, step):
        return None
    least = found = Const(-inf, context.dtype)
    windows = [*window_of(context, size, step, margin, apart)]
    row, column = (operation("maximum", *(
        Position(each, torch.int32) for each in (where, where % n)))
        for where, n in zip(windows[0][-2:], apart))
    width = a.shape[-1]
    place = operation("add", operation("mul", row, Position(
        width, torch.int32)), column)
    for at in windows:
        part = inside_or(a, at, least)
        better = test("logical_or", test("gt", part, found),
                      test("ne", part, part))
        place = operation("where", better, Position(
            at[-2] * width + at[-1], place.dtype), place)
        found = operation("maximum", found, part)
    return context.value(found), context.value(cast(place, torch.int64))


def greatest_back(context: LoweringContext, gradient: Value, a: Value,
                  size: Pair, step: Pair, margin: Pair, apart: Pair,
                  _: bool, places: Value) -> Value | None:
    """The gradients of the windows whose greatest an element is."""
    size, step, margin = spread(size, step or size, margin)
    if not pays(context, size, step, True) or {*apart} != {1}:
        return None
    *_, row, column = context.point
    here = Position(row * a.shape[-1] + column, torch.int64)
    return total(context, gradient, {
        at: test("eq", inside_or(places, at, Const(-1, torch.int64)), here)
        for at in around(context, size, step, margin)})


def folded(context: LoweringContext, a: Value, size: Pair, window: Pair,
           distance: Pair, margin: Pair, step: Pair) -> Value | None:
    """Columns as the windows that they were cut out as, which add up where
    they overlap: `fold`, and the gradient of `unfold`."""
    if len(a.shape) != 3 or {*distance} != {1} or not pays(
            context, window, step, True):
        return None
    images, channels, *_ = context.shape
    windows = reshaped(a, (images, channels, *map(index, window), *(
        index((n + 2 * m - k) // s + 1)
        for n, m, k, s in zip(size, margin, window, step))))
    found = {}
    for image, channel, *at in around(context, window, step, margin):
        inside = [i + m - n * s for i, m, n, s in zip(
            context.point[2:], margin, at, step)]
        found[image, channel, *inside, *at] = TRUE
    return total(context, windows, found)


def slid_back(context: LoweringContext, gradient: Value, _: object,
              axis: int, size: int, step: int) -> Value | None:
    """The gradients of the slices of a dimension that an element is in:
    of `Tensor.unfold`. Of steps that fill it, no loop divides."""
    point = context.point
    axis %= len(point) or 1
    many = ceil(size / step)
    reach, move = (many, 1) if (
        point and context.shape[axis] % step == 0) else (size, step)
    if not point or not pays(context, [reach, 1], [move, 1], True):
        return None
    at = [point[axis] // step - back for back in range(many)[::-1]]
    return total(context, gradient, {
        (*with_axis(point, axis, slice_), point[axis] - slice_ * step): TRUE
        for slice_ in at})


RULES |= {
    "unfold_backward": slid_back,
    "avg_pool2d": averaged,
    "avg_pool2d_backward": lambda context, gradient, _, *how: averaged(
        context, gradient, *how, back=True),
    "col2im": folded, "_adaptive_avg_pool2d": adaptive,
    "_adaptive_avg_pool2d_backward": partial(adaptive, back=True),
    "max_pool2d_with_indices": greatest,
    "max_pool2d_with_indices_backward": greatest_back}
