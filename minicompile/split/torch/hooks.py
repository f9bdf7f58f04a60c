"""Hooks of inputs that no loss reaches: they are given zeros.

In: an input with a hook, such as one that clips a parameter's gradient, of
which some results of a graph are not made. If a loss reads only those,
eager's autograd does not come to the input. A graph is one step of
autograd's, which goes on to all inputs, and gives a hook None. Out: zeros,
as from torch.compile; the input's gradient is zeros, too, where eager's is
None. Without this file the hook gets None.
"""

from functools import partial

import torch
from torch import fx

from ...core.graph import Boxed
from ..runtime import FACTS, STEPS, Facts


class Hooked(torch.autograd.Function):
    """The input itself; autograd makes zeros for it where None comes."""

    @staticmethod
    def forward(ctx, given: torch.Tensor) -> torch.Tensor:
        return given.view_as(given)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def with_hooks(step, facts: Facts, source: fx.GraphModule, function: type
               ) -> Boxed:
    """A call of a Function, whose inputs with hooks are `Hooked`."""
    run = step(facts, source, function)

    def call(inputs: list) -> tuple:
        for k in facts.partial:
            if inputs[k]._backward_hooks:
                inputs[k] = Hooked.apply(inputs[k])
        return run(inputs)
    return call if facts.partial else run


#: The inputs of which not every result is made.
FACTS["partial"] = lambda joint, _: [
    k for k, gradient in zip(joint.gradients, joint.grads)
    if gradient is not None and (
        len(joint.needs.get(gradient, ())) < len(joint.tangents))]
STEPS.append(partial(with_hooks, STEPS[-1]))
