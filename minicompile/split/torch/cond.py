"""torch.cond in the joint graph: one call forward, one call backward.

In: a predicate, two torch-level graphs and their operands, while the
graph around them is recorded. Out: functional results. Each branch is
recorded as a joint graph of its own. Its backward starts from operands
and tangents and recomputes what it needs, so that both branches keep the
same. PyTorch's is torch/_higher_order_ops/cond.py:CondAutogradOp.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import fx
from torch.overrides import _pop_mode_temporarily as without_watch
from torch.utils._python_dispatch import (
    _pop_mode_temporarily as without_recorder)

from ...core.branches import Branches
from ...core.errors import BackendError
from ...core.graph import bare, is_random, value
from ..inputs import current
from ..joint import Joint
from ..partition import halves
from ..record import CHOICES, record
from ..recorder import Recorder, as_it_is


def conditional(recorder: Recorder, pred, true, false, operands) -> tuple:
    """The results of a cond, its calls recorded.

    Both branches are given all symbolic sizes, their backwards need them.
    """
    operands = (*operands, *(value(node) for node in recorder.sizes.values()
                             if node.op == "placeholder"))
    with paused():
        fakes = [current(each).detach().requires_grad_(each.requires_grad)
                 if isinstance(each, torch.Tensor) else each
                 for each in operands]
        call = Call(recorder, [checked(record(graph, fakes, whole=True))
                               for graph in (true, false)])
    if not torch.is_grad_enabled() or not call.leaves:
        return call.forward(pred, *operands)
    return Differentiable.apply(call, pred, *operands)


@contextmanager
def paused():
    """Nothing run inside is written down."""
    with as_it_is(), without_watch(), without_recorder():
        yield


def checked(joint: Joint) -> Joint:
    """The joint graph of a branch, if it can be one side of a choice."""
    if not joint.plain:
        raise BackendError("a branch of cond returns no new tensor")
    if joint.training and any(map(is_random, joint.early)):
        raise BackendError("a branch of cond draws random numbers, and its "
                           "backward would draw them again")
    return joint


class Call:
    """The two calls of a cond, and fake tensors like their results."""

    def __init__(self, recorder: Recorder, joints: list[Joint]):
        self.recorder, (joint, _) = recorder, joints
        self.results = [value(node) for node in joint.outputs]
        self.leaves = joint.gradients
        self.gradients = [value(joint.primals[k]) for k in self.leaves]
        self.flows = [(k, value(node).stride()) for k, node in zip(
            joint.tangents, joint.tangent_nodes)]
        self.ahead, self.back = map(choice, zip(*(
            halves(each, each.primals, each.outputs) for each in joints)))

    def forward(self, pred, *operands) -> tuple:
        """The results, from one node."""
        return self.perform(self.ahead, self.results, list(map(
            current, (pred, *operands))))

    def backward(self, pred, operands, tangents) -> list:
        """A gradient or None for each operand, from one node."""
        given = list(map(current, (pred, *operands)))
        with as_it_is():
            given += [self.recorder.restride(current(tangents[k]), stride)
                      for k, stride in self.flows]
        found = self.perform(self.back, self.gradients, given)
        return [*map(dict(zip(self.leaves, found)).get,
                     range(len(operands)))]

    def perform(self, branches: Branches, like: list, given: list) -> tuple:
        """Write down a call whose results look like these."""
        node = self.recorder.node("call_function", branches, tuple(
            self.recorder.argument(given)))
        self.recorder.bind(node, tuple(like))
        return tuple(map(torch._to_functional_tensor, like))


class Differentiable(torch.autograd.Function):
    """The forward call, with the backward call as its backward."""

    @staticmethod
    def forward(ctx, call: Call, pred, *operands):
        ctx.call, ctx.sizes = call, [
            None if isinstance(each, torch.Tensor) else each
            for each in operands]
        ctx.save_for_backward(pred, *(
            each for each in operands if isinstance(each, torch.Tensor)))
        return call.forward(pred, *operands)

    @staticmethod
    def backward(ctx, *tangents):
        pred, *saved = ctx.saved_tensors
        operands = [saved.pop(0) if size is None else size
                    for size in ctx.sizes]
        return None, None, *ctx.call.backward(pred, operands, tangents)


def choice(graphs: tuple[fx.GraphModule, ...]) -> Branches:
    """The choice between two graphs, run operator by operator."""
    runs = tuple(lambda given, run=bare(graph): run(*given)
                 for graph in graphs)
    return Branches(graphs, runs)


CHOICES.update(dict.fromkeys(CHOICES, conditional))
