"""The ranges of whole numbers that a kernel computes.

In: an expression. Out: numbers that it is never below and never above. A
place that is known to lie inside of a tensor needs no check, and a number
that 32 bits hold is computed in 32 bits, as a GPU does it best. A float is
taken to be off by its last digit, as rounding has it. One that lies in
memory, or is too large, may become NaN, which no bound holds back: nothing
is known of what is made of it. PyTorch's are
torch/utils/_sympy/value_ranges.py and torch/_inductor/bounds.py.
"""

from functools import lru_cache
from itertools import product
from math import floor, inf, isfinite
from operator import add, mul, sub

import torch

from ..index import least_of, most_of
from ..loops import Const, Expression, Op, Position

Ends = tuple[float, float]

#: What rises, or falls, with each operand: its ends are at theirs.
MONOTONE = {"add": add, "sub": sub, "mul": mul, "floor": floor,
            "maximum": max, "minimum": min,
            "checked": lambda place, end: max(0, min(place, end - 1)),
            "where": lambda chosen, a, b: a if chosen else b}


def suits(ends: Ends, dtype: torch.dtype) -> bool:
    """Whether all whole numbers between two are numbers of the dtype."""
    limits = torch.iinfo(dtype)
    return limits.min <= ends[0] <= ends[1] <= limits.max


@lru_cache(maxsize=10_000)
def bounds(node: Expression) -> Ends:
    """Numbers that the value is never below and never above."""
    low, high = exact_ends(node)
    if node.dtype == torch.bool:
        return 0, 1
    if node.dtype.is_floating_point:
        about = torch.finfo(node.dtype)
        low -= abs(low) * about.eps + about.tiny
        high += abs(high) * about.eps + about.tiny
        return (low, high) if -about.max <= low <= high <= about.max else (
            -inf, inf)
    limits = torch.iinfo(node.dtype)
    return (low, high) if suits((low, high), node.dtype) else (
        limits.min, limits.max)


def exact_ends(node: Expression) -> Ends:
    """The same, as if no digit was lost."""
    ends = [*map(bounds, node.operands)] if isinstance(node, Op) else []
    known = all(map(isfinite, sum(ends, ())))
    match node:
        case Const(number) if number == number:
            return number, number
        case Position(where):
            return least_of(where), most_of(where)
        case Op() if not known:
            return -inf, inf
        case Op(name) if name in MONOTONE:
            found = [MONOTONE[name](*corner) for corner in product(*ends)]
            return min(found), max(found)
        case Op("abs"):
            [(a, b)] = ends
            return max(a, -b, 0), max(-a, b)
        case Op("cast", (part,)):
            cut = part.dtype.is_floating_point and not (
                node.dtype.is_floating_point)
            return tuple(map(int, ends[0])) if cut else ends[0]
    return -inf, inf
