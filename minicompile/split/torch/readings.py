"""When the two halves read each value, and which values are in memory.

In: a `Joint`. Out: a row of the table of readings. Time advances at every
kernel that no loop can express; between two of these lies one loop, as far
as can be told before chapter 4 has made any. Without this file a value
counts as written once more if it is saved, and recomputing it reads
nothing. PyTorch's partitioner asks whether all readers could be fused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container

from torch import fx

from ...core import cost
from ...core.graph import is_number, nbytes, value
from ..joint import Joint
from ..recompute_costs import READINGS, on_the_way


def of_both_halves(joint: Joint) -> tuple[set[fx.Node], dict]:
    """The values in memory, and when the halves read each value."""
    written = in_memory(joint)
    return written, readings([*joint.early, *joint.late],
                             depths(joint.late), written)


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
            if node in returned or cost.is_extern(node)
            or any(kernel or at > depth[node]
                   for at, kernel in reads[node])}


def depths(half: list[fx.Node]) -> dict[fx.Node, int]:
    """How many kernels that no loop expresses come before each node."""
    depth: dict[fx.Node, int] = {}
    for node in half:
        depth[node] = cost.is_extern(node) + max(
            (depth.get(source, 0) for source in node.all_input_nodes),
            default=0)
    return depth


def readings(nodes: list[fx.Node], depth: dict[fx.Node, int],
             written: Container[fx.Node] = ()) -> dict[fx.Node, set]:
    """The depths at which a half reads each value, and whether the value
    has to lie in memory there. `depth` has the nodes of that half.

    A reader of a view reads its base. A reader of a loop of the other half
    that is not `written` computes it, and so reads its arguments.
    """
    found: dict[fx.Node, set] = defaultdict(set)
    for node in reversed(nodes):
        if is_number(node):
            continue
        if cost.is_free(node):
            times = found[node]
        elif node in depth:
            kernel = cost.is_extern(node)
            times = {(depth[node] - kernel, kernel)}
        elif cost.kind(node) == "pointwise" and node not in written:
            times = on_the_way(found[node])
        else:
            continue
        for source in node.all_input_nodes:
            part = cost.is_free(node) and nbytes(value(node)) < nbytes(
                value(source))
            found[source] |= on_the_way(times) if part else times
    return found


READINGS.append(of_both_halves)
