"""The memory that is alive at each step of a program.

In: the schedule of a half, which says after which step each buffer is
free. Out: bytes, step by step. The idea: nothing has to run, because a
program allocates and frees exactly as its schedule says. What an operator
allocates inside of itself is not seen. PyTorch estimates the same in
torch/_inductor/memory.py:estimate_peak_memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..core.index import guess
from ..core.schedule import Extern, Schedule, made_by


def live_bytes(schedule: Schedule, donated: Collection[str] = ()
               ) -> list[int]:
    """The bytes alive during each step, besides inputs of the caller's.

    `donated` names the inputs that nobody else holds: they count, until
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
    """The most bytes alive in a forward and its backward, whose inputs
    named in `donated` are what the forward saved, and the tangents."""
    return max([0, *live_bytes(schedules["forward"])] + (
        live_bytes(schedules["backward"], donated)
        if "backward" in schedules else []))
