"""A choice between two graphs, made when the program runs.

In: a predicate and two graphs of the same inputs and outputs. Out: the
outputs of the one that was chosen. `cond` is what a trace records for
torch.cond; `Branches` is what chapter 3 makes of it. Eager's torch.cond
compiles its branches with Dynamo; this just runs one. PyTorch's is
torch/_higher_order_ops/cond.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor


def cond(pred, true: Callable, false: Callable, operands) -> tuple:
    """The result of `true(*operands)` or of `false(*operands)`.

    Of a fake predicate nothing is known: the results are alike. Every
    floating result carries a gradient if an operand does, and every such
    operand gets one, as in torch.cond.
    """
    branch = true if isinstance(pred, FakeTensor) or pred else false
    made = tuple(branch(*operands))
    if not torch.is_grad_enabled() or not any(map(wanted, operands)):
        return made
    return Reaching.apply(len(made), *made, *operands)


def wanted(operand: object) -> bool:
    """Whether an operand, a tensor or a size, gets a gradient."""
    return isinstance(operand, torch.Tensor) and operand.requires_grad


class Reaching(torch.autograd.Function):
    """The results, which reach all operands: with zeros, if need be."""

    @staticmethod
    def forward(ctx, count, *given):
        ctx.operands = given[count:]
        return tuple(each.detach() for each in given[:count])

    @staticmethod
    def backward(ctx, *tangents):
        return None, *tangents, *(
            torch.zeros_like(each) if wanted(each) else None
            for each in ctx.operands)


def chosen(true: Callable, false: Callable, pred, *given) -> tuple:
    """The call of a cond: one of two functions runs."""
    return tuple((true if pred else false)(list(given)))


@dataclass(frozen=True, eq=False, repr=False)
class Branches:
    """An operator on functional graphs, what runs them, and its call."""

    graphs: tuple[fx.GraphModule, ...]
    runs: tuple[Callable[[list], tuple], ...]
    __name__: str = "cond"
    call: Callable = chosen
    __module__ = "minicompile"

    def __call__(self, *given):
        return self.call(*self.runs, *given)

    def __repr__(self) -> str:
        return self.__name__

    def compiled(self, compile: Callable) -> Branches:
        """The same operator on what `compile` makes of the graphs."""
        return replace(self, runs=tuple(map(compile, self.graphs)))
