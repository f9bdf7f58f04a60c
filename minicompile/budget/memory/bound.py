"""Plans that save fewer bytes, and plans with a lower peak of memory.

The first idea: put a price on every saved byte, and raise it until the cut
fits. That gives the best plan for some ceilings; between two of them, a
knapsack decides which values of the larger plan to drop. The second: to
find the peak of a step nothing has to run, because a program allocates and
frees exactly as its schedule says. Memory that an operator allocates inside
of itself is not seen. PyTorch estimates a peak in
torch/_inductor/memory.py:estimate_peak_memory, and bounds none.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import ceil, gcd, inf
from operator import getitem

import numpy

from ...core import log
from ...core.errors import OptionError
from ...core.machines import cost
from ...core.options import SHOULD_BE
from ...core.schedule import Extern, Schedule, made_by
from ...core.torch.options import bytes_in

FINENESS = 20_000  # how finely the knapsack tells sizes apart
#: The ceilings that are tried, as shares of what the fastest plan saves.
CEILINGS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07,
            0.05, 0.03, 0.02, 0.01, 0.0)
#: Where no more values are saved, each is tried without one of them.
FEW = 12
#: How much higher than the lowest guess, or than a bound, the guess of a
#: plan may be that is fused.
NEAR = 1.05

#: Gives both halves' schedules by the values that are saved.
Fused = Callable[[frozenset[str]], Mapping[str, Schedule]]


def choose(joint, budget: float, *, cut: Callable, bound: object = None,
           fused: Fused | None = None) -> frozenset[str]:
    """The names of the values to save, within `budget`, or with a peak
    of at most `bound`.

    `cut(joint)` gives the fastest plan of chapter 3, which has others at
    other prices; `fused` the schedules of a plan. The ceiling holds
    wherever it can be met; a lower budget never saves more.
    """
    if bound is not None:
        return bound_peak(joint, read(bound), cut=cut, fused=fused)
    if not joint.tangents:
        return frozenset()
    fastest = cut(joint)
    ceiling = int(budget * fastest.bytes + 0.5)
    plan = plan_within(fastest, ceiling)
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


def plan_within(fastest, ceiling: int):
    """The plan of least time that saves at most `ceiling` bytes; if there
    is none, the plan that saves the least."""
    if fastest.bytes <= ceiling:
        return fastest
    over, under = bracket(fastest, ceiling)
    return under if over is None else fill_between(over, under, ceiling)


def bracket(fastest, ceiling: int) -> tuple:
    """The two best plans around `ceiling`: just over it, and under it.

    Each is best for some price of a byte. At the price where the two cost
    the same, a third plan is better than both, or there is none between
    them. (None, the smallest plan) if even that is over the ceiling.
    """
    over, priced = fastest, fastest.costs.cut
    under = priced(1.0)  # a second a byte: the smallest
    if under.bytes > ceiling:
        return None, under
    while True:
        price = (under.seconds - over.seconds) / (over.bytes - under.bytes)
        between = priced(price)
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
    unit = max(gcd(*over.sizes.values()), over.bytes // FINENESS, 1)
    weights = [-(-over.sizes[name] // unit) for name in names]
    losses = [over.dropping(name) for name in names]
    kept, loss = knapsack(weights, losses, ceiling // unit)
    dropped = {name for name, kept in zip(names, kept) if not kept}
    size = over.bytes - sum(over.sizes[name] for name in dropped)
    if size < under.bytes or over.seconds + loss >= under.seconds:
        return under
    return over.costs.plan(over.saved - dropped)


def knapsack(weights: list[int], losses: list[float],
             room: int) -> tuple[list[bool], float]:
    """The items to keep in `room` so that dropping the rest costs least.

    The knapsack by dynamic programming: a row for each item, a column for
    each amount of room. Of equal items the later are kept: recomputing
    what comes early costs no memory at the peak of the backward.
    """
    least = numpy.zeros(room + 1)
    rows = []
    for weight, loss in zip(weights, losses):
        without = least + loss
        held = numpy.full_like(least, inf)
        if weight <= room:
            held[weight:] = least[:room + 1 - weight]
        rows.append(held <= without)
        least = numpy.minimum(held, without)
    best = float(least[room])
    at = int((least <= best * (1 + 1e-12)).argmax())
    kept = []
    for row, weight in zip(reversed(rows), reversed(weights)):
        kept.append(bool(row[at]))
        at -= weight if kept[-1] else 0
    return kept[::-1], best


def live_bytes(schedule: Schedule) -> list[int]:
    """The bytes alive during each step, besides inputs of the caller's.

    Donated inputs count until their last use. Symbolic sizes are those
    that were traced.
    """
    sizes = {name: buffer.nbytes
             for name, buffer in schedule.buffers.items()}
    mine = set(schedule.donated)
    alive = sum(map(sizes.get, mine))
    found = []
    for step, dead in zip(schedule.steps, schedule.last_use, strict=True):
        if not (isinstance(step, Extern) and step.aliases):
            new = {b.name for b in made_by(step) if not b.into}
            mine |= new
            alive += sum(map(sizes.get, new))
        found.append(alive)
        alive -= sum(sizes[name] for name in dead if name in mine)
    return found


def peak(schedules: Mapping[str, Schedule]) -> int:
    """The most bytes alive in a forward and its backward, which holds the
    values that the forward saved, and the tangents."""
    return max(0, *map(max, filter(None, map(
        live_bytes, schedules.values()))))


class Plans:
    """Plans that save less than the fastest, in order of time.

    `fused` gives the schedules of a plan. Printed, it is the front.
    """

    def __init__(self, fastest, fused: Fused):
        self.fastest = fastest
        self.highest = cache(lambda saved: peak(fused(saved)))

    def peak(self, plan) -> int:
        """The peak of a plan's schedules, inputs included."""
        return plan.costs.given + self.highest(plan.saved)

    def __iter__(self) -> Iterator:
        plans = [plan_within(self.fastest, int(share * self.fastest.bytes))
                 for share in CEILINGS]
        if len(self.fastest.sizes) <= FEW:
            plans += self.descent()
        every = {plan.saved: plan for plan in plans}.values()
        return iter(sorted(every, key=lambda plan: plan.seconds))

    def descent(self) -> Iterator:
        """Plans that save one value less; then so from the best two of
        them: the lowest, or those that lost the least time for each byte.
        """
        fastest = self.fastest

        def lowest(each) -> tuple:
            return self.peak(each), each.seconds

        def loss(each) -> float:
            gained = self.peak(fastest) - self.peak(each)
            return (each.seconds - fastest.seconds) / max(gained, 1)

        for best in lowest, loss:
            plans = [fastest]
            while plans:
                tried = {plan.saved: plan for plan in (
                    before.costs.plan(before.saved - {name})
                    for before in plans for name in before.sizes
                    if before.dropping(name) < inf)}
                yield from tried.values()
                plans = sorted(tried.values(), key=best)[:2]

    def front(self) -> list:
        """The plans that no other beats in both, the fastest first."""
        best: list = []
        for plan in sorted(self, key=lambda each: (
                each.seconds, self.peak(each))):
            if not best or self.peak(plan) < self.peak(best[-1]):
                best.append(plan)
        return best

    def __str__(self) -> str:
        return "\n".join([
            "plans to choose from: MiB at the peak, us of saving",
            *(f"{self.peak(plan) / 2 ** 20:12.2f}"
              f"{plan.seconds * 1e6:12.1f}" for plan in self.front())])


def bound_peak(joint, bound: int | float | str, *, cut: Callable,
               fused: Fused) -> frozenset[str]:
    """The values to save so that the peak is at most `bound`.

    `bound` is in bytes, a share of the fastest plan's peak, or "min". An
    OptionError names the least that can be had, if that is more. The plans
    that are likely to fit, by their guess, are fused first.
    """
    fastest = cut(joint)
    plans = Plans(fastest, fused)
    log.show("memory", plans)
    if bound == "min":
        found = [*plans]
        if len(fastest.sizes) > FEW:
            lowest = min(found, key=lambda each: each.guess)
            found = [next(plan for plan in found if plan.guess
                          <= NEAR * lowest.guess), lowest]
        return min(found, key=plans.peak).saved
    highest = plans.peak(fastest)
    limit = bound * (highest if isinstance(bound, float) else 1)
    if highest <= limit:
        return fastest.saved
    likely = NEAR * fastest.guess * limit / highest
    found = sorted(plans, key=lambda plan: plan.guess > likely)
    for plan in found:
        if plans.peak(plan) <= limit:
            return plan.saved
    least = min(map(plans.peak, found))
    size = ceil(least / 2 ** 20 * 100) / 100
    raise OptionError(
        f"memory={bound!r} cannot be met: the least that this graph can do "
        f"with, its inputs included, is {size:.2f}MiB, "
        f"{least / highest:.2f} of the fastest plan's peak")


def read(memory: object) -> int | float | str | None:
    """A bound in bytes, as a share of the peak, or "min"; else None."""
    if memory == "min":
        return memory
    if isinstance(memory, str):
        return bytes_in(memory)
    return float(memory) if type(memory) in (int, float) and (
        0 < memory <= 1) else None


SHOULD_BE["memory"] = (
    lambda memory: memory is None or read(memory) is not None,
    'a size such as "12GiB" or "800MB", a share of the peak above 0 and up '
    'to 1, or "min"')
