"""Fewer saved bytes than the fastest plan keeps, at the least cost.

In: a joint graph, a budget (a share of what the fastest plan saves), and
the cut of chapter 3. Out: the names of the values to save. The idea: put
a price on every saved byte, and raise it until the cut fits. That gives
the best plan for some ceilings; between two of them, a knapsack decides
which values of the larger plan to drop. PyTorch's is choose_saved_values
in torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, inf
from operator import getitem

import torch

from ..core import cost, log

STEPS = 20_000  # how finely the knapsack tells sizes apart

#: The choice under a bound on the peak, if the reference has it.
BOUNDS: list[Callable[..., frozenset[str]]] = []


def choose(joint, budget: float, *, cut: Callable) -> frozenset[str]:
    """The names of the values to save, within `budget`.

    `cut(joint)` gives the fastest plan of chapter 3, which has others at
    other prices. The ceiling holds wherever it can be met; a lower budget
    never saves more.
    """
    if not joint.training:
        return frozenset()
    fastest = cut(joint)
    ceiling = int(budget * fastest.bytes + 0.5)
    plan = plan_within(fastest, ceiling, fastest.costs.cut)
    kept = [node.args[0] if node.target is getitem else node
            for node in joint.early if node.name in plan.saved]
    if plan.bytes - ceiling > fastest.bytes // 100:  # not just a seed
        names = ", ".join(sorted(set(map(str, kept)) & {*plan.sizes}))
        log.warn_once(f"minicompile saves {plan.bytes} bytes, the budget "
                      f"allows {ceiling}: {names} cannot be computed again")
    for op in {node.target for node in filter(cost.is_opaque, kept)}:
        log.warn_once(
            f"minicompile saves what {op} computes: it may run again if "
            "its cost is known, @torch.utils.flop_counter."
            f"register_flop_formula(torch.ops.{op.overloadpacket})")
    return plan.saved


def plan_within(fastest, ceiling: int, priced: Callable):
    """The plan of least time that saves at most `ceiling` bytes.

    If there is none, the plan that saves the least. `priced(price, 1)` is
    the best plan when a byte costs `price`.
    """
    if fastest.bytes <= ceiling:
        return fastest
    over, under = bracket(fastest, ceiling, priced)
    return under if over is None else fill_between(over, under, ceiling)


def bracket(fastest, ceiling: int, priced: Callable) -> tuple:
    """The two best plans around `ceiling`: just over it, and under it.

    Each is best for some price of a byte. At the price where the two cost
    the same, a third plan is better than both, or there is none between
    them. (None, the smallest plan) if even that is over the ceiling.
    """
    over, under = fastest, priced(1.0, 1)  # a second a byte: the smallest
    if under.bytes > ceiling:
        return None, under
    while True:
        price = (under.seconds - over.seconds) / (over.bytes - under.bytes)
        between = priced(price, 1)
        if not under.bytes < between.bytes < over.bytes or total(
                between, price) >= total(over, price) * (1 - 1e-9):
            return over, under
        if between.bytes > ceiling:
            over = between
        else:
            under = between


def total(plan, price: float) -> float:
    """The cost of a plan when a byte costs `price`."""
    return plan.seconds + price * plan.bytes


def fill_between(over, under, ceiling: int):
    """The cheapest part of `over` that fits, or `under` if that is better.

    Nothing smaller than `under` is taken, so that a larger ceiling never
    saves less. Of equally cheap parts, the smallest.
    """
    names = list(over.sizes)
    unit = max(gcd(*over.sizes.values()), over.bytes // STEPS, 1)
    weights = [-(-over.sizes[name] // unit) for name in names]
    losses = [over.dropping(name) for name in names]
    kept, loss = knapsack(weights, losses, ceiling // unit)
    dropped = {name for name, kept in zip(names, kept) if not kept}
    size = over.bytes - sum(over.sizes[name] for name in dropped)
    if size < under.bytes or over.seconds + loss >= under.seconds:
        return under
    return over.without(dropped)


def knapsack(weights: list[int], losses: list[float],
         room: int) -> tuple[list[bool], float]:
    """The items to keep in `room` so that dropping the rest costs least.

    The knapsack by dynamic programming: a row for each item, a column for
    each amount of room. Of equal items the later are kept: recomputing
    what comes early costs no memory at the peak of the backward.
    """
    least = torch.zeros(room + 1, dtype=torch.float64)
    rows = []
    for weight, loss in zip(weights, losses):
        without = least + loss
        held = torch.full_like(least, inf)
        if weight <= room:
            held[weight:] = least[:room + 1 - weight]
        rows.append(held <= without)
        least = torch.minimum(held, without)
    best = float(least[room])
    at = int((least <= best * (1 + 1e-12)).nonzero()[0])
    kept = []
    for row, weight in zip(reversed(rows), reversed(weights)):
        kept.append(bool(row[at]))
        at -= weight if kept[-1] else 0
    return kept[::-1], best
