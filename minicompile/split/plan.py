"""The values to save for the backward, and what that costs.

In: a `Joint`. Out: a `Plan`. Here the plan is autograd's: save what the
backward reads. A file of the reference knows prices, and finds the
cheapest plan. PyTorch's plan without a min-cut is default_partition in
torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from torch import fx

from ..core.graph import is_number, nbytes, value
from ..core.options import Options
from .joint import Joint, root

NEVER = float("inf")

#: Whether an operator may run again in the backward, where its author
#: knows; by default all may but a user's of unknown cost.
RECOMPUTABLE: dict[object, bool] = {}

#: Each finds values of a joint graph that are never to be saved.
HIDDEN: list[Callable[[Joint], set[fx.Node]]] = []
#: Each names the values to save within a budget; the last one counts.
CHOOSE: list[Callable[[Joint, Options], Set[str]]] = [
    lambda joint, options: cut(joint).saved]


@dataclass(frozen=True)
class Plan:
    """The saved values, and their cost by the table in core/cost.py."""

    saved: frozenset[str]  # names in the joint graph
    sizes: dict[str, int]  # bytes of each saved value that is no input
    costs: Costs  # which has plans at other prices
    seconds: float = 0.0  # of saving and recomputing
    #: Seconds more without this one.
    dropping: Callable[[str], float] = lambda name: 0.0

    @property
    def bytes(self) -> int:
        """Bytes kept for the backward."""
        return sum(self.sizes.values())

    def without(self, dropped: set[str]) -> Plan:
        """The plan that saves all but the `dropped` values."""
        return self.costs.plan({node for node in self.costs.joint.early
                                if node.name in self.saved - dropped})


class Costs:
    """The plans of a joint graph, as long as nothing has a price."""

    def __init__(self, joint: Joint):
        self.joint = joint
        self.needed = {source for node in joint.late
                       for source in node.all_input_nodes}
        self.needed |= set(filter(None, joint.grads))

    def cut(self, byte_price: float, expensive: float) -> Plan:
        """The plan that saves the memory of all that the backward reads."""
        return self.plan(set(map(root, self.needed)))

    def plan(self, saved: set[fx.Node]) -> Plan:
        """The plan that saves exactly these."""
        sizes = {node.name: size(self.joint, node)
                 for node in self.joint.early
                 if node in saved and not is_number(node)}
        return Plan(frozenset(sizes), {
            name: bytes for name, bytes in sizes.items() if bytes}, self)


#: What makes the plans; the last is in use.
COSTS: list[type[Costs]] = [Costs]


def cut(joint: Joint, *, byte_price: float = 0.0,
        expensive: float = NEVER) -> Plan:
    """The plan that makes a training step fastest.

    `byte_price`: seconds that one saved byte is worth to the caller.
    `expensive`: what recomputing a matrix product, or an op that no table
    knows, counts in its own time; by default it is never done.
    """
    return COSTS[-1](joint).cut(byte_price, expensive)


def size(joint: Joint, node: fx.Node) -> int:
    """Bytes that saving the node keeps; 0 for an input, which is there."""
    if node.op == "placeholder" and node not in joint.written:
        return 0
    return nbytes(value(node))
