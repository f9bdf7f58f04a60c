"""Lowering rules for choosing one element of each row by its position.

In: values, one of them holding positions. Out: loops, where PyTorch reads
or writes at a computed address: an element is compared with every
position of its row. That costs nothing where the row is read anyway, as
in a cross entropy, and writes no row that is there only to be picked from.
A position that is none raises as in eager, by an operator that checks.
"""

from __future__ import annotations

import torch

from ..core.index import Index, index
from ..core.loops import Const, Expression, Load, Op, Position, neutral
from .pointwise import Operand, number, standing
from .site import Site
from .values import Point, Value, both, with_axis


def is_picked(axis: int, places: Value, point: Point) -> Expression:
    """Whether `places` names the position that the point has."""
    named = places.at(with_axis(point, axis, index(0)))
    return Op("eq", (named, Position(point[axis], torch.int64)), torch.bool)


def require_range(site: Site, places: Value, size: Index) -> None:
    """Raise, as eager does, if a position is outside of 0 … size - 1."""
    def inside(place: Expression) -> Expression:
        return both(Op("ge", (place, Const(0, place.dtype)), torch.bool),
                    Op("lt", (place, Position(size, place.dtype)),
                       torch.bool))
    site.require(places.map(inside, torch.bool),
                 f"index out of bounds for a dimension of size {size}")


def gather(site: Site, a: Value, axis: int, places: Value,
           **_) -> Value | None:
    """The element of each row that `places` names, if the rows are in
    memory for nobody else."""
    if isinstance(a.element, Load) or not picks_one(a, axis, places):
        return None
    axis %= len(a.shape)
    require_range(site, places, a.shape[axis])
    rest = Const(neutral("max", a.dtype), a.dtype)

    def body(point: Point) -> Expression:
        return Op("where", (is_picked(axis, places, point), a.at(point),
                            rest), a.dtype)
    chosen = Value(a.shape, a.dtype, a.device, body, a.origins)
    return site.reduce("max", chosen, (axis,), True)


def scatter(site: Site, a: Value, axis: int, places: Value,
            new: Operand) -> Value | None:
    """`a` with one element of each row replaced."""
    if not picks_one(a, axis, places):
        return None
    axis %= len(a.shape)
    require_range(site, places, a.shape[axis])

    def body(point: Point) -> Expression:
        at = with_axis(point, axis, index(0))
        one = standing(number(new) if not isinstance(new, Value)
                       else new.at(at), site.dtype)
        return Op("where", (is_picked(axis, places, point), one,
                            a.at(point)), site.dtype)
    return site.value(body)


def picks_one(a: Value, axis: int, places: Value) -> bool:
    """Whether one element of each row is meant, and of which rows all."""
    return bool(a.shape) and places.shape == with_axis(
        a.shape, axis % len(a.shape), index(1))


PICKS = {"gather": gather, "scatter.value": scatter,
         "scatter.src": scatter}
