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


#: What may be a symbol, in words: a size, a stride, a number.
SIZE, STRIDE = "dimension {0} of `{1}`", "stride {0} of `{1}`"
NUMBER = "`{1}`"

#: The marks that make a size a symbol, and who makes them.
MARKS = {"weak_dynamic": "maybe_mark_dynamic", "dynamic": "mark_dynamic"}


class History:
    """What one function's traces have seen; `dynamic` as in compile().

    `why` says of places why they may be symbols, `turned` which became one
    and were not told yet. With `never` not even what is marked does.
    """

    def __init__(self, dynamic: bool | None = False, floats: bool = True,
                 never: bool = False):
        self.dynamic, self.floats, self.never = dynamic, floats, never
        self.seen: dict[tuple[str, Source], tuple] = {}
        self.why: dict[str, str] = {}
        self.turned: list[str] = []
        self.symbols: set[str] = set()
        self.counters: set[Source | str] = set()  # what a trace wrote to

    def varying(self, what: str, source: Source, values: tuple
                ) -> list[bool]:
        """Which values were others, or more or fewer, in other traces."""
        if self.dynamic is False:
            return [False] * len(values)
        before = self.seen.get((what, source), values)
        if len(before) != len(values):
            before = (None,) * len(values)
        now = tuple(new if new is old or type(new) is type(old) and (
            new == old) else None for old, new in zip(before, values))
        self.seen[what, source] = now
        self.why |= {what.format(dim, source): f"was {before[dim]}, is "
                     f"{value}: dynamic from now on"
                     for dim, value in enumerate(values)
                     if now[dim] is None and before[dim] is not None}
        return [value is None for value in now]

    def tell(self, what: str, dim: int, source: Source, value) -> None:
        """Note that a place has become a symbol, once, and why."""
        if (name := what.format(dim, source)) not in self.symbols:
            self.symbols.add(name)
            self.turned.append(name + " " + self.why.get(
                name, f"is {value}: dynamic by dynamic=True"))

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
            NUMBER, source, (value,))[0]
        return may_vary and varies

    def context(self, real: torch.Tensor, source: Source
                ) -> StatelessSymbolicContext | None:
        """Which sizes and strides of a tensor are symbols; None: none."""
        if self.never or isinstance(real, nn.Parameter):
            return None
        sizes = self.varying(SIZE, source, tuple(real.shape))
        strides = self.varying(STRIDE, source, tuple(real.stride()))
        self.why |= {SIZE.format(dim, source): f"is {real.shape[dim]}: "
                     f"dynamic by {how}" for kind, how in MARKS.items()
                     for dim in marked(real, kind)}
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
        if any(dim in marked(real, kind) for kind in MARKS):
            return DimDynamic.DYNAMIC
        if dim in marked(real, "static"):
            return DimDynamic.STATIC
        if varies:
            return DimDynamic.DYNAMIC
        return DimDynamic.DUCK if self.dynamic else DimDynamic.STATIC


def marked(real: torch.Tensor, how: str) -> set[int]:
    """The dimensions that were marked so, by us or by torch."""
    return {*range(real.dim())} & getattr(
        real, f"_dynamo_{how}_indices", set())


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
