"""Formulas of our own, beside those of PyTorch that the road chooses.

In: nothing. Out: rows of the table of decompositions. Without this file
these operators run as ATen has them. PyTorch's are in torch/_decomp.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._decomp import decomposition_table

from ..decompose import DECOMPOSITIONS

aten = torch.ops.aten


def nll_loss_backward(grad_output, self, target, weight, reduction,
                      ignore_index, total_weight):
    """The gradient of nll_loss, each element on its own.

    PyTorch's formula scatters; this one compares, and so it fuses.
    """
    dim = min(1, self.dim() - 1)
    shape = [1] * self.dim()
    shape[dim] = self.size(dim)
    classes = torch.arange(self.size(dim), device=self.device).view(shape)
    if self.dim() > 1 or target.dim() == 0:
        target = target.unsqueeze(dim)
    if reduction == 1:  # the mean
        grad_output = grad_output / total_weight
    elif self.dim() > 1 and grad_output.dim():
        grad_output = grad_output.unsqueeze(dim)
    if weight is not None:
        grad_output = grad_output * weight.view(shape)
    chosen = (classes == target) & (target != ignore_index)
    return torch.where(chosen, -grad_output, 0).to(self.dtype)


def unscale(gradients, found_inf, inverse):
    """A GradScaler's gradients divided by its scale, and if any overflowed.

    As an operator on lists it would be one call that fuses with nothing.
    """
    for each in gradients:
        overflowed = each.isfinite().all().logical_not()
        found_inf = torch.where(overflowed, 1.0, found_inf)
    return [each * inverse for each in gradients], found_inf


def is_share(x: torch.Tensor) -> torch.Tensor:
    """Which elements are between 0 and 1."""
    return (x >= 0) & (x <= 1)


def checked(formula: Callable, holds: Callable) -> Callable:
    """The formula, with PyTorch's check of the elements that it reads.

    PyTorch's kernel makes it where a formula would take any number. When
    it fails, Python runs the call, and the error is eager's.
    """
    def rule(*args, **kwargs):
        result = formula(*args, **kwargs)
        if result is not NotImplemented:
            aten._assert_async.msg(holds(*args).all(),
                                   "a number is out of its range")
        return result
    return rule


DECOMPOSITIONS |= {
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._amp_foreach_non_finite_check_and_unscale.default: unscale,
    aten.binary_cross_entropy.default: checked(
        decomposition_table[aten.binary_cross_entropy.default],
        lambda x, target, *_: is_share(x) & is_share(target)),
}
