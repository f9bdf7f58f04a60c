"""Backwards of results that have nothing in common, one after the other.

In: `FACTS` of a graph, and the `Function` that runs its halves. Out: a
`Function` that also runs its backward for one of several results, and
later for another. In eager these are graphs of their own: the backward of
one leaves what the other saved. Without this file the second backward is
an error that asks for retain_graph, as it is in torch.compile.
"""

from __future__ import annotations

from types import SimpleNamespace

from torch import fx

from ..joint import Joint, Pair, ancestors
from ..runtime import FACTS, FUNCTIONS, Facts

CHANGED = ("one of the variables needed for gradient computation has been "
           "modified by an inplace operation since its first backward")


def apart(facts: Facts, function: type) -> type:
    """`function`; if some results have no step in common, one whose saved
    values outlive the first backward."""
    group = dict(facts.groups)
    if len({*group.values()}) < 2:
        return function

    class Apart(function):
        """One compiled graph, whose results have a backward each."""

        @staticmethod
        def forward(ctx, *inputs):
            ctx.left, ctx.rest = {*group.values()}, []
            return function.forward(ctx, *inputs)

        @staticmethod
        def backward(ctx, *given):
            now = {group[k] for k in group if given[k] is not None}
            try:
                saved = ctx.saved_tensors
            except RuntimeError:  # they were freed
                if not now or not now <= ctx.left:
                    raise
                if any(each._version != version
                       for each, version in ctx.rest):
                    raise RuntimeError(CHANGED) from None
                saved = [each for each, _ in ctx.rest]
            ctx.left -= now
            ctx.rest = [(each, each._version) for each in saved
                        if ctx.left]
            return function.backward(SimpleNamespace(
                saved_tensors=saved, numbers=ctx.numbers,
                layouts=ctx.layouts, maybe_clear_saved_tensors=(
                    ctx.maybe_clear_saved_tensors)), *given)

    return Apart


def groups(joint: Joint, _: Pair) -> list[tuple[int, int]]:
    """For each result, by its number, the first one that has a step in
    common with it."""
    first: dict[fx.Node, int] = {}
    found: dict[int, int] = {}
    for k in joint.tangents:
        steps = [node for node in ancestors([joint.outputs[k]], set())
                 if node.op == "call_function"]
        met = {found[first[node]] for node in steps if node in first} | {k}
        found[k] = min(met)
        for other, of in found.items():
            found[other] = min(met) if of in met else of
        first |= dict.fromkeys(steps, k)
    return [*found.items()]


FACTS["groups"] = groups
FUNCTIONS.append(apart)
