"""Which sizes and numbers become symbols: those that varied or are marked.

In: the tensors and numbers of a call, by source; a tensor with a mark.
Out: for each whether the graph may take it for a constant. A first trace
takes all for constants; what a later trace finds changed is a symbol from
then on. PyTorch's are torch/_dynamo/pgo.py, `_automatic_dynamic` in
torch/_dynamo/variables/builder.py, and torch/_dynamo/decorators.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..core.source import Source

#: What may be a symbol, in words: a size, a stride, a number.
SIZE, STRIDE = "dimension {0} of `{1}`", "stride {0} of `{1}`"
NUMBER = "`{1}`"


class History:
    """What one function's traces have seen; `dynamic` as in compile().

    `why` says of places why they may be symbols, `symbols` which became
    one, and `news` is those not told yet. With `never` not even what is
    marked does.
    """

    def __init__(self, dynamic: bool | None = False, floats: bool = True,
                 never: bool = False):
        self.dynamic, self.floats, self.never = dynamic, floats, never
        self.seen: dict[tuple[str, Source], tuple] = {}
        self.why: dict[str, str] = {}
        self.symbols: set[str] = set()
        self.news: list[str] = []
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
            self.news.append(name + " " + self.why.get(
                name, f"is {value}: dynamic by dynamic=True"))

    def told(self) -> list[str]:
        """What became a symbol since this was last asked, in words."""
        told, self.news = self.news, []
        return told

    def number(self, value: int | float, source: Source) -> bool:
        """Whether a number varies; it is remembered."""
        return self.dynamic or self.varying(NUMBER, source, (value,))[0]


# Marks, which do nothing when code runs as it is


class Range(NamedTuple):
    """What a marked dimension may be; None is no limit."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None,
                 max: int | None = None) -> None:
    """Let the size of a dimension be a symbol from the first trace on.

    If a graph needs it to be a constant, ConstraintViolation is raised.
    """
    if max is not None and (max < 2 or max < (min or 0)):
        raise ValueError(f"no dynamic size is from {min} to {max}")
    dim = _mark(tensor, "_dynamo_dynamic_indices", dim)
    _mark(tensor, "_dynamo_dynamic_range", dim, min, max)


def mark_static(tensor: torch.Tensor, dim: int) -> None:
    """Let the size of a dimension be a constant in every graph."""
    _mark(tensor, "_dynamo_static_indices", dim)


def _mark(tensor: torch.Tensor, attribute: str, dim: int, *reach) -> int:
    """Add to the marks of a tensor, which are those of torch.compile."""
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"a tensor of {tensor.dim()} dimensions has no "
                         f"dimension {dim} to mark")
    dim %= tensor.dim()
    setattr(tensor, attribute, getattr(tensor, attribute, set()) | {
        Range(dim, *reach) if reach else dim})
    tensor._has_dynamo_dim_marking = True
    return dim
