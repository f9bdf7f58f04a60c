"""Operators on graphs: cond, while_loop, flex_attention, checkpoints.

In: PyTorch's operator, its graphs and operands, while the graph around
them is recorded. Out: functional results of one call. Each graph of a
cond or a loop is recorded as a joint graph of its own. A cond becomes two
calls, one forward and one backward. A loop and an attention have no
backward here: a graph that needs one runs as traced. The operators of a
checkpoint are marked. PyTorch's are in torch/_higher_order_ops, such as
cond.py:CondAutogradOp.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import fx
from torch.overrides import _pop_mode_temporarily as without_watch
from torch.utils._python_dispatch import (
    _pop_mode_temporarily as without_recorder)
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ...core.errors import BackendError
from ...core.graph import boxed, tensors_of, value
from ...core.sizes import SYMBOLIC
from ..joint import Joint, halves
from ..record import CALLS, record
from ..recorder import RecordingMode, functional, unwrapped


@dataclass(frozen=True, eq=False, repr=False)
class Branches:
    """An operator on functional graphs, what runs them, and its call."""

    call: Callable
    graphs: tuple[fx.GraphModule, ...]
    runs: tuple[Callable[[list], tuple], ...]
    __name__: str
    __module__ = "minicompile"

    def __call__(self, *given):
        return self.call(*self.runs, *given)

    def __repr__(self) -> str:
        return self.__name__

    def compiled(self, compile: Callable) -> Branches:
        """The same operator on what `compile` makes of the graphs."""
        return replace(self, runs=tuple(map(compile, self.graphs)))


def performed(recorder: RecordingMode, name: str, call: Callable, graphs,
              given: list, made) -> tuple:
    """Functional results of a call, recorded; they look like `made`.

    A graph is run operator by operator, until it is compiled.
    """
    made, graphs = tuple(made), tuple(graphs)
    target = Branches(call, graphs, tuple(map(boxed, graphs)), name)
    recorder.bind(recorder.node("call_function", target, tuple(
        recorder.argument(given))), made)
    return tuple(map(torch._to_functional_tensor, made))


def conditional(recorder: RecordingMode, pred, true, false,
                operands) -> tuple:
    """The results of a cond, its calls recorded.

    The backward starts from operands and tangents and recomputes what it
    needs, so that both branches keep the same.
    """
    operands = (pred, *operands, *sizes(recorder))
    given = [*map(unwrapped, operands)]
    fakes = [fake.detach().requires_grad_(each.requires_grad)
             if isinstance(each, torch.Tensor) else each
             for fake, each in zip(given[1:], operands[1:])]
    joint, *_ = joints = [side_of(graph, fakes, True)
                          for graph in (true, false)]
    ahead, back = zip(*map(both, joints))
    results = [*map(value, joint.outputs)]

    class Choice(torch.autograd.Function):
        """The call of the forwards; its backward calls the backwards."""

        @staticmethod
        def forward(ctx, *operands):
            ctx.save_for_backward(*tensors_of(operands))
            return performed(recorder, "cond", chosen, ahead, given,
                             results)

        @staticmethod
        def backward(ctx, *tangents):
            list(ctx.saved_tensors)  # raises if one was written to
            ctx.in_python = True
            with functional(False):
                fitted = [recorder.restride(
                    unwrapped(tangents[k]), value(node).stride())
                    for k, node in zip(joint.tangents, joint.tangent_nodes)]
            found = dict(zip(joint.gradients, performed(
                recorder, "cond", chosen, back, given + fitted,
                [value(joint.primals[k]) for k in joint.gradients])))
            ctx.in_python = False
            return None, *map(found.get, range(len(given) - 1))

    if torch.is_grad_enabled() and joint.gradients:
        return Choice.apply(*operands)
    return performed(recorder, "cond", chosen, ahead, given, results)


def both(joint: Joint) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Both halves of a branch; the backward starts from its operands."""
    return halves(joint, joint.primals, joint.outputs, joint.tangents)


def chosen(true: Callable, false: Callable, pred, *given) -> tuple:
    """The call of a cond: one of two functions runs."""
    return tuple((true if pred else false)(list(given)))


def loop(recorder: RecordingMode, test, body, carried, captured) -> tuple:
    """The results of a while_loop, its call recorded."""
    given = without_gradient((*carried, *captured, *sizes(recorder)))
    joints = [side_of(graph, given) for graph in (test, body)]
    return performed(
        recorder, "while_loop", partial(looped, len(carried)),
        [both(each)[0] for each in joints],
        given, map(value, joints[1].outputs))


def looped(carried: int, goes_on, body, *given) -> tuple:
    """The values of a loop at its end: new tensors, even without a turn."""
    now, rest = given[:carried], given[carried:]
    while goes_on([*now, *rest])[0]:
        now = body([*now, *rest])
    return tuple(each.clone() if each is old else each
                 for each, old in zip(now, given))


def flexible(recorder: RecordingMode, *args) -> tuple:
    """The results of a flex_attention, its call recorded as it is."""
    kinds = torch.Tensor, *SYMBOLIC
    given = without_gradient([each for each in tree_leaves(args)
                              if isinstance(each, kinds)])
    form = tree_map_only(kinds, lambda _: ..., args)

    def call(*given):
        rest = iter(given)
        return torch.ops.higher_order.flex_attention(*tree_map(
            lambda leaf: next(rest) if leaf is ... else leaf, form))

    with paused(), recorder.fake_mode:
        made = call(*given)
    return performed(recorder, "flex_attention", call, (), given, made)


def sizes(recorder: RecordingMode) -> list:
    """All symbolic sizes: a graph recorded apart may need each."""
    return [value(node) for node in recorder.sizes.values()
            if node.op == "placeholder"]


@contextmanager
def paused():
    """Nothing run inside is written down."""
    with functional(False), without_watch(), without_recorder():
        yield


def side_of(graph: fx.GraphModule, given: list,
            whole: bool = False) -> Joint:
    """The joint graph of a branch, if it can be one side of a choice."""
    with paused():
        joint = record(graph, given, whole=whole)
    if joint.results or joint.mutated:
        raise BackendError("a branch of cond returns no new tensor")
    return joint


def without_gradient(given) -> list:
    """The fake operands, if none has to be differentiated."""
    if torch.is_grad_enabled() and any(
            each.requires_grad for each in tensors_of([*given])):
        raise BackendError("a loop or a flexible attention has no backward")
    return [*map(unwrapped, given)]


def checkpoint(recorder: RecordingMode, function, *args, **_) -> object:
    """The results of a checkpoint that Dynamo found, as one region."""
    recorder.origin()["recompute"] = object()
    return function(*args)


CALLS |= {
    torch.ops.higher_order.cond: conditional,
    torch.ops.higher_order.while_loop: loop,
    torch.ops.higher_order.flex_attention: flexible,
    torch.ops.higher_order.tag_activation_checkpoint: checkpoint}
