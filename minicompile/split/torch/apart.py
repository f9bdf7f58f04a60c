"""Results that have nothing in common have a backward each.

In: a `Joint`. Out: its forward outputs, in groups. In eager two results
without a common step are graphs of their own: the backward of one leaves
what the other saved. Without this file all are one group, whose second
backward is an error that asks for retain_graph, as it is in torch.compile.
"""

from __future__ import annotations

from torch import fx

from ..joint import Joint, ancestors
from ..runtime import GROUPS


def apart(joint: Joint) -> list[list[int]]:
    """The forward outputs in groups that have no step in common; those
    without a gradient are in the first."""
    groups: list[tuple[set[fx.Node], list[int]]] = []
    for k in joint.tangents:
        steps = {node for node in ancestors([joint.outputs[k]], set())
                 if node.op == "call_function"}
        met = [each for each in groups if not steps.isdisjoint(each[0])]
        groups = [each for each in groups if each not in met]
        groups.append((steps.union(*(one for one, _ in met)),
                       sum((other for _, other in met), [k])))
    first, *others = [members for _, members in groups]
    first += [k for k in range(joint.returned) if k not in joint.tangents]
    return [first, *others]


GROUPS.append(apart)
