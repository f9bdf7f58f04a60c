"""Which sizes and numbers become symbols: what varied, what is marked.

In: the tensors and numbers of a call, by source. Out: for each whether
the graph may take it for a constant. A first trace takes all for
constants; what a later trace finds changed is a symbol from then on.
PyTorch's are torch/_dynamo/pgo.py and `_automatic_dynamic` in
torch/_dynamo/variables/builder.py.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ..core.source import Source


class History:
    """What one function's traces have seen; `dynamic` as in compile().

    `turned` has what became a symbol and was not told yet. With `never`
    not even what is marked becomes one.
    """

    def __init__(self, dynamic: bool | None = False, floats: bool = True,
                 never: bool = False):
        self.dynamic, self.floats, self.never = dynamic, floats, never
        self.seen: dict[tuple[str, Source], tuple] = {}
        self.turned: list[str] = []

    def varying(self, what: str, source: Source, values: tuple,
                told: bool = True) -> list[bool]:
        """Which values were others, or more or fewer, in other traces."""
        if self.dynamic is False:
            return [False] * len(values)
        before = self.seen.get((what, source), values)
        if len(before) != len(values):
            before = (None,) * len(values)
        now = tuple(new if type(new) is type(old) and new == old else None
                    for old, new in zip(before, values))
        self.seen[what, source] = now
        self.turned += [
            f"{what.format(dim, source)} was {before[dim]}, is "
            f"{values[dim]}: dynamic from now on" for dim in range(len(now))
            if told and now[dim] is None and before[dim] is not None]
        return [value is None for value in now]

    def told(self) -> list[str]:
        """What became a symbol since this was last asked, in words."""
        told, self.turned = self.turned, []
        return told

    def number(self, value: int | float, source: Source, may_vary: bool
               ) -> bool:
        """Whether a number is a symbol, if it may be one.

        Floats that are not like others are constants.
        """
        may_vary = may_vary and (type(value) is int or self.floats
                                 and math.isfinite(value))
        varies = self.dynamic or self.varying(
            "`{1}`", source, (value,), may_vary)[0]
        return may_vary and varies

    def context(self, real: torch.Tensor, source: Source
                ) -> StatelessSymbolicContext | None:
        """Which sizes and strides of a tensor are symbols; None: none."""
        if self.never or isinstance(real, nn.Parameter):
            return None
        sizes = self.varying("dimension {0} of `{1}`", source,
                             tuple(real.shape))
        strides = self.varying("stride {0} of `{1}`", source,
                               tuple(real.stride()), not any(sizes))
        kinds = [self.kind(real, dim, varies)
                 for dim, varies in enumerate(sizes)]
        steps = [DimDynamic.DYNAMIC if varies and not any(sizes)
                 else DimDynamic.INFER_STRIDE for varies in strides]
        if {*kinds} <= {DimDynamic.STATIC} and (
                DimDynamic.DYNAMIC not in steps):
            return None
        return StatelessSymbolicContext(
            kinds, steps, [constraint(real, dim)
                           for dim in range(real.dim())])

    def kind(self, real: torch.Tensor, dim: int, varies: bool
             ) -> DimDynamic:
        """How one size is taken; a mark says more than what was seen."""
        if dim in marked(real, "dynamic") | marked(real, "weak_dynamic"):
            return DimDynamic.DYNAMIC
        if dim in marked(real, "static"):
            return DimDynamic.STATIC
        if varies:
            return DimDynamic.DYNAMIC
        return DimDynamic.DUCK if self.dynamic else DimDynamic.STATIC


def marked(real: torch.Tensor, how: str) -> set[int]:
    """The dimensions that were marked so, by us or by torch."""
    return getattr(real, f"_dynamo_{how}_indices", set())


def limits(real: torch.Tensor, dim: int) -> ValueRanges | None:
    """The range that a dimension was marked with, if it was."""
    for each in getattr(real, "_dynamo_dynamic_range", ()):
        if each.dim == dim and (each.min, each.max) != (None, None):
            upper = int_oo if each.max is None else each.max
            return ValueRanges(max(each.min or 0, 2), upper)
    return None


def constraint(real: torch.Tensor, dim: int
               ) -> StrictMinMaxConstraint | None:
    """The same for ShapeEnv, which wants a size to be within."""
    reach = limits(real, dim)
    if reach is None or real.shape[dim] not in reach:
        return None
    return StrictMinMaxConstraint(warn_only=False, vr=reach)
