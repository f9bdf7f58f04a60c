"""Halves that learn which inputs stay, and make room for recordings.

An input that lies where it lay in the call before is bound, too. If it
moves after all, it is copied from then on, unless it is `static`. A
backward finds the recording that lent its inputs. Several recordings for
the same inputs may be busy, and a program has many: for other sizes, and
for parameters that were replaced. They may take a part of the device; the
one that was unused for the longest time makes room. Making one costs
milliseconds, so a program is not recorded much more often than it is
called. Without this file only parameters are read where they lie, what is
lent is copied, and a program has a few recordings. PyTorch's limit is
torch/_inductor/config.py:triton.cudagraph_unexpected_rerecord_limit.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from .. import (DEVICES, HALVES, Cuda, Half, Recording, memory_of,
                place)

#: How many recordings of one program are kept. It may be recorded as
#: often, and once more each time it has been called so many times.
KEPT, CALLS = 64, 64
#: How many of them may be for the same inputs.
AT_ONCE = 4
#: For how many tuples of sizes the places of the last call are known.
SEEN = 1024


class Bounded(Cuda):
    """A device whose memory is counted."""

    def bytes(self) -> int:
        """The memory that PyTorch holds on the device, for any purpose."""
        return torch.cuda.memory_reserved(self.index)

    def most(self) -> int:
        """The memory that the recordings of one function may take."""
        return torch.cuda.get_device_properties(
            self.index).total_memory // 4


@dataclass
class Adaptive(Half):
    """A half with as many recordings as its calls need and memory allows.

    Inputs that were bound in vain are in `moving`. `made` counts attempts
    to record, `failed` says why the last one did. A backward has what it
    was lent bound, too, and works in the memory of its forward.
    """

    last: dict[tuple, list] = field(default_factory=dict)  # by sizes
    moving: set[int] = field(default_factory=set)
    made: int = 0
    failed: str = ""
    most = inf

    def find(self, inputs: list) -> Recording | str:
        """A free recording, which is the last one used from now on."""
        found = super().find(inputs)
        if isinstance(found, Recording):
            self.recordings.remove(found)
            self.recordings.append(found)
        return found

    def record(self, inputs: list, bound: Collection[int]
               ) -> Recording | str:
        """A new recording, or why there is none."""
        sizes = tuple([each for each in inputs
                       if not isinstance(each, Tensor)])
        before, now = self.last.pop(sizes, None), [*map(place, inputs)]
        self.last[sizes] = now
        if len(self.last) > SEEN:
            del self.last[next(iter(self.last))]
        if before is None:
            return "first call"
        lender = None if self is self.of.forward else self.lender(inputs)
        if isinstance(lender, str):
            return lender
        strange = [each.strangers(inputs) for each in self.recordings
                   if (each.sizes, each.lender) == (sizes, lender)]
        if strange.count([]) >= AT_ONCE:
            return "every recording is held by a pending backward"
        if [] not in strange:
            self.moving.update(*strange)
            self.moving.difference_update(self.static)
        calls = 1 + self.stats.total() - self.stats["recorded"]
        allowed = KEPT + calls // CALLS
        if self.made >= allowed:
            return self.failed or "recorded too often for so few calls"
        self.make_room()
        held = self.of.device.bytes()
        lent = lender.lent if lender else ()
        found = super().record(inputs, {*bound} | {
            k for k, memory in memory_of(inputs).items() if memory in lent
            or now[k] == before[k] and k not in self.moving},
            lender and lender.pool)
        self.made, self.failed, self.blocked = self.made + 1, "", None
        if isinstance(found, str):
            self.made, self.failed = allowed, found
        else:
            found.bytes = self.of.device.bytes() - held
            found.sizes, found.lender = sizes, lender
        return found

    def lender(self, inputs: list) -> Recording | str:
        """The recording that lent a backward its inputs, or why none."""
        here = {*memory_of(inputs).values()}
        mine = reversed(self.of.forward.recordings)
        return next((each for each in mine if each.lent.keys() <= here),
                    "the forward was not replayed")

    def make_room(self) -> None:
        """Drop free recordings that read what moves, and the oldest while
        they are too many or too large; backwards with their forwards."""
        for old in list(self.recordings):
            full = len(self.recordings) >= KEPT or sum(
                each.bytes for half in self.of.halves
                for each in half.recordings) > self.of.device.most()
            if old.free() and (full or self.moving & {*old.bound}):
                for half in self.of.halves:
                    half.recordings[:] = [
                        each for each in half.recordings
                        if old not in (each, each.lender)]


DEVICES.append(Bounded)
HALVES.append(Adaptive)
