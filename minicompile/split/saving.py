"""Which values to save for the backward: prices, then the cheapest cut.

In: a `Joint`. Out: a `Plan`, the values to save and what that costs. The
idea: everything is priced in seconds. Saving a value costs a write now
and a read later; recomputing it costs its op, and next to nothing when a
loop in the backward can do it on the way. PyTorch prices in bytes and
forbids what it thinks dear, in torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass

from torch import fx

from ..core import cost
from ..core.graph import has_effect, is_number, nbytes, value
from .flow import NEVER, Price, cheapest
from .joint import Joint, root
from .partition import ancestors, backward_nodes

FUSED = 0.02  # of a pass: arithmetic inside a loop that runs anyway
TIE = 1e-3  # of a pass: of two equal plans, the one that saves less


@dataclass(frozen=True)
class Plan:
    """What is saved, and what that costs by the table in core/cost.py."""

    saved: frozenset[str]  # names in the joint graph
    seconds: float  # of saving and recomputing
    sizes: dict[str, int]  # bytes of each saved value that is no input
    dropping: Callable[[str], float]  # seconds more without this one

    @property
    def bytes(self) -> int:
        """Bytes kept for the backward."""
        return sum(self.sizes.values())


def cut(joint: Joint, *, byte_price: float = 0.0,
        dear: float = NEVER) -> Plan:
    """The plan that makes a training step fastest.

    `byte_price`: seconds that one saved byte is worth to the caller.
    `dear`: what recomputing a matrix product, or an op that no table
    knows, counts in its own time; by default it is never done.
    """
    needed = {source for node in joint.late
              for source in node.all_input_nodes}
    needed |= set(filter(None, joint.grads))
    inside = checkpointed(joint)
    prices = price_all(joint, inside)
    saved = cheapest(prices, lambda node: node.users, needed, {
        node: Price(0.0, NEVER) if node in inside else
        Price(dear_price(node, price.recompute, dear),
              price.save + byte_price * size(joint, node))
        for node, price in prices.items()})
    return plan(joint, saved, prices)


def checkpointed(joint: Joint) -> set[fx.Node]:
    """The values inside the user's checkpoints: never to be saved.

    What the forward reads after a checkpoint is its result, and has a
    price like any other value. What only the backward computes from the
    inside is inside. A random draw is kept: it could not be repeated.
    """
    returned = [n for n in joint.outputs if isinstance(n, fx.Node)]
    forward, inside = {*ancestors(returned, set())}, set()
    for node in joint.early:
        region = node.meta.get("recompute")
        if has_effect(node) or node in returned:
            continue
        if node not in forward:
            hidden = not inside.isdisjoint(node.all_input_nodes)
        else:
            hidden = region is not None and all(
                user.meta.get("recompute") == region
                for user in node.users if user in forward)
        if hidden:
            inside.add(node)
    return inside


def plan(joint: Joint, saved: set[fx.Node],
         prices: dict[fx.Node, Price]) -> Plan:
    """What saving exactly these costs."""
    def seconds(kept: set[fx.Node]) -> float:
        return sum(prices[node].save if node in kept
                   or node.op == "placeholder" else prices[node].recompute
                   for node in backward_nodes(joint, kept)
                   if node in prices)

    named = {node.name: node for node in prices if node in saved}
    sizes = {name: size(joint, node) for name, node in named.items()}
    total = seconds(saved)
    return Plan(frozenset(named), total,
                {name: bytes for name, bytes in sizes.items() if bytes},
                lambda name: seconds(saved - {named[name]}) - total)


def size(joint: Joint, node: fx.Node) -> int:
    """Bytes that saving the node keeps; an input is there in any case."""
    if node.op == "placeholder" and node not in joint.written:
        return 0
    return nbytes(value(node))


def price_all(joint: Joint, again: Container[fx.Node] = ()
              ) -> dict[fx.Node, Price]:
    """The price of each forward value; numbers cost nothing.

    A user's operator runs `again` only if the user says so, or its cost.
    """
    written = in_memory(joint)
    reads = readings([*joint.early, *joint.late], depths(joint.late),
                     written)
    return {node: Price(
                NEVER if cost.is_opaque(node) and node not in again
                else recomputing(node, reads),
                saving(joint, node, node in written, reads[node]))
            for node in joint.early if not is_number(node)}


def in_memory(joint: Joint) -> set[fx.Node]:
    """The values that the forward writes to memory, saved or not.

    A value stays in a loop's registers if every reader can be in that
    loop. It cannot be when it is no loop, or waits for another kernel:
    then it has more kernels before it than the value itself.
    """
    depth = depths(joint.early)
    reads = readings(joint.early, depth)
    returned = set(joint.outputs)
    return {node for node in joint.early
            if node in returned or cost.is_kernel_of_its_own(node)
            or any(kernel or at > depth[node]
                   for at, kernel in reads[node])}


def depths(half: list[fx.Node]) -> dict[fx.Node, int]:
    """How many kernels that no loop expresses come before each node."""
    depth: dict[fx.Node, int] = {}
    for node in half:
        depth[node] = cost.is_kernel_of_its_own(node) + max(
            (depth.get(source, 0) for source in node.all_input_nodes),
            default=0)
    return depth


def readings(nodes: list[fx.Node], depth: dict[fx.Node, int],
             written: Container[fx.Node] = ()) -> dict[fx.Node, set]:
    """When the half whose depths these are reads each value: at which
    depth, and whether it has to lie in memory for it.

    Who reads a view reads its base, and who reads a loop of the other
    half that is not `written` computes it, and reads its arguments.
    """
    found: dict[fx.Node, set] = defaultdict(set)
    for node in reversed(nodes):
        if is_number(node):
            continue
        if cost.is_free(node):
            times = found[node]
        elif node in depth:
            kernel = cost.is_kernel_of_its_own(node)
            times = {(depth[node] - kernel, kernel)}
        elif cost.is_pointwise(node.target) and node not in written:
            times = on_the_way(found[node])
        else:
            continue
        for source in node.all_input_nodes:
            part = cost.is_free(node) and nbytes(value(node)) < nbytes(
                value(source))
            found[source] |= on_the_way(times) if part else times
    return found


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
    if cost.is_free(node):
        return 0.0
    if cost.is_reduction(node.target):
        return cost.seconds(node) / 2
    if not cost.is_pointwise(node.target):
        return cost.seconds(node)
    own, times = cost.one_pass(node), on_the_way(reads[node])
    stored = any(kernel for _, kernel in reads[node])
    return (FUSED + stored) * own + sum(
        min(own, cost.one_pass(source))
        for source in map(root, node.all_input_nodes)
        if reads[source] and not times <= on_the_way(reads[source]))


def dear_price(node: fx.Node, seconds: float, dear: float) -> float:
    """`seconds`, times `dear` if the node is neither loop nor copy."""
    cheap = cost.is_free(node) or cost.is_loop(node) or (
        node.target in cost.COPYING)
    return seconds if cheap else NEVER if dear == NEVER else seconds * dear


def saving(joint: Joint, node: fx.Node, written: bool, times: set) -> float:
    """Seconds that keeping the value takes.

    It is written, unless it is in any case, and read, unless nothing but
    a kernel does that reads it from memory in any case.
    """
    if node.op == "placeholder":
        return (2 if node in joint.written else 1) * cost.one_pass(node)
    if root(node) is not node or isinstance(value(node), (tuple, list)):
        return NEVER
    read = not times or any(not kernel for _, kernel in times)
    return (TIE + (not written) + read) * cost.one_pass(node)
