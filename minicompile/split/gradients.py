"""Which gradients there are, and how they are differentiated again.

In: a Joint, and the tangents of one backward. Out: what autograd expects
of each gradient. The idea: labels spread through the joint graph say what
a gradient is made of, so that one which no tangent reaches is None, as in
eager, and an error waits only where a second derivative is not zero.
PyTorch's AOTAutograd gives zeros, and the error in any case.
"""

from __future__ import annotations

import torch

from ..core.errors import BackendError, where_of
from ..core.graph import is_random
from .joint import Joint, Result

INPUT = -1  # the label of what changes with an input that is differentiated

DOUBLE_BACKWARD = (
    "minicompile compiled only the first derivative of what begins at {}; "
    "for the second, use compile(..., options="
    '{{"double_backward": True}}), which differentiates the uncompiled '
    "function")


def made_of(joint: Joint) -> list[frozenset[int]]:
    """For each gradient the outputs whose tangents it is made of, and
    INPUT if it is no linear function of these."""
    labels = {joint.primals[k]: frozenset([INPUT]) for k in joint.gradients}
    labels.update((node, frozenset([k])) for k, node in zip(
        joint.tangents, joint.tangent_nodes))
    none: frozenset[int] = frozenset()
    for node in joint.graph.graph.nodes:
        labels.setdefault(node, none.union(
            *(labels[source] for source in node.all_input_nodes)))
    return [labels.get(gradient, none) for gradient in joint.grads]


def as_eager(joint: Joint, found, parts: list[frozenset[int]],
             tangents) -> list:
    """The gradients, None for those whose tangents are all None, and with
    an error where they would be differentiated: under create_graph."""
    given = {k for k, tangent in enumerate(tangents) if tangent is not None}
    if not given.issuperset(joint.tangents):
        found = [gradient if made <= {INPUT} or made & given else None
                 for gradient, made in zip(found, parts)]
    if not torch.is_grad_enabled():
        return found
    found = list(found)
    varying = {INPUT} | {k for k in given if tangents[k].requires_grad}
    places = [k for k, gradient in enumerate(found)
              if gradient is not None and parts[k] & varying]
    lines = map(where_of, joint.source.graph.nodes)
    error = torch._C._functions.DelayedError(DOUBLE_BACKWARD.format(
        next(filter(None, lines), "a graph")), len(places))
    marked = error(*[found[k].detach().requires_grad_() for k in places])
    for k, gradient in zip(places, marked if len(places) > 1 else [marked]):
        found[k] = gradient
    return found


def require_twice(joint: Joint) -> None:
    """Raise unless the traced graph, run once more, is the same graph."""
    reasons = {
        "the graph writes to an input": joint.mutations,
        "the graph draws random numbers": any(
            map(is_random, joint.graph.graph.nodes)),
        "the graph is in an autocast region": joint.autocast,
        "a result is a view of what is none": any(
            Result("output", k) not in joint.results
            for k in joint.tangents)}
    for reason in filter(reasons.get, reasons):
        raise BackendError(f"double_backward: {reason}")


def again(joint: Joint, inputs: dict[int, object], tangents) -> list:
    """The gradients, computed by eager so that autograd records them."""
    results = joint.source(*(inputs[k] for k in sorted(inputs)))
    ends = [(results[joint.results.index(Result("output", k))], tangents[k])
            for k in joint.tangents if tangents[k] is not None]
    return list(torch.autograd.grad(
        [end for end, _ in ends], [inputs[k] for k in joint.gradients],
        [tangent for _, tangent in ends], create_graph=True,
        allow_unused=True))
