"""Chapter 7: the values to save when memory is scarce.

In: a joint graph, a budget, and the cut of chapter 3. Out: the names of
the values to save. The fastest plan is the default. Smaller ones are found
by a row of the reference, and so is one whose peak is bounded; without
them a warning says so. PyTorch's is choose_saved_values in
torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem

from ..core import cost, load, log

#: What finds the plan of least time that saves at most so many bytes, if
#: the reference has it; and the choice under a bound on the peak.
WITHIN: list[Callable] = []
BOUNDS: list[Callable[..., frozenset[str]]] = []


def choose(joint, budget: float, *, cut: Callable, bound: object = None,
           fused: Callable | None = None) -> frozenset[str]:
    """The names of the values to save, within `budget`, or with a peak
    of at most `bound`.

    `cut(joint)` gives the fastest plan of chapter 3, which has others at
    other prices; `fused` the schedules of a plan. The ceiling holds
    wherever it can be met; a lower budget never saves more.
    """
    if bound is not None:  # what reads this option has allowed it
        return BOUNDS[-1](joint, bound, cut=cut, fused=fused)
    if not joint.training:
        return frozenset()
    plan = fastest = cut(joint)
    ceiling = int(budget * fastest.bytes + 0.5)
    for within in WITHIN:
        plan = within(fastest, ceiling, fastest.costs.cut)
    kept = [node.args[0] if node.target is getitem else node
            for node in joint.early if node.name in plan.saved]
    if plan.bytes - ceiling > fastest.bytes // 100:  # not just a seed
        names = ", ".join(sorted(set(map(str, kept)) & {*plan.sizes}))
        log.warn_once(f"minicompile saves {plan.bytes} bytes, the budget "
                      f"allows {ceiling}: {names} cannot be computed again")
    for op in {node.target for node in filter(cost.is_opaque, kept)}:
        log.warn_once(
            f"minicompile saves what {op} computes: it may run again if "
            "its cost is known, by minicompile.register_cost(torch.ops."
            f"{op.overloadpacket})")
    return plan.saved


load(__name__, __path__)
