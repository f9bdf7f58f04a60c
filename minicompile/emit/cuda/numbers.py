"""Quotients and powers by a number, as eager computes them on a GPU.

Eager multiplies by the inverse of a number it divides by, and multiplies
to get a square or a cube. The kernels do so too, so that their results are
eager's, bit for bit. Eager's kernels are in PyTorch's ATen.
"""

from __future__ import annotations

import torch

from ...core.loops import Const, Expression, Load, Op
from ..target import form_of, held
from ..triton import REWRITES


def as_on_a_gpu(node: Expression) -> Expression:
    """An operation: it multiplies by an inverse, and to get a power."""
    match node:
        case Op("div", (value, Load(host=True) as by)):
            inverse = Op("reciprocal", (by,), by.dtype)
            return Op("mul", (value, inverse), node.dtype)
        case Op("div" | "pow", (value, Const(number))) if not isinstance(
                value, Const) and form_of(node)[1].is_floating_point:
            work = held(form_of(node)[1])
            if node.name == "div":
                inverse = (1 / torch.tensor(number, dtype=work)).item()
                return Op("mul", (value, Const(inverse, work)), node.dtype)
            if number in (2, 3):
                square = Op("mul", (value, value), node.dtype)
                return square if number == 2 else Op(
                    "mul", (square, value), node.dtype)
    return node


REWRITES.append(as_on_a_gpu)
