"""Gradients that can be differentiated, with `double_backward`.

In: a `Joint`, and the `Function` that runs its compiled halves. Out: a
`Function` that keeps the inputs as well. Where autograd records the
backward, it leaves the compiled one aside: eager runs the traced graph
once more and differentiates it. Without this file a graph for which this
is asked runs as traced. PyTorch has no such option; its compiled backward
raises in torch/_functorch/_aot_autograd/runtime_wrappers.py.
"""

from __future__ import annotations

import torch

from ...core.errors import BackendError
from ...core.graph import is_random, value
from ..joint import Joint
from ..runtime import TWICE


def differentiable(joint: Joint, function: type) -> type:
    """`function` with a backward that autograd can record."""
    require_twice(joint)
    tensors = [k for k, node in enumerate(joint.primals)
               if isinstance(value(node), torch.Tensor)]
    count = len(joint.primals)
    ends = {each.of - count: at for at, each in enumerate(joint.results)
            if each.of is not None and (
                each.differentiable or not each.steps)}

    class Twice(function):
        """One compiled graph, of which eager is the second derivative."""

        @staticmethod
        def forward(ctx, *inputs):
            results = function.forward(ctx, *inputs)
            ctx.save_for_backward(*ctx.to_save,
                                  *[inputs[k] for k in tensors])
            ctx.others = [None if k in tensors else each
                          for k, each in enumerate(inputs)]
            return results

        @staticmethod
        def backward(ctx, *given):
            if not torch.is_grad_enabled():  # no create_graph=True
                return function.backward(ctx, *given)
            inputs = list(ctx.others)
            kept = ctx.saved_tensors[-len(tensors):]
            for k, tensor in zip(tensors, kept):
                inputs[k] = tensor
            results = [made._base if result.steps else made
                       for made, result in zip(
                           joint.source(*inputs), joint.results)]
            made = [(results[ends[k]], given[k]) for k in joint.tangents
                    if given[k] is not None]
            wanted = [k for k in joint.gradients if inputs[k].requires_grad]
            found = dict(zip(wanted, torch.autograd.grad(
                [result for result, _ in made], [inputs[k] for k in wanted],
                [tangent for _, tangent in made], create_graph=True,
                allow_unused=True)))
            return tuple(map(found.get, range(len(inputs))))

    return Twice


def require_twice(joint: Joint) -> None:
    """Raise unless the traced graph, run once more, is the same graph."""
    reasons = {
        "the graph writes to an input": joint.mutated,
        "the graph draws random numbers": any(
            map(is_random, joint.graph.graph.nodes)),
        "the graph is in an autocast region": joint.autocast}
    for reason in filter(reasons.get, reasons):
        raise BackendError(f"double_backward: {reason}")


TWICE.append(differentiable)
