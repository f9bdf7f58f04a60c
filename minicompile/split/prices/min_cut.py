"""The cheapest values to save: prices, then a minimum cut.

In: a `Joint`. Out: plans. The idea: everything is priced in seconds.
Saving a value costs a write now and a read later; recomputing it costs its
op, and next to nothing when a loop in the backward can do it on the way.
The cheapest plan is a minimum cut, found by a maximum flow. Without
this file all that the backward reads is saved, whatever the budget.
PyTorch prices in bytes and forbids what it holds to be expensive, in
torch/_functorch/partitioners.py; `must_recompute` there is our `inside`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Set
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import NamedTuple

from torch import fx

from ...core.machines import cost
from ...core.graph import has_effect, is_number, nbytes, value
from ..joint import CHOOSE, Joint, ancestors, root

NEVER = float("inf")
ON_THE_WAY = 0.02  # of a pass: arithmetic inside a loop that runs anyway
TIE = 1e-3  # of a pass: of two equal plans, the one that saves less

#: Whether an operator may run again in the backward, where its author
#: knows; by default all may but a user's of unknown cost.
RECOMPUTABLE: dict[object, bool] = {}


class Price(NamedTuple):
    """The price of a value in seconds; NEVER forbids it."""

    recompute: float
    save: float


class Plan:
    """The saved values, by name, and their cost by core/machines/cost.py:
    the bytes of each that is no input, the seconds of all."""

    def __init__(self, costs: Prices, names: Set[str]):
        self.costs, joint = costs, costs.joint  # has plans at other prices
        self.named = {node.name: node for node in joint.early
                      if node.name in names}
        self.saved = frozenset(self.named)
        self.sizes = {name: kept for name, node in self.named.items()
                      if (kept := size(joint, node))}
        self.bytes = sum(self.sizes.values())
        saved = {*self.named.values()}
        self.backward = ancestors(joint.late, saved)  # all it needs
        self.computed = {*self.backward}
        self.there = self.computed | saved
        self.seconds = sum(map(self.price, self.computed))

    def price(self, node: fx.Node) -> float:
        """The seconds that the node takes in this plan."""
        price = self.costs.prices.get(node, Price(0.0, 0.0))
        kept = node.name in self.saved or node.op == "placeholder"
        return price.save if kept else price.recompute

    def dropping(self, name: str) -> float:
        """The seconds that the plan takes more without this value."""
        node = self.named[name]
        more = [n for n in ancestors(node.all_input_nodes, self.there)
                if n not in self.computed]
        return sum(map(self.price, more)) + (
            self.costs.prices[node].recompute - self.price(node))

    @cached_property
    def guess(self) -> int:
        """About the peak of a step: the most bytes alive, inputs included,
        if the backward recomputes a value just before its first reader."""
        joint = self.costs.joint
        held = {node for node in self.backward if node.name in self.saved
                and node.op != "placeholder"}
        back = [node for node in self.backward if node not in held]
        written = in_memory(back, joint.grads, self.costs.kinds)
        return self.costs.given + max(
            most_alive(joint.early, self.costs.written, set(),
                       [*joint.outputs, *held]),
            most_alive(back, written, held, joint.grads))


def cut(joint: Joint, byte_price: float = 0.0) -> Plan:
    """The plan that makes a training step fastest, if a saved byte is
    worth so many seconds to the caller."""
    return Prices(joint).cut(byte_price)


class Prices:
    """The price of each forward value of a joint graph; numbers are free.

    A user's operator is recomputed only where the user says so, by its
    cost, in RECOMPUTABLE or by hiding its result, as in a checkpoint. Only
    there is a copy recomputed that is marked as a snapshot.
    """

    def __init__(self, joint: Joint):
        self.joint = joint
        self.given = sum(nbytes(value(node)) for node in joint.primals)
        self.needed = {source for node in joint.late
                       for source in node.all_input_nodes}
        self.needed |= set(filter(None, joint.grads))
        self.hidden = inside(joint)
        self.kinds = {node: cost.kind(node) for node
                      in [*joint.early, *joint.late] if not is_number(node)}
        self.written = in_memory(joint.early, joint.outputs, self.kinds)
        reads = readings([*joint.early, *joint.late], self.kinds,
                         depths(joint.late, self.kinds), self.written)
        self.prices = {node: Price(
            recomputing(node, reads) if RECOMPUTABLE.get(
                node.target, node in self.hidden or not (
                    cost.is_opaque(node) or "snapshot" in node.meta))
            else NEVER,
            saving(joint, node, node in self.written, reads[node]))
            for node in joint.early if not is_number(node)}
        self.cut = cache(self.cut)  # each price is asked for several times
        self.plan = partial(Plan, self)

    def cut(self, byte_price: float) -> Plan:
        """The cheapest plan when a saved byte costs this. If it costs
        nothing, no matrix product runs again, and no op that no table
        knows."""
        prices = {}
        for node, price in self.prices.items():
            may = byte_price or self.kinds[node] not in ("counted",
                                                         "unknown")
            prices[node] = Price(0.0, NEVER) if node in self.hidden else (
                Price(price.recompute if may else NEVER,
                      price.save + byte_price * size(self.joint, node)))
        return self.plan({node.name for node in cheapest(
            prices, lambda node: node.users, self.needed)})


def inside(joint: Joint) -> set[fx.Node]:
    """The values inside the user's checkpoints.

    A value that the forward reads after a checkpoint is its result, and
    has a price like any other. A value that only the backward computes from
    the inside is inside, too. A random draw is kept: it cannot be
    repeated.
    """
    returned = [n for n in joint.outputs if isinstance(n, fx.Node)]
    forward, hidden = {*ancestors(returned, set())}, set()
    for node in joint.early:
        region = node.meta.get("recompute")
        if has_effect(node) or node in returned:
            continue
        users = [user for user in node.users if user in forward]
        if region is not None and all(
                user.meta.get("recompute") == region for user in users
                ) if node in forward else (
                    not hidden.isdisjoint(node.all_input_nodes)):
            hidden.add(node)
    return hidden


def size(joint: Joint, node: fx.Node) -> int:
    """Bytes that saving the node keeps; 0 for an input, which is there."""
    if node.op == "placeholder" and node not in joint.written:
        return 0
    return nbytes(value(node))


def on_the_way(times: set) -> set:
    """The same times, as read by a loop."""
    return {(at, False) for at, _ in times}


def recomputing(node: fx.Node, reads: dict[fx.Node, set]) -> float:
    """Seconds to compute the value once more in the backward.

    An argument that the backward reads at another time only is read once
    more for it.
    """
    if node.op == "placeholder" or has_effect(node):
        return NEVER
    if cost.kind(node) == "free":
        return 0.0
    if cost.kind(node) != "pointwise":
        shares = cost.kind(node) == "reduction"  # its pass, with others
        return cost.seconds(node) / (2 if shares else 1)
    own, times = cost.one_pass(node), on_the_way(reads[node])
    stored = any(kernel for _, kernel in reads[node])
    return (ON_THE_WAY + stored) * own + sum(
        min(own, cost.one_pass(source))
        for source in map(root, node.all_input_nodes)
        if reads[source] and not times <= on_the_way(reads[source]))


def saving(joint: Joint, node: fx.Node, written: bool, times: set) -> float:
    """Seconds that keeping the value takes.

    It is written, unless the forward stores it already. It is read, unless
    its only reader is a kernel that reads it from memory anyway.
    """
    if node.op == "placeholder":
        return (2 if node in joint.written else 1) * cost.one_pass(node)
    if cost.kind(node) == "pointwise" and all(
            map(is_number, node.all_input_nodes)):
        return NEVER  # a constant is made where it is read
    if root(node) is not node or isinstance(value(node), (tuple, list)):
        return NEVER
    read = not times or any(not kernel for _, kernel in times)
    return (TIE + (not written) + read) * cost.one_pass(node)


def in_memory(half: list[fx.Node], returned: Iterable,
              kinds: Mapping[fx.Node, str]) -> set[fx.Node]:
    """The values that a half writes to memory, saved or not.

    A value stays in a loop's registers if every reader can be in that
    loop. It cannot be when it is no loop, or waits for another kernel:
    then it has more kernels before it than the value itself.
    """
    depth, returned = depths(half, kinds), set(returned)
    reads = readings(half, kinds, depth)
    return {node for node in half
            if node in returned or kinds.get(node) in cost.EXTERN
            or any(kernel or at > depth[node]
                   for at, kernel in reads[node])}


def most_alive(half: list[fx.Node], written: set[fx.Node],
               given: set[fx.Node], returned: Iterable) -> int:
    """About the most bytes alive while a half runs in this order, and
    holds what it is `given` alone. No loop is made to find it."""
    returned, end = {root(node) for node in returned if node}, len(half)
    stored = {node for node in written | returned
              if root(node) is node and node.op == "call_function"}
    until = dict.fromkeys(returned, end)
    for at, node in reversed([*enumerate(half)]):
        if node not in until and not has_effect(node):
            continue  # nothing reads it
        last = until.setdefault(node, at)
        for source in node.all_input_nodes:
            until[source] = max(until.get(source, 0),
                                at if node in stored else last)
    change = [0] * (end + 2)
    for at, node in [*((0, node) for node in given), *enumerate(half)]:
        if node in stored or node in given:
            change[at] += nbytes(value(node))
            change[until.get(node, at) + 1] -= nbytes(value(node))
    return max(accumulate(change))


def depths(half: list[fx.Node], kinds: Mapping[fx.Node, str]
           ) -> dict[fx.Node, int]:
    """How many kernels that no loop expresses come before each node.
    `kinds` says how each node runs, besides numbers."""
    depth: dict[fx.Node, int] = {}
    for node in half:
        depth[node] = (kinds.get(node) in cost.EXTERN) + max(
            (depth.get(source, 0) for source in node.all_input_nodes),
            default=0)
    return depth


def readings(nodes: list[fx.Node], kinds: Mapping[fx.Node, str],
             depth: dict[fx.Node, int], written: Container[fx.Node] = ()
             ) -> dict[fx.Node, set]:
    """The depths at which a half reads each value, and whether the value
    has to lie in memory there. `depth` has the nodes of that half.

    A reader of a view reads its base. One of a value of the other half's
    loops that is not `written` computes it, and so reads its arguments.
    """
    found: dict[fx.Node, set] = defaultdict(set)
    for node in reversed(nodes):
        kind = kinds.get(node)
        if kind == "free":
            times = found[node]
        elif kind and node in depth:
            kernel = kind in cost.EXTERN
            times = {(depth[node] - kernel, kernel)}
        elif kind == "pointwise" and node not in written:
            times = on_the_way(found[node])
        else:
            continue
        for source in node.all_input_nodes:
            part = kind == "free" and nbytes(
                value(node)) < nbytes(value(source))
            found[source] |= on_the_way(times) if part else times
    return found


def cheapest(prices: Mapping[object, Price],
             users: Callable[[object], Iterable], needed: set) -> set:
    """The values to save so that all of `needed` can be had, cheapest.

    `users(v)` are computed from v, `needed` is what the backward reads;
    both may have more than values with prices. Each of these is two
    vertices, "in" and "out":

        source -> in   recompute        in -> out    save
        out -> a user's in   infinite   out -> sink  infinite if needed
    """
    def flow(seconds: float) -> int:
        return 1 << 100 if seconds == NEVER else round(seconds * 1e15)

    vertex = {v: 2 + 2 * k for k, v in enumerate(prices)}
    room: list[dict[int, int]] = [{} for _ in range(2 + 2 * len(vertex))]
    for v, at in vertex.items():
        room[0][at] = flow(prices[v].recompute)
        room[at][at + 1] = flow(prices[v].save)
        ends = [vertex[user] for user in users(v) if user in vertex]
        room[at + 1] |= dict.fromkeys(
            ends + [1] * (v in needed), flow(NEVER))
    side = saturate(room, 0, 1)
    return {v for v, at in vertex.items()
            if at in side and at + 1 not in side}


def saturate(room: list[dict[int, int]], source: int, sink: int
             ) -> dict[int, int]:
    """Push all the flow there is; gives what `source` still reaches.

    `room` holds how much more may flow from each vertex to each other.
    After each search, flow is pushed along all the ways that it found.
    """
    for tail, ends in enumerate(room):
        for head in ends:
            room[head].setdefault(tail, 0)
    while True:
        before = reached(room, source, sink)
        last = [at for at in before if room[at].get(sink)]
        if not last:
            return before
        for at in last:
            steps = [(at, sink)]
            while at != source:
                steps.append((before[at], at))
                at = before[at]
            least = min(room[tail][head] for tail, head in steps)
            for tail, head in steps:
                room[tail][head] -= least
                room[head][tail] += least


def reached(room: list[dict[int, int]], source: int, sink: int
            ) -> dict[int, int]:
    """The vertices that steps with room lead to, the nearest first, each
    with the one before it; those beyond the sink do not count."""
    before, waiting = {source: source}, [source]
    for at in waiting:
        for end, left in room[at].items():
            if left and end != sink and end not in before:
                before[end] = at
                waiting.append(end)
    return before


CHOOSE.append(lambda joint, options: cut(joint).saved)
