"""Rules: a number is made of those before it, along one dimension.

A scan is a loop that reduces a row, and stores what it has so far at each
element. So it computes its operand, as a sum would, and what reads it
element by element joins its kernel. A few long rows keep few of a GPU's
processors busy: where they lie one after the other, and on a CPU, PyTorch's
operator runs. Inductor's is `Scan` in torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ..lowerings import RULES, LoweringContext, Value, elements, points

#: The types of the devices whose kernels scan; how many rows are worth it,
#: unless each has so few elements.
DEVICES, ROWS, FEW = {"cuda"}, 8, 4096


def scan(kind: str) -> Callable[..., Value | None]:
    """The rule of an operator that reduces a row up to each element."""
    def rule(context: LoweringContext, a: Value, axis: int,
             dtype: torch.dtype | None = None) -> Value | None:
        if not a.shape or a.device.type not in DEVICES:
            return None
        value, axis = a.to(context.dtype), axis % len(a.shape)
        if a.shape[axis] == 1:
            return value
        length = elements(a.shape[axis:])
        if axis == len(a.shape) - 1 and length > FEW and (
                elements(a.shape) < ROWS * length):
            return None
        made = context.lowering.fill(
            context.node, value, a.shape, (axis,), kind)
        steps = context.lowering.steps
        loop, (place,) = steps[-1], points(steps[-1].reduced)
        steps[-1] = replace(
            loop, index=loop.index + place * loop.buffer.stride[axis])
        return made
    return rule


RULES |= {kind: scan(kind) for kind in ("cumsum", "cumprod")}
