"""Who needs a value, and as what: read off the graph once, backwards."""

from __future__ import annotations

import operator

from torch import fx

from ..core.graph import has_effect, is_number
from ..core.graph import value as fake_of
from .rules import has_loops, is_view, rule_of, tensors_of
from .sizes import sizes_of
from .values import elements
from .views import GATHERING


class Uses:
    """What lowering asks about a node's users, which come after it.

    `live`: somebody needs it. `readers`: who computes with it, looking
    through views. `stored`: it is needed in memory. `returned`: it is a
    result, or the result is a view of it. `wide`: read by something with
    more elements, so that computing it there repeats the work. `loops`:
    a rule can lower it; `views`: to another view of its input.
    """

    def __init__(self, graph: fx.Graph):
        self.live: set[fx.Node] = set()
        self.readers: dict[fx.Node, set[fx.Node]] = {}
        self.stored: set[fx.Node] = set()
        self.returned: set[fx.Node] = set()
        self.wide: set[fx.Node] = set()
        self.loops = {node for node in graph.nodes if has_loops(node)}
        self.views = {node for node in graph.nodes if is_view(node)}
        self.counts = {node: count(node) for node in graph.nodes}
        for node in reversed(graph.nodes):
            users = [user for user in node.users
                     if user in self.live and not is_number(user)]
            if users or node.op != "call_function" or has_effect(node):
                self.live.add(node)
                self.readers[node] = set()
                for user in users:
                    self.look(node, user)

    def look(self, node: fx.Node, user: fx.Node) -> None:
        """Note what one user does with a node."""
        larger = self.counts[user] > self.counts[node]
        if user not in self.views:
            self.readers[node].add(user)
            if user.op == "output":
                self.returned.add(node)
            if user not in self.loops:
                self.stored.add(node)
            elif larger and (rule_of(user, GATHERING) is None
                             or self.counts[user] > 4 * self.counts[node]):
                self.wide.add(node)
            return
        self.readers[node] |= self.readers[user]
        if larger or user in self.wide:
            self.wide.add(node)
        if user in self.returned:
            self.returned.add(node)
        if user in self.returned or user in self.stored and (
                self.counts[user] >= self.counts[node]):
            self.stored.add(node)

    def parts(self, node: fx.Node) -> set[int]:
        """Which of the node's results somebody reads; 0 for a single."""
        return {user.args[1] if user.target is operator.getitem else 0
                for user in node.users if user in self.live} | (
            set() if isinstance(fake_of(node), (tuple, list)) else {0})


def count(node: fx.Node) -> int:
    """How many elements a node's result has, the first if several."""
    tensors = tensors_of(fake_of(node))
    return elements(sizes_of(tensors[0].shape)) if tensors else 0
