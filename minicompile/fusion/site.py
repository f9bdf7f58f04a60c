"""Where a lowering rule works: the node's result, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from ..core.index import Index
from .sizes import sizes_of
from .values import Value


@dataclass(frozen=True)
class Site:
    """One node being lowered.

    `reduce(kind, value, dimensions, keepdim)` stores a reduction;
    `require(value, message)` raises when the graph runs unless the value
    is true everywhere.
    """

    result: object  # the node's fake tensor, or a tuple of them
    reduce: Callable[..., Value]
    require: Callable[[Value, str], None]

    @cached_property
    def fake(self) -> torch.Tensor:
        """The result, or the first of several."""
        many = isinstance(self.result, (tuple, list))
        return self.result[0] if many else self.result

    @cached_property
    def shape(self) -> tuple[Index, ...]:
        """The result's sizes."""
        return sizes_of(self.fake.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The result's dtype."""
        return self.fake.dtype

    @property
    def device(self) -> torch.device:
        """The result's device."""
        return self.fake.device

    def value(self, body) -> Value:
        """A value of the result's shape, dtype and device."""
        return Value(self.shape, self.dtype, self.device, body)
