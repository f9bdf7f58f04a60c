"""Rules: one element of each row, chosen by its position.

PyTorch's `gather` reads at a computed address, so the row has to be in
memory: for a cross entropy that is the largest tensor of the step. A loop
compares *every* position with the one that is named, which costs nothing
where the row is computed anyway, and the row is never written. A position
outside of the row raises as in eager, by an operator that checks.
"""

from __future__ import annotations

import torch

from ...core.index import Index, index
from ...core.loops import Const, Expression, Load, Op, Position, neutral
from ..lowerings import RULES, LoweringContext, Operand, scalar
from ..values import Point, Value, cast
from .predication import both, with_axis


def is_picked(axis: int, places: Value, point: Point) -> Expression:
    """Whether `places` names the position that the point has."""
    named = places.at(with_axis(point, axis, index(0)))
    return Op("eq", (named, Position(point[axis], torch.int64)), torch.bool)


def require_range(context: LoweringContext, places: Value, size: Index
                  ) -> None:
    """Raise, as eager does, if a position is outside of 0 … size - 1."""
    def inside(place: Expression) -> Expression:
        return both(Op("ge", (place, Const(0, place.dtype)), torch.bool),
                    Op("lt", (place, Position(size, place.dtype)),
                       torch.bool))
    context.call(
        torch.ops.aten._assert_async.msg,
        context.reduce("all", places.map(inside, torch.bool)),
        f"index out of bounds for a dimension of size {size}")


def gather(context: LoweringContext, a: Value, axis: int, places: Value,
           **_) -> Value | None:
    """The element of each row that `places` names, if the rows are in
    memory for nobody else."""
    if isinstance(a.element, Load) or not picks_one(a, axis, places):
        return None
    axis %= len(a.shape)
    require_range(context, places, a.shape[axis])
    rest = Const(neutral("max", a.dtype), a.dtype)
    chosen = Value(a.shape, a.dtype, a.device, lambda point: Op(
        "where", (is_picked(axis, places, point), a.at(point), rest),
        a.dtype))
    return context.reduce("max", chosen, axis, True)


def scatter(context: LoweringContext, a: Value, axis: int, places: Value,
            new: Operand) -> Value | None:
    """`a` with one element of each row replaced."""
    if not picks_one(a, axis, places):
        return None
    axis %= len(a.shape)
    require_range(context, places, a.shape[axis])

    def body(point: Point) -> Expression:
        one = cast(new.at(with_axis(point, axis, index(0))), context.dtype
                   ) if isinstance(new, Value) else (
                       scalar(new, context.dtype))
        return Op("where", (is_picked(axis, places, point), one,
                            a.at(point)), context.dtype)
    return context.value(body)


def picks_one(a: Value, axis: int, places: Value) -> bool:
    """Whether one element of each row is meant, and of which rows all."""
    return bool(a.shape) and places.shape == with_axis(
        a.shape, axis % len(a.shape), index(1))


RULES |= {"gather": gather, "scatter.value": scatter,
          "scatter.src": scatter}
