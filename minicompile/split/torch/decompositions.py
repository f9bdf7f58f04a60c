"""Formulas of our own, beside those of PyTorch that the road chooses.

In: nothing. Out: rows of the table of decompositions: the gradient of a
loss, checked losses, a GradScaler's step, and matrix products padded to
shapes that a GPU's library is quick at. Without this file these operators
run as ATen has them. PyTorch's are in torch/_decomp and in
torch/_inductor/fx_passes/pad_mm.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._decomp import decomposition_table
from torch.nn import functional as F

from ...core.cost import MACHINES
from ..decompose import DECOMPOSITIONS

aten = torch.ops.aten

#: Where rows have to be aligned, and to how many bytes.
ROWS = {"cuda": 16}
#: How many times longer a product takes if they are not.
SLOWER = 4


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


def addmm(bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor,
          **factors):
    """`bias + a @ b` of aligned operands, or NotImplemented.

    Tensor cores are fed 16 bytes at a time. Where rows are no multiple of
    that, cuBLAS takes a kernel several times slower; a vocabulary of
    50257 words is enough. So the operands are padded with zeros.
    """
    m, k, n = more = padding(a, b)
    if not any(more) or bias is not None and bias.shape != b.shape[1:]:
        return NotImplemented
    wide = extended(a, m, k), extended(b, k, n)
    product = torch.mm(*wide) if bias is None else torch.addmm(
        F.pad(bias, (0, n)), *wide, **factors)
    return product[:a.shape[0], :b.shape[1]].contiguous()


def padding(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int]:
    """By how much to extend the sizes m, k, n; zeros if it does not pay.
    """
    sizes = (*a.shape, b.shape[1])
    machine = MACHINES.get(a.device.type)
    if (a.device.type not in ROWS or a.dtype.itemsize != 2
            or not all(type(size) is int for size in sizes)):
        return 0, 0, 0
    step = ROWS[a.device.type] // a.dtype.itemsize
    m, k, n = (-size % step for size in sizes)
    m *= is_transposed(a)
    k *= is_transposed(b) or not is_transposed(a)
    copied = sum(tensor.nbytes for tensor, needed in
                 ((a, m or k), (b, k or n)) if needed)
    if n:
        copied += sizes[0] * sizes[2] * a.dtype.itemsize
    lost = 2 * sizes[0] * sizes[1] * sizes[2] * (SLOWER - 1)
    pays = lost / machine.arithmetic[a.dtype] > (
        2 * copied / machine.bandwidth + 2 * machine.launch)
    return (m, k, n) if pays else (0, 0, 0)


def is_transposed(matrix: torch.Tensor) -> bool:
    """Whether columns, not rows, lie side by side in memory."""
    return matrix.stride(1) != 1 and matrix.stride(0) == 1


def extended(matrix: torch.Tensor, rows: int, columns: int):
    """The matrix with more rows and columns, its layout as it was."""
    if not rows and not columns:
        return matrix
    if is_transposed(matrix):
        return extended(matrix.t(), columns, rows).t()
    return F.pad(matrix, (0, columns, 0, rows))


DECOMPOSITIONS |= {
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._amp_foreach_non_finite_check_and_unscale.default: unscale,
    aten.binary_cross_entropy.default: checked(
        decomposition_table[aten.binary_cross_entropy.default],
        lambda x, target, *_: is_share(x) & is_share(target)),
    aten.mm.default: lambda a, b: addmm(None, a, b),
    aten.addmm.default: addmm,
}
