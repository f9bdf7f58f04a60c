"""Split reductions: one of few, long rows becomes two reductions.

A device reduces many rows at a time, but one row in one place. So the sum
of a million numbers is 64 sums of parts, and the sum of those. A million
and one does not divide by 64: the last part is padded with the number
that changes nothing. PyTorch's is `num_splits` of torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from ...core.index import coefficient, index, product
from ...core.loops import (Const, Expression, Load, neutral, variables_of,
                           walk)
from ..lower import SPLITS
from ..rules.predication import inside_or
from ..values import Point, Value, axes, elements, moved_to, reshaped


@dataclass(frozen=True)
class Share:
    """The numbers that keep a device busy.

    At most `few` rows are split, into `many` parts in all, of at least
    `least` elements; below `worth` elements one step is faster. `beside`
    columns, neighbours in memory, are reduced in one place.
    """

    few: int
    many: int
    least: int
    worth: int
    beside: int


SHARES = {"cpu": Share(7, 64, 4096, 1 << 17, 16),
          "cuda": Share(128, 1024, 1024, 1 << 15, 64)}


def parts_wanted(value: Value, reduced: tuple[int, ...]) -> int:
    """Into how many parts to split each row; 1: not worth it."""
    share = SHARES.get(value.device.type)
    total = elements(value.shape)
    if share is None or total < share.worth:
        return 1
    length = elements(value.shape[axis] for axis in reduced)
    rows, least = total // length, share.least
    if has_columns(value, reduced):
        rows, least = (ceil(n / share.beside) for n in (rows, least))
    if rows > share.few or length < 2 * least:
        return 1
    wanted = min(ceil(share.many / rows), length // least)
    sizes = [value.shape[axis].constant for axis in reduced]
    return wanted if None in sizes else even(wanted, sizes)


def even(wanted: int, sizes: list[int]) -> int:
    """About `wanted` parts, such that each is a block of the sizes."""
    parts = 1
    for size in sizes:
        left = ceil(wanted / parts)
        if left < size:
            near = [n for n in range(left, 2 * left) if size % n == 0]
            if near or len(sizes) > 1:
                best = max(n for n in range(1, left + 1) if size % n == 0)
                return parts * (near[0] if near else best)
            return left
        parts *= size
    return parts


def has_columns(value: Value, reduced: tuple[int, ...]) -> bool:
    """Whether neighbours in memory belong to different rows.

    Of the loads that vary within a row, the largest decide: the gradient
    of a cross entropy also reads one label a row.
    """
    names = axes(value.shape)
    inner = {names[axis] for axis in reduced}
    loads = {part.index: elements(
        v.size for v in names if v in variables_of(part.index))
        for part in walk(value.element)
        if isinstance(part, Load) and inner & variables_of(part.index)}
    for where, count in loads.items():
        near = {v for v in names if coefficient(where, v) == 1}
        if near and count == max(loads.values()):
            return not near & inner
    return False


def split(simply: Callable[..., Value], kind: str, value: Value,
          reduced: tuple[int, ...]) -> Value | None:
    """The reduction of each row's parts, then of their results; or None."""
    parts = parts_wanted(value, reduced)
    if parts == 1:
        return None
    order = sorted(range(len(value.shape)), key=lambda k: (k in reduced, k))
    back = [order.index(k) for k in range(len(order))]
    turned = moved_to(value, tuple(value.shape[k] for k in order),
                      lambda point: tuple(point[k] for k in back))
    sizes = turned.shape[:-len(reduced)]
    total = product(turned.shape[-len(reduced):])
    rows = reshaped(turned, (*sizes, total))
    length = (total + (parts - 1)) // parts
    rest = Const(neutral(kind, value.dtype), value.dtype)

    def body(point: Point) -> Expression:
        part, *others, flat = point
        return inside_or(rows, (*others, part * length + flat), rest)
    shape = (index(parts), *sizes)
    some = simply(Value((*shape, length), value.dtype, value.device, body),
                  (len(shape),), shape, "part")
    return simply(some, (0,), sizes)


SPLITS.append(split)
