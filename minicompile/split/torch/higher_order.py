"""A loop and a flexible attention in the joint graph: one call each.

In: PyTorch's operator, its graphs and operands, while the graph around
them is recorded. Out: functional results. A loop's graphs are recorded
apart, and compiled as those of a cond are; an attention with a score is
called as it is. Neither has a backward here: a graph that needs one runs
as traced. PyTorch's are torch/_higher_order_ops/while_loop.py and
flex_attention.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ...core.branches import Branches
from ...core.errors import BackendError
from ...core.graph import bare, value
from ...core.sizes import SYMBOLIC
from ..functional_inputs import current
from ..partition import halves
from ..record import HIGHER_ORDER, record
from ..recorder import Recorder
from .cond import checked, paused


@dataclass(frozen=True, eq=False, repr=False)
class WhileLoop(Branches):
    """Two functional graphs: whether to go on, and what is carried on."""

    carried: int = 0

    def __call__(self, *given):
        goes_on, body = self.runs
        now, rest = given[:self.carried], given[self.carried:]
        while goes_on([*now, *rest])[0]:
            now = body([*now, *rest])
        return tuple(each.clone() if each is old else each
                     for each, old in zip(now, given))

    def __repr__(self) -> str:
        return "while_loop"


def loop(recorder: Recorder, test, body, carried, captured) -> tuple:
    """The results of a while_loop, its call recorded."""
    operands = (*carried, *captured, *(
        value(node) for node in recorder.sizes.values()
        if node.op == "placeholder"))
    without_gradient(operands)
    given = [*map(current, operands)]
    with paused():
        joints = [checked(record(graph, given)) for graph in (test, body)]
    graphs = tuple(halves(each, each.primals, each.outputs)[0]
                   for each in joints)
    runs = tuple(lambda given, run=bare(graph): run(*given)
                 for graph in graphs)
    made = tuple(map(value, joints[1].outputs))
    return recorded(recorder, WhileLoop(graphs, runs, carried=len(carried)),
                  given, made)


@dataclass(frozen=True, eq=False, repr=False)
class FlexAttention(Branches):
    """A call of flex_attention, all of it but tensors and sizes held."""

    leaves: list = ()
    spec: TreeSpec = None

    def __call__(self, *given):
        rest = iter(given)
        args = tree_unflatten([next(rest) if each is HOLE else each
                               for each in self.leaves], self.spec)
        return torch.ops.higher_order.flex_attention(*args)

    def __repr__(self) -> str:
        return "flex_attention"


HOLE = object()


def attention(recorder: Recorder, *args) -> tuple:
    """The results of a flex_attention, its call recorded as it is."""
    leaves, spec = tree_flatten(args)
    given = [*filter(is_operand, leaves)]
    without_gradient(given)
    given = [*map(current, given)]
    whole = FlexAttention((), (), spec=spec, leaves=[
        HOLE if is_operand(each) else each for each in leaves])
    with paused(), recorder.fake_mode:
        made = whole(*given)
    return recorded(recorder, whole, given, made)


def is_operand(value) -> bool:
    """Whether a value is known only when the graph runs."""
    return isinstance(value, (torch.Tensor, *SYMBOLIC))


def recorded(recorder: Recorder, target: Branches, given: list,
           made: tuple) -> tuple:
    """Functional results of a call, recorded; they look like `made`."""
    recorder.bind(recorder.node("call_function", target, tuple(
        recorder.argument(given))), made)
    return tuple(map(torch._to_functional_tensor, made))


def without_gradient(given) -> None:
    """Refuse what has to be differentiated."""
    if torch.is_grad_enabled() and any(
            each.requires_grad for each in given
            if isinstance(each, torch.Tensor)):
        raise BackendError("a loop or a flexible attention has no backward")


HIGHER_ORDER[torch.ops.higher_order.while_loop] = loop
HIGHER_ORDER[torch.ops.higher_order.flex_attention] = attention
