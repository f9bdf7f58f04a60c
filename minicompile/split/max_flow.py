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


@dataclass(slots=True, eq=False)
class Edge:
    """A directed edge: its end, the capacity left, and its reverse."""

    end: int
    room: int
    back: Edge | None = None


class Network:
    """Directed edges with integer capacities, and a maximum flow."""

    def __init__(self, vertices: int):
        self.edges: list[list[Edge]] = [[] for _ in range(vertices)]

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge, and its reverse with no room yet."""
        edge = Edge(head, capacity)
        edge.back = Edge(tail, 0, edge)
        self.edges[tail].append(edge)
        self.edges[head].append(edge.back)

    def levels(self, source: int) -> list[int]:
        """Each vertex's distance from `source`; -1 out of reach."""
        level = [-1] * len(self.edges)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            for edge in self.edges[vertex]:
                if edge.room and level[edge.end] < 0:
                    level[edge.end] = level[vertex] + 1
                    waiting.append(edge.end)
        return level

    def saturate(self, source: int, sink: int) -> list[int]:
        """Push all the flow there is; the final levels show the cut."""
        while (level := self.levels(source))[sink] >= 0:
            self.block(source, sink, level)
        return level

    def block(self, source: int, sink: int, level: list[int]) -> None:
        """Fill paths that go one level further with every edge."""
        unused = [list(edges) for edges in self.edges]
        path: list[Edge] = []
        while path or unused[source]:
            vertex = path[-1].end if path else source
            if vertex == sink:
                least = min(edge.room for edge in path)
                for edge in path:
                    edge.room -= least
                    edge.back.room += least
                full = [edge.room for edge in path].index(0)
                del path[full:]
            elif not unused[vertex]:
                unused[path.pop().back.end].pop()
            else:
                edge = unused[vertex][-1]
                if edge.room and level[edge.end] == level[vertex] + 1:
                    path.append(edge)
                else:
                    unused[vertex].pop()


def cheapest(values: Iterable, users: Callable[[object], Iterable],
             needed: set, prices: Mapping[object, Price]) -> set:
    """The values to save so that all of `needed` can be had, cheapest.

    `users(v)` are computed from v, `needed` is what the backward reads;
    other things than values may be among both. Each value is two
    vertices, "in" and "out":

        source -> in   recompute        in -> out    save
        out -> a user's in   infinite   out -> sink  infinite if needed
    """
    def flow(seconds: float) -> int:
        return INFINITE if seconds == NEVER else round(seconds / UNIT)

    vertex = {v: 2 + 2 * k for k, v in enumerate(values)}
    network = Network(2 + 2 * len(vertex))
    for v, at in vertex.items():
        network.edge(0, at, flow(prices[v].recompute))
        network.edge(at, at + 1, flow(prices[v].save))
        if v in needed:
            network.edge(at + 1, 1, INFINITE)
        for user in users(v):
            if user in vertex:
                network.edge(at + 1, vertex[user], INFINITE)
    level = network.saturate(0, 1)
    return {v for v, at in vertex.items()
            if level[at] >= 0 and level[at + 1] < 0}
