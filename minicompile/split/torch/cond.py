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

from ...core.branches import Branches, cond
from ...core.errors import BackendError
from ...core.graph import bare, is_random, tensors_of, value
from ..functional_inputs import current
from ..joint import Joint
from ..partition import halves
from ..record import HIGHER_ORDER, record
from ..recorder import Recorder, as_it_is


def conditional(recorder: Recorder, pred, true, false, operands) -> tuple:
    """The results of a cond, its calls recorded.

    Both branches are given all symbolic sizes, their backwards need them.
    """
    operands = (pred, *operands, *(
        value(node) for node in recorder.sizes.values()
        if node.op == "placeholder"))
    given = list(map(current, operands))
    with paused():
        fakes = [fake.detach().requires_grad_(each.requires_grad)
                 if isinstance(each, torch.Tensor) else each
                 for fake, each in zip(given[1:], operands[1:])]
        joints = [checked(record(graph, fakes, whole=True))
                  for graph in (true, false)]
    joint, _ = joints
    ahead, back = map(choice, zip(*(
        halves(each, each.primals, each.outputs) for each in joints)))

    class Choice(torch.autograd.Function):
        """The call of the forwards; its backward calls the backwards."""

        @staticmethod
        def forward(ctx, *operands):
            ctx.save_for_backward(*tensors_of(operands))
            return perform(recorder, ahead, joint.outputs, given)

        @staticmethod
        def backward(ctx, *tangents):
            list(ctx.saved_tensors)  # raises if one was written to
            with as_it_is():
                fitted = [recorder.restride(
                    current(tangents[k]), value(node).stride()) for k, node
                    in zip(joint.tangents, joint.tangent_nodes)]
            found = dict(zip(joint.gradients, perform(
                recorder, back, [joint.primals[k] for k in joint.gradients],
                given + fitted)))
            return None, *map(found.get, range(len(given) - 1))

    if torch.is_grad_enabled() and joint.gradients:
        return Choice.apply(*operands)
    return perform(recorder, ahead, joint.outputs, given)


def perform(recorder: Recorder, branches: Branches, like: list[fx.Node],
            given: list) -> tuple:
    """The results of a call, recorded; they look like those of nodes."""
    node = recorder.node("call_function", branches,
                         tuple(recorder.argument(given)))
    made = tuple(map(value, like))
    recorder.bind(node, made)
    return tuple(map(torch._to_functional_tensor, made))


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


def choice(graphs: tuple[fx.GraphModule, ...]) -> Branches:
    """The choice between two graphs, run operator by operator."""
    runs = tuple(lambda given, run=bare(graph): run(*given)
                 for graph in graphs)
    return Branches(graphs, runs)


HIGHER_ORDER |= dict.fromkeys((cond, torch.ops.higher_order.cond),
                              conditional)
