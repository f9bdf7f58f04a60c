"""Who needs a value, and as what; and whether it is better in memory.

In: an FX graph with fake values. Out: Uses, read off the graph once,
backwards. Storing a value costs memory traffic, computing it again for
each reader costs arithmetic and the traffic of all that it reads.
Inductor decides this in torch/_inductor/ir.py:StorageBox.
"""

from __future__ import annotations

import operator

from torch import fx

from ..core.graph import has_effect, is_number, tensors_of
from ..core.graph import value as fake_of
from ..core.loops import EXPENSIVE, Load, Op, walk
from .lowerings import VIEWS, lowering_rule
from .sizes import sizes_of
from .values import Value, elements, touched

#: A value longer than this is stored, however it is used.
MOST_OPERATIONS, MOST_LOADS = 64, 24

#: Operations that cost more than moving an element.
STORED = EXPENSIVE | {"sqrt", "rsqrt", "div_trunc"}


class Uses:
    """What lowering asks about a node's users, which come after it.

    `rules`: the rule that can lower each node, or None. `readers`: who
    computes with a node that somebody needs, looking through views.
    `stored`: it is needed in memory. `returned`: it is a result, or the
    result is a view of it. `wide`: its reader has many more elements, so
    that computing it there repeats the work.
    """

    def __init__(self, graph: fx.Graph):
        self.rules = {node: lowering_rule(node) for node in graph.nodes}
        self.readers: dict[fx.Node, set[fx.Node]] = {}
        self.stored: set[fx.Node] = set()
        self.returned: set[fx.Node] = set()
        self.wide: set[fx.Node] = set()
        self.counts = {node: elements(sizes_of(tensor.shape))
                       for node in graph.nodes
                       for tensor in tensors_of(fake_of(node))[:1]}
        for node in reversed(graph.nodes):
            users = [user for user in node.users
                     if user in self.readers and not is_number(user)]
            if users or node.op != "call_function" or has_effect(node):
                self.readers[node] = set()
                for user in users:
                    self.look(node, user)

    def is_view(self, node: fx.Node) -> bool:
        """Whether it is another view of its input, or one of several."""
        return node.target is operator.getitem or self.rules[node] in VIEWS

    def look(self, node: fx.Node, user: fx.Node) -> None:
        """Note what one user does with a node."""
        mine, theirs = (self.counts.get(n, 0) for n in (node, user))
        if self.is_view(user):
            self.readers[node] |= self.readers[user]
            if user in self.returned:
                self.returned.add(node)
            if user in self.returned or (
                    user in self.stored and theirs >= mine):
                self.stored.add(node)
        else:
            self.readers[node].add(user)
            if user.op == "output":
                self.returned.add(node)
            if self.rules[user] is None:
                self.stored.add(node)
        if theirs > 4 * mine or user in self.wide and self.is_view(user):
            self.wide.add(node)

    def is_expensive(self, node: fx.Node, value: Value) -> bool:
        """Whether to store a value rather than compute it again.

        Storing moves all that it reads, and itself once and once more per
        reader; not storing moves all that it reads once per reader.
        """
        nodes = walk(value.element)
        work = [part.name for part in nodes if isinstance(part, Op)]
        loads = [part for part in nodes if isinstance(part, Load)]
        if len(work) > MOST_OPERATIONS or len(loads) > MOST_LOADS:
            return True
        readers = len(self.readers[node])
        if readers < 2 and node not in self.wide:
            return False
        own = self.counts[node] * value.dtype.itemsize
        read = sum(min(own, touched(load.index) * load.dtype.itemsize)
                   for load in loads)
        return not STORED.isdisjoint(work) or (
            read + own * (1 + readers) < read * readers)
