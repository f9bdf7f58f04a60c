"""Backwards of results that have nothing in common, one after the other.

Out: the saved values of a graph that runs its backward for one of several
results, and later for another. In eager these are graphs of their own: the
backward of one leaves what the other saved. Without this file the second
backward is an error that asks for retain_graph, as it is in torch.compile.
"""

from __future__ import annotations

from ..joint import Joint, Pair, ancestors
from ..runtime import FACTS, SAVED, Facts

CHANGED = ("one of the variables needed for gradient computation has been "
           "modified by an inplace operation since its first backward")


def saved(facts: Facts, ctx, given: tuple) -> list:
    """The saved values; if some results have no step in common, they
    outlive the first backward."""
    if not facts.groups:
        return list(ctx.saved_tensors)
    group = dict(facts.groups)
    now = {group[k] for k in group if given[k] is not None}
    left = getattr(ctx, "left", {*group.values()})
    try:
        values = list(ctx.saved_tensors)
    except RuntimeError:  # they were freed, or one was written to
        if not now or not now <= left or not hasattr(ctx, "left"):
            raise
        if any(each._version != version for each, version in ctx.rest):
            raise RuntimeError(CHANGED) from None
        values = [each for each, _ in ctx.rest]
    ctx.left = left - now
    ctx.rest = [(each, each._version) for each in values if ctx.left]
    return values


def groups(joint: Joint, _: Pair) -> list[tuple[int, int]]:
    """For each result, by its number, that of its group: those that have
    steps in common. None if there is only one group."""
    found: list[tuple[set, set]] = []
    for k in joint.tangents:
        results, steps = {k}, {
            node for node in ancestors([joint.outputs[k]], ())
            if node.op == "call_function"}
        for other in [*found]:
            if not steps.isdisjoint(other[1]):
                found.remove(other)
                results, steps = results | other[0], steps | other[1]
        found.append((results, steps))
    return [(k, number) for number, (results, _) in enumerate(found)
            for k in results if len(found) > 1]


FACTS["groups"] = groups
SAVED.append(saved)
