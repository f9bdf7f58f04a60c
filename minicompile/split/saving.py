"""Which values to save for the backward: prices, then the cheapest cut.

In: a `Joint`. Out: a `Plan`, the values to save and what that costs. The
idea: everything is priced in seconds. Saving a value costs a write now
and a read later; recomputing it costs its op, and next to nothing when a
loop in the backward can do it on the way. PyTorch prices in bytes and
forbids what it thinks dear, in torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import fx

from ..core import cost
from ..core.graph import is_number, nbytes, value
from .flow import NEVER, Price, cheapest
from .joint import Joint
from .partition import ancestors, backward_nodes
from .simplify import must_stay

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
        dear: float = NEVER,
        written: Callable[[Joint], set] | None = None) -> Plan:
    """The plan that makes a training step fastest.

    `byte_price`: seconds that one saved byte is worth to the caller.
    `dear`: what recomputing a matrix product, or an op that no table
    knows, counts in its own time; by default it is never done.
    `written`: the values that fusion writes to memory in any case.
    """
    needed = {source for node in joint.late
              for source in node.all_input_nodes}
    needed |= set(filter(None, joint.grads))
    prices = price_all(joint, (written or written_anyway)(joint))
    inside = checkpointed(joint)
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
        if must_stay(node) or node in returned:
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
    named = {node.name: node for node in prices if node in saved}
    again = {node for node in backward_nodes(joint, saved)
             if node in prices and node not in saved}

    def dropping(name: str) -> float:
        more = [node for node in ancestors(
                    [named[name]], (saved | again) - {named[name]})
                if node not in again and (
                    node is named[name] or node not in saved)]
        return paid(more) - prices[named[name]].save

    def paid(recomputed) -> float:
        return sum(prices[node].save if node.op == "placeholder"
                   else prices[node].recompute for node in recomputed)

    sizes = {name: size(joint, node) for name, node in named.items()}
    return Plan(frozenset(named), paid(again) + sum(
        prices[node].save for node in saved),
        {name: bytes for name, bytes in sizes.items() if bytes}, dropping)


def size(joint: Joint, node: fx.Node) -> int:
    """Bytes that saving the node keeps; an input is there in any case."""
    if node.op == "placeholder" and node not in joint.written:
        return 0
    return nbytes(value(node))


def written_anyway(joint: Joint) -> set[fx.Node]:
    """The values that the forward writes to memory, saved or not.

    A value stays in a loop's registers if every reader can be in that
    loop. It cannot be when it is no loop, or waits for another kernel:
    then it has more kernels before it than the value itself.
    """
    depth: dict[fx.Node, int] = {}
    for node in joint.early:
        depth[node] = cost.is_kernel_of_its_own(node) + max(
            (depth[source] for source in node.all_input_nodes), default=0)
    returned = set(joint.outputs)
    return {node for node in joint.early if node in returned
            or cost.is_kernel_of_its_own(node)
            or any(depth.get(user, 0) > depth[node] for user in node.users)}


def price_all(joint: Joint, written: set) -> dict[fx.Node, Price]:
    """The price of each forward value; numbers cost nothing."""
    stored = read_by(joint.late, cost.is_kernel_of_its_own)
    looped = read_by(joint.late, cost.is_loop)
    prices = {}
    for node in joint.early:
        if is_number(node):
            continue
        write = 0 if node in written else 1
        read = 0 if node in stored and node not in looped else 1
        prices[node] = Price(recomputing(node, node in stored),
                             saving(joint, node, write + read))
    return prices


def read_by(late: list[fx.Node], kind: Callable) -> set[fx.Node]:
    """The forward values, views followed back, that such nodes read."""
    return {base for node in late if kind(node)
            for source in node.all_input_nodes
            for base in with_bases(source)}


def with_bases(node: fx.Node) -> list[fx.Node]:
    """The node, and what it is a view of."""
    chain = [node]
    while cost.is_free(chain[-1]) and chain[-1].all_input_nodes:
        chain.append(chain[-1].all_input_nodes[0])
    return chain


def recomputing(node: fx.Node, stored: bool) -> float:
    """Seconds to compute the value once more in the backward.

    `stored`: some op there reads it from memory.
    """
    if node.op == "placeholder" or must_stay(node):
        return NEVER
    if cost.is_free(node):
        return 0.0
    if cost.is_pointwise(node.target):
        return (FUSED + stored) * cost.one_pass(node)
    if cost.is_reduction(node.target):
        return cost.seconds(node) / 2
    return cost.seconds(node)


def dear_price(node: fx.Node, seconds: float, dear: float) -> float:
    """`seconds`, times `dear` if the node is neither loop nor copy."""
    cheap = cost.is_free(node) or cost.is_loop(node) or (
        node.target in cost.COPYING)
    return seconds if cheap else NEVER if dear == NEVER else seconds * dear


def saving(joint: Joint, node: fx.Node, passes: int) -> float:
    """Seconds that keeping the value takes, for passes over its memory."""
    if node.op == "placeholder":
        return (2 if node in joint.written else 1) * cost.one_pass(node)
    if cost.aliases_first(node.target) or isinstance(
            value(node), (tuple, list)):
        return NEVER
    return (passes + TIE) * cost.one_pass(node)
