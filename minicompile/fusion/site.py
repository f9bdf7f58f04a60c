"""Where a lowering rule works: the node's result, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from ..core.index import Index
from .values import Value


@dataclass(frozen=True)
class Site:
    """One node being lowered.

    `reduce(kind, value, dimensions, keepdim)` stores a reduction;
    `require(value, message)` raises when the graph runs unless the value
    is true everywhere.
    """

    node: fx.Node
    shape: tuple[Index, ...]  # of the result, or of the first of several
    dtype: torch.dtype
    device: torch.device
    reduce: Callable[..., Value]
    require: Callable[[Value, str], None]

    def value(self, body) -> Value:
        """A value of the result's shape, dtype and device."""
        return Value(self.shape, self.dtype, self.device, body)
