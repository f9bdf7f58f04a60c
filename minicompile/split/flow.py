"""The cheapest set of values to save, as a minimum cut.

In: what each node may cost: to recompute it in the backward, to save it in
the forward. Out: the nodes to save. The idea: every value the backward
needs is either saved or recomputed from values that are; each such plan is
a cut of a network, its cost the sum of the cut edges, so the best plan is
a minimum cut, found by Dinic's maximum flow. PyTorch solves the same with
networkx, in bytes, in torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

NEVER = float("inf")
INFINITE = 1 << 100
UNIT = 1e-15  # seconds in one unit of flow


@dataclass(frozen=True)
class Price:
    """What a value costs, in seconds; NEVER forbids it."""

    recompute: float
    save: float


class Network:
    """Directed edges with integer capacities, and a maximum flow."""

    def __init__(self, vertices: int):
        self.edges: list[list[int]] = [[] for _ in range(vertices)]
        self.ends: list[int] = []  # of edge e; e ^ 1 is its reverse
        self.room: list[int] = []  # capacity left on edge e

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge, and its reverse with no room yet."""
        for one, other, room in ((tail, head, capacity), (head, tail, 0)):
            self.edges[one].append(len(self.ends))
            self.ends.append(other)
            self.room.append(room)

    def levels(self, source: int) -> list[int]:
        """Each vertex's distance from `source`; -1 out of reach."""
        level = [-1] * len(self.edges)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            for edge in self.edges[vertex]:
                end = self.ends[edge]
                if self.room[edge] and level[end] < 0:
                    level[end] = level[vertex] + 1
                    waiting.append(end)
        return level

    def saturate(self, source: int, sink: int) -> list[int]:
        """Push all the flow there is; the final levels show the cut."""
        while (level := self.levels(source))[sink] >= 0:
            self.block(source, sink, level)
        return level

    def block(self, source: int, sink: int, level: list[int]) -> None:
        """Fill paths that go one level further with every edge."""
        unused = [list(edges) for edges in self.edges]
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                vertex = self.push(path, source)
            elif unused[vertex]:
                edge = unused[vertex][-1]
                end = self.ends[edge]
                if self.room[edge] and level[end] == level[vertex] + 1:
                    path.append(edge)
                    vertex = end
                else:
                    unused[vertex].pop()
            elif path:
                vertex = self.ends[path.pop() ^ 1]
                unused[vertex].pop()
            else:
                return

    def push(self, path: list[int], source: int) -> int:
        """Fill `path` and cut it back to where it is full."""
        least = min(self.room[edge] for edge in path)
        full = 0
        for position in reversed(range(len(path))):
            self.room[path[position]] -= least
            self.room[path[position] ^ 1] += least
            if not self.room[path[position]]:
                full = position
        end = self.ends[path[full] ^ 1]
        del path[full:]
        return end


def cheapest(values: Iterable, users: Callable[[object], Iterable],
             needed: set, prices: Mapping[object, Price]) -> set:
    """The values to save so that all of `needed` can be had, cheapest.

    `users(v)` are computed from v, `needed` is what the backward reads;
    other things than values may be among both. Each value is two
    vertices, "in" and "out":

        source -> in   recompute        in -> out    save
        out -> a user's in   infinite   out -> sink  infinite if needed
    """
    vertex = {v: 2 + 2 * k for k, v in enumerate(values)}
    network = Network(2 + 2 * len(vertex))
    for v, at in vertex.items():
        network.edge(0, at, _flow(prices[v].recompute))
        network.edge(at, at + 1, _flow(prices[v].save))
        if v in needed:
            network.edge(at + 1, 1, INFINITE)
        for user in users(v):
            if user in vertex:
                network.edge(at + 1, vertex[user], INFINITE)
    level = network.saturate(0, 1)
    return {v for v, at in vertex.items()
            if level[at] >= 0 and level[at + 1] < 0}


def _flow(seconds: float) -> int:
    """Seconds as an integer capacity."""
    return INFINITE if seconds == NEVER else round(seconds / UNIT)
