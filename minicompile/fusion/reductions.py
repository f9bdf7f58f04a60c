"""Lowering rules for reductions.

In: a Site and values. Out: values that read what a reduction has stored.
A sum is accumulated in a dtype at least as exact as eager's, and what
follows (a division, a square root) is a pointwise operation that fuses
like any other. A variance is two passes: the mean, then the squares.
Inductor's are in torch/_inductor/lowering.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..core.index import Index, not_negative, product
from ..core.loops import Expression
from .pointwise import accurate, apply, number
from .site import Site
from .values import Value, broadcast
from .views import reshaped

Axes = Sequence[int] | int | None


def axes_of(a: Value, axes: Axes) -> tuple[int, ...]:
    """The reduced dimensions, in order; all of them for None or []."""
    rank = len(a.shape)
    if axes is None or axes == []:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else axes
    return tuple(sorted(axis % rank for axis in given)) if rank else ()


def reduced(site: Site, kind: str, a: Value, axes: Axes = None,
            keepdim: bool = False) -> Value:
    """`a` reduced over some dimensions, in its own dtype."""
    return site.reduce(kind, a, axes_of(a, axes), keepdim)


def keeping(kind: str):
    """The rule of a reduction that stays in one dtype (amax, argmax, …).

    `any` and `all` give bool, but uint8 of uint8, as eager does.
    """
    def rule(site: Site, a: Value, axes: Axes = None,
             keepdim: bool = False, **_) -> Value:
        kept = torch.bool if kind in ("any", "all") else a.dtype
        return reduced(site, kind, a.to(kept), axes, keepdim).to(site.dtype)
    return rule


def adding(kind: str, divided: bool = False):
    """The rule of sum, prod and mean: exact while adding, then rounded."""
    def rule(site: Site, a: Value, axes: Axes = None,
             keepdim: bool = False, **_) -> Value:
        inner = a.to(site.dtype).to(accurate(site.dtype))
        made = reduced(site, kind, inner, axes, keepdim)
        made = over(made, count(a, axes)) if divided else made
        return made.to(site.dtype)
    return rule


def best_of_two(kind: str):
    """The rule of max(dim) and min(dim): the value, and where it is."""
    def rule(site: Site, a: Value, axis: int, keepdim: bool = False):
        if a.dtype == torch.bool:
            return None
        return (reduced(site, kind, a, axis, keepdim),
                reduced(site, f"arg{kind}", a, axis, keepdim))
    return rule


def count(a: Value, axes: Axes) -> Index:
    """How many elements are reduced to one."""
    return product(a.shape[axis] for axis in axes_of(a, axes))


def over(a: Value, divisor: Index | int | float) -> Value:
    """`a` divided by a number."""
    if isinstance(divisor, Index) and divisor.constant is not None:
        divisor = int(divisor)
    return a.map(lambda element: apply(
        "div", a.dtype, element, number(divisor)))


def left_of(total: Index, correction: int | float
            ) -> Index | int | float | None:
    """total - correction, but at least 0; None if it is not known."""
    if total.constant is not None:
        return max(int(total) - correction, 0)
    left = total - int(correction)
    return left if int(correction) == correction and (
        not_negative(left)) else None


def var_mean(site: Site, a: Value, axes: Axes = None, *,
             correction: int | float | None = 1,
             keepdim: bool = False) -> tuple[Value, Value] | None:
    """The variance and the mean, in two passes."""
    correction = 1 if correction is None else correction
    left = left_of(count(a, axes), correction)
    if left is None:
        return None
    inner = a.to(accurate(site.dtype))
    middle = over(reduced(site, "sum", inner, axes, True), count(a, axes))
    spread = broadcast(middle, inner.shape)

    def square(point) -> Expression:
        off = apply("sub", inner.dtype, inner.at(point), spread.at(point))
        return apply("mul", inner.dtype, off, off)
    squares = Value(inner.shape, inner.dtype, inner.device, square)
    total = reduced(site, "sum", squares, axes, keepdim)
    variance = over(total, left)
    average = reshaped(middle, variance.shape)
    return variance.to(site.dtype), average.to(site.dtype)


def var(site: Site, a: Value, axes: Axes = None, **rest) -> Value | None:
    """var(dim, correction)."""
    found = var_mean(site, a, axes, **rest)
    return found and found[0]


REDUCTIONS = {
    "sum": adding("sum"), "prod": adding("prod"),
    "mean": adding("sum", divided=True), "var_mean.correction": var_mean,
    "var.correction": var,
    "amax": keeping("max"), "amin": keeping("min"),
    "max.default": keeping("max"), "min.default": keeping("min"),
    "any": keeping("any"), "all": keeping("all"),
    "argmax": keeping("argmax"), "argmin": keeping("argmin"),
    "max.dim": best_of_two("max"), "min.dim": best_of_two("min"),
}
