"""The memory at the peak of a step, simulated, and plans that bound it.

In: the schedules of the two halves, which say after which step each
buffer is free. Out: bytes, step by step; or the names of the values to
save so that the peak fits a bound. The idea: nothing has to run, because
a program allocates and frees exactly as its schedule says. Memory that an
operator allocates inside of itself is not seen. PyTorch estimates a peak
in torch/_inductor/memory.py:estimate_peak_memory, and bounds none.
"""

from __future__ import annotations

from collections.abc import (Callable, Collection, Iterable, Iterator,
                             Mapping)
from dataclasses import dataclass
from functools import cache
from math import ceil

from ...core.errors import OptionError
from ...core.graph import nbytes, value
from ...core.index import guess
from ...core.schedule import Extern, Schedule, made_by
from ..choose import BOUNDS, plan_within

#: The ceilings that are tried, as shares of what the fastest plan saves.
CEILINGS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07,
            0.05, 0.03, 0.02, 0.01, 0.0)

#: Gives both halves' schedules by the values that are saved, and the names
#: of the inputs that only the backward holds.
Fused = Callable[[frozenset[str]],
                 tuple[Mapping[str, Schedule], Collection[str]]]


def live_bytes(schedule: Schedule, donated: Collection[str] = ()
               ) -> list[int]:
    """The bytes alive during each step, besides inputs of the caller's.

    `donated` names the inputs without another holder: they count, until
    their last use. Symbolic sizes are those that were traced.
    """
    sizes = {name: guess(buffer.elements) * buffer.dtype.itemsize
             for name, buffer in schedule.buffers.items()}
    mine = {name for name in donated if name in sizes}
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


def peak(schedules: Mapping[str, Schedule],
         donated: Collection[str]) -> int:
    """The most bytes alive in a forward and its backward; `donated` names
    the backward's inputs that the forward saved, and the tangents."""
    return max([0, *live_bytes(schedules["forward"])] + (
        live_bytes(schedules["backward"], donated)
        if "backward" in schedules else []))


@dataclass(frozen=True)
class Scored:
    """A plan by what it costs: bytes at the peak, inputs included, and
    the seconds of saving and recomputing."""

    saved: frozenset[str]
    peak: int
    seconds: float


def scored(joint, *, cut: Callable, fused: Fused) -> Iterator[Scored]:
    """Plans from the fastest on, each with the peak of its schedules."""
    given = sum(nbytes(value(node)) for node in joint.primals)
    seconds = {frozenset(): 0.0}
    if joint.training:
        fastest = cut(joint)
        priced = cache(fastest.costs.cut)
        plans = [plan_within(fastest, int(share * fastest.bytes), priced)
                 for share in CEILINGS]
        seconds = {plan.saved: plan.seconds for plan in plans}
    for saved in sorted(seconds, key=seconds.get):
        yield Scored(saved, given + peak(*fused(saved)), seconds[saved])


def front(plans: Iterable[Scored]) -> list[Scored]:
    """The plans that no other beats in both, the fastest first."""
    best: list[Scored] = []
    for plan in sorted(plans, key=lambda each: (each.seconds, each.peak)):
        if not best or plan.peak < best[-1].peak:
            best.append(plan)
    return best


def bound_peak(joint, bound: int | float | str, *, cut: Callable,
               fused: Fused) -> frozenset[str]:
    """The values to save so that the peak is at most `bound`.

    `bound` is in bytes, a share of the fastest plan's peak, or "min". An
    OptionError names the least that can be had, if that is more.
    """
    tried: list[Scored] = []
    for plan in scored(joint, cut=cut, fused=fused):
        tried.append(plan)
        limit = 0 if bound == "min" else bound * (
            tried[0].peak if isinstance(bound, float) else 1)
        if plan.peak <= limit:
            return plan.saved
    least = front(tried)[-1]
    if bound == "min":
        return least.saved
    size = ceil(least.peak / 2 ** 20 * 100) / 100
    raise OptionError(
        f"memory={bound!r} cannot be met: the least that this graph can do "
        f"with, its inputs included, is {size:.2f}MiB, "
        f"{least.peak / tried[0].peak:.2f} of the fastest plan's peak")


BOUNDS.append(bound_peak)
