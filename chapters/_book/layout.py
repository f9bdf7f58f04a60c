"""Where the boxes of a layered picture go: a small Sugiyama layout.

In: which node reads which, and the size of each box. Out: a place for each
box, the bends of each edge, and the size of the whole. Four steps: layers
by longest path, long edges cut into short ones, crossings lessened by
barycentres, then boxes pulled towards their neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

GAP, LAYER_GAP, MARGIN = 16.0, 24.0, 6.0


class Place(NamedTuple):
    """A box: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


def layered(reads: dict[str, list[str]],
            sizes: dict[str, tuple[float, float]], across: bool):
    """Places by name, bends by edge, width, height."""
    breadth = {n: size[1] if across else size[0]
               for n, size in sizes.items()}
    depth = {n: size[0] if across else size[1] for n, size in sizes.items()}
    rank = _ranks(reads)
    rows, links, chains = _rows(reads, rank)
    breadth.update({dummy: 8.0 for chain in chains.values()
                    for dummy in chain})
    neighbours: dict = {name: [] for row in rows for name in row}
    for a, b in links:  # two bends of one edge want to stand in line
        pull = 6 if isinstance(a, tuple) and isinstance(b, tuple) else 1
        neighbours[a] += [b] * pull
        neighbours[b] += [a] * pull
    _untangle(rows, neighbours)
    centre = _straighten(rows, neighbours, breadth)
    start, at = [], MARGIN
    for row in rows:
        start.append(at)
        at += max(depth.get(n, 0.0) for n in row) + LAYER_GAP
    low = min(centre[n] - breadth[n] / 2 for n in centre) - MARGIN
    high = max(centre[n] + breadth[n] / 2 for n in centre) + MARGIN

    def put(name: str) -> Place:
        side, along = centre[name] - breadth[name] / 2 - low, start[rank[name]]
        x, y = (along, side) if across else (side, along)
        return Place(x, y, *sizes[name])

    def bend(dummy: tuple) -> tuple[float, float]:
        row = dummy[2]
        thick = max(depth.get(n, 0.0) for n in rows[row])
        side, along = centre[dummy] - low, start[row] + thick / 2
        return (along, side) if across else (side, along)

    bends = {edge: [bend(d) for d in chain]
             for edge, chain in chains.items()}
    extent, length = high - low, at - LAYER_GAP + MARGIN
    width, height = (length, extent) if across else (extent, length)
    return {n: put(n) for n in sizes}, bends, width, height


def _ranks(reads: dict) -> dict[str, int]:
    """The layer of each node: below all it reads, inputs near their use."""
    rank: dict[str, int] = {}
    for name in _sorted(reads):
        rank[name] = 1 + max((rank[i] for i in reads[name]), default=-1)
    for name in reads:
        users = [rank[b] for b in reads if name in reads[b]]
        if not reads[name] and users:
            rank[name] = min(users) - 1
    return rank


def _sorted(reads: dict) -> list[str]:
    """The nodes, each after all it reads."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for other in reads[name]:
                visit(other)
            order.append(name)

    for name in reads:
        visit(name)
    return order


def _rows(reads: dict, rank: dict):
    """Rows of nodes and bends, their links, the bends of each edge."""
    rows: list[list] = [[] for _ in range(max(rank.values()) + 1)]
    for name in reads:
        rows[rank[name]].append(name)
    links, chains = [], {}
    for b in reads:
        for a in reads[b]:
            chain = [(a, b, row) for row in range(rank[a] + 1, rank[b])]
            chains[a, b] = chain
            for dummy in chain:
                rows[dummy[2]].append(dummy)
            path = [a, *chain, b]
            links += zip(path, path[1:])
    return rows, links, chains


def _untangle(rows: list[list], neighbours: dict) -> None:
    """Sort each row by the mean place of its neighbours, a few times."""
    for sweep in range(8):
        place = {n: i / len(row) for row in rows for i, n in enumerate(row)}
        for row in rows if sweep % 2 else reversed(rows):
            mean = {n: (sum(place[m] for m in neighbours[n])
                        / max(1, len(neighbours[n]))) for n in row}
            row.sort(key=mean.__getitem__)
            place.update({n: i / len(row) for i, n in enumerate(row)})


def _straighten(rows: list[list], neighbours: dict,
                breadth: dict) -> dict:
    """Centres along each row: near the neighbours', never overlapping."""
    centre = {}
    for row in rows:
        at = -sum(breadth[n] + GAP for n in row) / 2
        for name in row:
            centre[name] = at + breadth[name] / 2
            at += breadth[name] + GAP
    for sweep in range(24):
        for row in rows if sweep % 2 else reversed(rows):
            wish = [(sum(centre[m] for m in neighbours[n])
                     / len(neighbours[n])) if neighbours[n] else centre[n]
                    for n in row]
            wide = [breadth[n] + GAP for n in row]
            for name, at in zip(row, _apart(wish, wide)):
                centre[name] = at
    return centre


def _apart(wish: list[float], wide: list[float]) -> list[float]:
    """Centres as wished, pushed apart where boxes would touch."""
    blocks: list[list] = []  # [sum of wished offsets, members, first index]
    offset = [sum(wide[:i]) + wide[i] / 2 for i in range(len(wide))]
    for i, want in enumerate(wish):
        blocks.append([want - offset[i], 1, i])
        while len(blocks) > 1 and (blocks[-2][0] / blocks[-2][1]
                                   > blocks[-1][0] / blocks[-1][1]):
            total, members, _ = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += members
    centres = []
    for total, members, first in blocks:
        centres += [total / members + offset[i]
                    for i in range(first, first + members)]
    return centres
