"""Matrix products in shapes that a GPU's library is quick at.

In: a product's operands. Out: the product of the same, padded with zeros
where that pays. Tensor cores are fed 16 bytes at a time. Where rows are
no multiple of that, the second one begins between two such pieces, and
cuBLAS takes a kernel several times slower: a vocabulary of 50257 words
is enough. PyTorch's is torch/_inductor/fx_passes/pad_mm.py.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ...core.cost import MACHINES
from ..decompose import DECOMPOSITIONS

aten = torch.ops.aten

#: Where rows have to be aligned, and to how many bytes.
ROWS = {"cuda": 16}
#: How many times longer a product takes if they are not.
SLOWER = 4


def mm(a: torch.Tensor, b: torch.Tensor):
    """`a @ b` of aligned operands, or NotImplemented to leave it whole."""
    return addmm(None, a, b)


def addmm(bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor,
          **factors):
    """`bias + a @ b` of aligned operands, or NotImplemented."""
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
    m *= turned(a)
    k *= turned(b) or not turned(a)
    copied = sum(tensor.nbytes for tensor, needed in
                 ((a, m or k), (b, k or n)) if needed)
    if n:
        copied += sizes[0] * sizes[2] * a.dtype.itemsize
    lost = 2 * sizes[0] * sizes[1] * sizes[2] * (SLOWER - 1)
    pays = lost / machine.arithmetic[a.dtype] > (
        2 * copied / machine.bandwidth + 2 * machine.launch)
    return (m, k, n) if pays else (0, 0, 0)


def turned(matrix: torch.Tensor) -> bool:
    """Whether columns, not rows, lie side by side in memory."""
    return matrix.stride(1) != 1 and matrix.stride(0) == 1


def extended(matrix: torch.Tensor, rows: int, columns: int):
    """The matrix with more rows and columns, its layout as it was."""
    if not rows and not columns:
        return matrix
    if turned(matrix):
        return extended(matrix.t(), columns, rows).t()
    return F.pad(matrix, (0, columns, 0, rows))


DECOMPOSITIONS |= {aten.mm.default: mm, aten.addmm.default: addmm}
