"""Which sizes and numbers become symbols: those that varied.

In: the tensors and numbers of a call, by source. Out: for each whether
the graph may take it for a constant. A first trace takes all for
constants; what a later trace finds changed is a symbol from then on.
PyTorch's are torch/_dynamo/pgo.py and `_automatic_dynamic` in
torch/_dynamo/variables/builder.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StatelessSymbolicContext,
)

from ..core.source import Source

#: What may be a symbol, in words: a size, a stride, a number.
SIZE, STRIDE = "dimension {0} of `{1}`", "stride {0} of `{1}`"
NUMBER = "`{1}`"

#: What else says how the sizes of a tensor are taken, such as a mark. Each
#: gets the history, the tensor, its source and what is to be changed: for
#: each dimension its kind, and its limits.
DECIDERS: list[Callable] = []


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

    def number(self, value: int | float, source: Source) -> bool:
        """Whether a number varies; it is remembered."""
        return self.dynamic or self.varying(NUMBER, source, (value,))[0]

    def context(self, real: torch.Tensor, source: Source
                ) -> StatelessSymbolicContext | None:
        """Which sizes and strides of a tensor are symbols; None: none."""
        if self.never or isinstance(real, nn.Parameter):
            return None
        sizes = self.varying(SIZE, source, tuple(real.shape))
        strides = self.varying(STRIDE, source, tuple(real.stride()))
        rest = DimDynamic.DUCK if self.dynamic else DimDynamic.STATIC
        kinds = [DimDynamic.DYNAMIC if varies else rest for varies in sizes]
        limits = [None] * len(kinds)
        for decide in DECIDERS:
            decide(self, real, source, kinds, limits)
        steps = [DimDynamic.DYNAMIC if varies and not any(sizes)
                 else DimDynamic.INFER_STRIDE for varies in strides]
        if {*kinds} <= {DimDynamic.STATIC} and (
                DimDynamic.DYNAMIC not in steps):
            return None
        return StatelessSymbolicContext(kinds, steps, limits)
