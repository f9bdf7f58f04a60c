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
    chosen = true if isinstance(pred, FakeTensor) or pred else false
    if not torch.is_grad_enabled() or not any(map(wanted, operands)):
        return tuple(chosen(*operands))
    return Chosen.apply(chosen, *operands)


def wanted(operand: object) -> bool:
    """Whether an operand, a tensor or a size, gets a gradient."""
    return isinstance(operand, torch.Tensor) and operand.requires_grad


class Chosen(torch.autograd.Function):
    """One branch, whose operands all get a gradient: zeros, if need be."""

    @staticmethod
    def forward(ctx, chosen, *operands):
        with torch.enable_grad():
            ctx.inside = [
                each.detach().requires_grad_(each.requires_grad)
                if isinstance(each, torch.Tensor) else each
                for each in operands]
            ctx.made = tuple(chosen(*ctx.inside))
        return tuple(each.detach() for each in ctx.made)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *tangents):
        flows = [(made, tangent) for made, tangent in zip(
            ctx.made, tangents) if made.requires_grad]
        found = iter(torch.autograd.grad(
            [made for made, _ in flows], [*filter(wanted, ctx.inside)],
            [tangent for _, tangent in flows], retain_graph=True,
            materialize_grads=True))
        return None, *(next(found) if wanted(each) else None
                       for each in ctx.inside)


@dataclass(frozen=True, eq=False, repr=False)
class Branches:
    """Two functional graphs of the same arguments, and what runs them."""

    graphs: tuple[fx.GraphModule, fx.GraphModule]
    runs: tuple[Callable[[list], tuple], ...]
    __name__ = "cond"
    __module__ = "minicompile"

    def __call__(self, pred, *arguments):
        return tuple(self.runs[not pred](list(arguments)))

    def __repr__(self) -> str:
        return self.__name__

    def compiled(self, compile: Callable) -> Branches:
        """The same choice, between what `compile` makes of the graphs."""
        return replace(self, runs=tuple(map(compile, self.graphs)))
