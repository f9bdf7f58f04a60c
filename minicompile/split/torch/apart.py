"""Backwards of results that have nothing in common, one after the other.

Out: the saved values of a graph that runs its backward for one of several
results, and later for another. In eager these are graphs of their own: the
backward of one leaves what the other saved, as in a GAN, whose two networks
meet in a detached value. Without this file the second backward is an error
that asks for retain_graph, as it is in torch.compile.
"""

from ...core.graph import is_number
from ..joint import Joint, Pair, below
from ..runtime import FACTS, SAVED, Facts

CHANGED = ("one of the variables needed for gradient computation has been "
           "modified by an inplace operation since its first backward")


def saved(facts: Facts, ctx, given: tuple) -> list:
    """The saved values; if some results have no step in common, they
    outlive the first backward."""
    if not facts.groups:
        return list(ctx.saved_tensors)
    now = {group for k, group in facts.groups.items()
           if given[k] is not None}
    needed = {group for group in now if group[1]}
    left = getattr(ctx, "left", {*facts.groups.values()})
    try:
        values = list(ctx.saved_tensors)
    except RuntimeError:  # they were freed, or one was written to
        if not needed <= left or not hasattr(ctx, "left"):
            raise
        values = [each for each, _ in ctx.rest]
        if any(values[k]._version != ctx.rest[k][1]
               for _, reads in needed for k in reads):
            raise RuntimeError(CHANGED) from None
    ctx.left = left - now
    ctx.rest = [(each, each._version) if ctx.left else (None, 0)
                for each in values]
    return values


def groups(joint: Joint, pair: Pair) -> dict[int, tuple[int, tuple]]:
    """For each result its group, by number, and which of the saved tensors
    the backward of the group reads. Two results are of one group if some
    step of both their backwards reads any. Empty if there is one group."""
    group = {k: {k} for k in joint.tangents}
    if len(group) < 2:
        return {}
    numbers = {node.name for node in joint.primals if is_number(node)}
    tensors = [name for name in pair.saved if name not in numbers]
    place = {name: {k} for k, name in enumerate(tensors)}
    held, reads = {}, {k: set() for k in group}
    for node in joint.early:
        held[node] = place.get(node.name) or below(node, held)
    for node in joint.late:
        if read := below(node, held):
            one = set().union(*map(group.get, joint.needs[node]))
            group.update(dict.fromkeys(one, one))
            reads[min(one)] |= read
    return {k: (min(one), tuple(set().union(*map(reads.get, one))))
            for k, one in group.items() if len(one) < len(group)}


FACTS["groups"] = groups
SAVED.append(saved)
