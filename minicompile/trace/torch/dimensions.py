"""Dimensions that a program marks: a row for the choice of symbols.

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
from ..automatic_dynamic import SIZE
from ..symbolic_shapes import DECIDERS, SymbolicSizes

#: The marks, and who makes those that make a size a symbol.
MARKS = {"static": None, "weak_dynamic": "maybe_mark_dynamic",
         "dynamic": "mark_dynamic"}


def decide(sizes: SymbolicSizes, real: torch.Tensor, source: Source,
           kinds: list, limits: list) -> None:
    """Let marks say more than what was seen; a range becomes a limit."""
    reach = {each.dim: ValueRanges(
        max(each.min or 0, 2), int_oo if each.max is None else each.max)
        for each in getattr(real, "_dynamo_dynamic_range", ())
        if (each.min, each.max) != (None, None)}
    for how, maker in MARKS.items():
        marked = getattr(real, f"_dynamo_{how}_indices", ())
        for dim in {*range(real.dim())}.intersection(marked):
            kinds[dim] = DimDynamic.STATIC
            if maker is not None:
                kinds[dim] = DimDynamic.DYNAMIC
                sizes.history.why[SIZE.format(dim, source)] = (
                    f"is {real.shape[dim]}: dynamic by {maker}")
            if how == "dynamic":
                sizes.late.append(partial(hold, sizes, source, dim,
                                          real.shape[dim], reach.get(dim)))
    for dim, within in reach.items():
        if dim < real.dim() and real.shape[dim] in within:
            limits[dim] = StrictMinMaxConstraint(warn_only=False, vr=within)


def hold(sizes: SymbolicSizes, source: Source, dim: int, size: int,
         within: ValueRanges | None) -> tuple:
    """Nothing; ConstraintViolation if a mark does not hold."""
    what = f"dimension {dim} of `{source}` is marked"
    if within is not None and size not in within:
        raise ConstraintViolation(f"{what} as {within.lower} to "
                                  f"{within.upper}, and is {size}")
    value = sizes.fakes[source][1][dim]
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
