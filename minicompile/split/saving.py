"""Which values to save for the backward: prices, then the cheapest cut.

In: a `Joint`. Out: the names of the values to save. The idea: everything
is priced in seconds. Saving a value costs a write now and a read later;
recomputing it costs its op, and next to nothing when a loop in the
backward can do it on the way. PyTorch prices in bytes and forbids what it
thinks dear, in torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from ..core import cost
from ..core.graph import nbytes, value
from .flow import Price, cheapest
from .joint import Joint
from .partition import backward_nodes, forward_nodes
from .simplify import must_stay

NEVER = float("inf")
FUSED = 0.02  # of a pass: arithmetic inside a loop that runs anyway


def cut(joint: Joint, *, byte_price: float = 0.0,
        dear: float = NEVER) -> set[str]:
    """The names of the values to save, so that a training step is fastest.

    `byte_price`: seconds that one saved byte is worth to the caller.
    `dear`: what recomputing a matrix product, or any op that is not a
    loop, counts in its own time; never, unless the caller says so.
    """
    early = forward_nodes(joint)
    known = set(early)
    needed = {node for late in backward_nodes(joint, known)
              if late not in known
              for node in late.all_input_nodes if node in known}
    needed |= {node for node in joint.grads if node in known}
    prices = {node: price(joint, node, byte_price, dear) for node in early}
    saved = cheapest(early, lambda node: node.users, needed, prices)
    return {node.name for node in saved}


def price(joint: Joint, node, byte_price: float, dear: float) -> Price:
    """What saving and recomputing one value cost."""
    return Price(recomputing(joint, node, dear),
                 saving(joint, node, byte_price))


def recomputing(joint: Joint, node, dear: float) -> float:
    """Seconds to compute the value once more in the backward."""
    if node.op == "get_attr" or cost.is_free(node) and (
            node.op == "call_function"):
        return 0.0
    if node.op == "placeholder" or must_stay(node):
        return NEVER
    if cost.is_pointwise(node.target):
        return FUSED * cost.one_pass(node)
    if cost.is_reduction(node.target):
        return cost.seconds(node) / 2
    return dear * cost.seconds(node)


def saving(joint: Joint, node, byte_price: float) -> float:
    """Seconds that keeping the value takes."""
    if node.op == "placeholder":
        return (2 if node in joint.written else 1) * cost.one_pass(node)
    if cost.aliases_first(node.target) or isinstance(
            value(node), (tuple, list)):
        return NEVER
    passes = 1 if materialised(joint, node) else 2
    return passes * cost.one_pass(node) + byte_price * nbytes(value(node))


def materialised(joint: Joint, node) -> bool:
    """Whether the forward writes the value to memory in any case."""
    return node in joint.outputs or not _loop(node) or any(
        user.op == "call_function" and not _loop(user)
        for user in node.users)


def _loop(node) -> bool:
    """Whether chapter 4 makes a loop of the node."""
    return cost.is_pointwise(node.target) or cost.is_reduction(node.target)
