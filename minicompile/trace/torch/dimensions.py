"""Dimensions that a program marks: rows for the choice of symbols.

In: a tensor with marks, by us or by torch.compile. Out: which of its sizes
are symbols whatever was seen, within which limits; ConstraintViolation if
a graph needs a constant there. PyTorch's are torch/_dynamo/decorators.py
and ConstraintViolationError of torch/fx/experimental/symbolic_shapes.py.
"""

from __future__ import annotations

from functools import partial

import torch
from sympy import Expr
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ...core.errors import ConstraintViolation
from ...core.source import Source
from ..automatic_dynamic import DECIDERS, SIZE, History
from ..symbolic_shapes import CHECKS, SymbolicSizes

#: The marks that make a size a symbol, and who makes them.
MARKS = {"weak_dynamic": "maybe_mark_dynamic", "dynamic": "mark_dynamic"}


def marked(real: torch.Tensor, how: str) -> set[int]:
    """The dimensions that were marked so."""
    return {*range(real.dim())} & getattr(
        real, f"_dynamo_{how}_indices", set())


def marked_range(real: torch.Tensor, dim: int) -> ValueRanges | None:
    """The range that a dimension was marked with, if it was."""
    for each in getattr(real, "_dynamo_dynamic_range", ()):
        if each.dim == dim and (each.min, each.max) != (None, None):
            upper = int_oo if each.max is None else each.max
            return ValueRanges(max(each.min or 0, 2), upper)
    return None


def decide(history: History, real: torch.Tensor, source: Source,
           kinds: list, limits: list) -> None:
    """Let marks say more than what was seen; a range becomes a limit."""
    for dim in marked(real, "static"):
        kinds[dim] = DimDynamic.STATIC
    for kind, how in MARKS.items():
        for dim in marked(real, kind):
            kinds[dim] = DimDynamic.DYNAMIC
            history.why[SIZE.format(dim, source)] = (
                f"is {real.shape[dim]}: dynamic by {how}")
    for dim, size in enumerate(real.shape):
        within = marked_range(real, dim)
        if within is not None and size in within:
            limits[dim] = StrictMinMaxConstraint(warn_only=False, vr=within)


def check(sizes: SymbolicSizes, real: torch.Tensor, fake: torch.Tensor,
          source: Source) -> None:
    """Let each mark be checked when the graph is done."""
    for dim in marked(real, "dynamic"):
        what = f"dimension {dim} of `{source}` is marked"
        sizes.late.append(partial(hold, sizes, what, real.shape[dim],
                                  fake.shape[dim], marked_range(real, dim)))


def hold(sizes: SymbolicSizes, what: str, size: int, value,
         within: ValueRanges | None) -> tuple:
    """Nothing; ConstraintViolation if a mark does not hold."""
    if within is not None and size not in within:
        raise ConstraintViolation(f"{what} as {within.lower} to "
                                  f"{within.upper}, and is {size}")
    symbolic = isinstance(value, torch.SymInt)
    expr = value.node.expr if symbolic else value
    if isinstance(expr, Expr) and not expr.is_number:
        return ()
    learnt = sizes.learnt
    lines = [line for guard, line in zip(learnt, learnt.lines)
             if symbolic and value.node._expr in guard.expr.free_symbols]
    where = lines[-1] if lines else None
    line = f"\n  at {where}  {where.text}" if where else (
        "\n  0 and 1 are always constants" if expr in (0, 1) else "")
    raise ConstraintViolation(
        f"{what} dynamic, and the graph needs it to be {expr}{line}\n"
        "  hint: mark it with torch._dynamo.maybe_mark_dynamic, or not at "
        "all")


DECIDERS.append(decide)
CHECKS.append(check)
