"""Rules: reductions beside sum, mean, amax, amin and var_mean.

`any` and `all` give bool, but uint8 of uint8, as eager does. The maximum
of a dimension comes with its place: that is a second reduction over the
same elements, which shares a kernel with the first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..lowerings import (RULES, Axes, LoweringContext, adding, keeping,
                         var_mean)
from ..values import Value


def converting(kind: str, within: torch.dtype | None = None) -> Callable:
    """The rule of a reduction whose result is of another dtype."""
    def rule(context: LoweringContext, a: Value, axes: Axes = None,
             keepdim: bool = False) -> Value:
        return context.reduce(kind, a.to(within or a.dtype), axes,
                              keepdim).to(context.dtype)
    return rule


def best_of_two(kind: str) -> Callable:
    """The rule of max(dim) and min(dim): the value, and where it is."""
    def rule(context: LoweringContext, a: Value, axis: int,
             keepdim: bool = False) -> tuple[Value, Value] | None:
        return None if a.dtype == torch.bool else tuple(
            context.reduce(name, a, axis, keepdim)
            for name in (kind, f"arg{kind}"))
    return rule


def var(context: LoweringContext, a: Value, axes: Axes = None, **rest
        ) -> Value | None:
    """var(dim, correction)."""
    found = var_mean(context, a, axes, **rest)
    return found and found[0]


RULES |= {
    "prod": adding("prod"), "var.correction": var,
    "max.default": keeping("max"), "min.default": keeping("min"),
    **{name: converting(name, torch.bool) for name in ("any", "all")},
    **{name: converting(name) for name in ("argmax", "argmin")},
    "max.dim": best_of_two("max"), "min.dim": best_of_two("min"),
}
