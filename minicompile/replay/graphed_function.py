"""A graphed function: a forward, its backward, and recordings of both.

In: the two as boxed calls. Out: two boxed calls that replay where that is
safe and run the program otherwise, and count why. A recording of the
forward is busy as long as somebody holds what it lent. Until then another
one is taken, so two forwards before two backwards need no rule for users.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from ..core import log
from .cuda import Cuda, Run
from .recording import Inputs, Outputs, bind, share

#: How many recordings of one forward may be busy at the same time, how
#: many of one program are kept, and for how many tuples of sizes the
#: addresses of the last call are.
AT_ONCE, KEPT, SEEN = 4, 64, 1024
#: A program may be recorded as often as recordings are kept, and once more
#: each time it has been called so often: making one costs milliseconds.
CALLS = 64


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded call, ready to be replayed."""

    inputs: Inputs
    replay: Callable[[], None]
    outputs: Outputs
    lends: frozenset[int]  # the addresses of what it lends
    pool: object  # the memory it works in
    bytes: int  # by which that memory has grown

    def run(self, inputs: list) -> tuple:
        """What the program would give for these inputs."""
        self.inputs.copy(inputs)
        self.replay()
        self.inputs.write_back(inputs)
        results = self.outputs.deliver(inputs)
        inputs.clear()
        return results


class Capturer:
    """Makes the recordings of one program; learns which inputs stay.

    An input that lies where it lay in the call before is bound. One that
    was bound in vain is copied from then on, unless it is `static`. Each
    tuple of sizes has a first call, and recordings, of its own.
    """

    def __init__(self, run: Run, visible: int | None,
                 static: Iterable[int] = (), written: Iterable[int] = ()):
        self.run, self.visible = run, visible
        self.written = frozenset(written)
        self.static = frozenset(static)
        self.moving: set[int] = set()
        self.last: dict[tuple, list[int]] = {}  # by sizes
        self.calls = self.made = 0
        self.failed = ""  # why the last attempt did

    def record(self, device: Cuda, inputs: list,
               lender: Recording | None = None) -> Recording | str:
        """A new recording, or why there is none; what `lender` lends
        stays where it is."""
        most = KEPT + self.calls // CALLS
        if self.made >= most:
            return self.failed or "recorded too often for so few calls"
        self.made += 1
        try:
            made = self.capture(device, inputs, lender)
        except Exception as error:  # out of memory, or never to be recorded
            self.made = most
            self.failed = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {self.failed}")
            return self.failed
        self.failed = ""
        return made

    def capture(self, device: Cuda, inputs: list,
                lender: Recording | None) -> Recording:
        """A new recording."""
        lent = lender.lends if lender else frozenset()
        pool = lender.pool if lender else device.pool()
        now, before = addresses(inputs), self.last[numbers(inputs)]
        bound = {k for k, address in enumerate(now)
                 if k in self.static or address in lent
                 or k not in self.moving and address == before[k]}
        held = device.bytes()
        with torch.inference_mode(False), torch.no_grad():
            ways, read = bind(inputs, bound, self.written)
            replay, outputs = device.record(self.run, list(read), pool)
        visible = len(outputs) if self.visible is None else self.visible
        lends = frozenset(addresses(outputs[visible:])) - {0}
        return Recording(ways, replay, share(outputs, visible, read),
                         lends, pool, device.bytes() - held)

    def too_early(self, sizes: tuple) -> str:
        """Why nothing can be recorded for these sizes yet; else ""."""
        if sizes in self.last:
            return ""
        return "first call of its sizes" if self.last else "first call"

    def ran(self, inputs: list) -> None:
        """Remember where the inputs of a call lay."""
        sizes = numbers(inputs)
        self.last.pop(sizes, None)
        self.last[sizes] = addresses(inputs)
        if len(self.last) > SEEN:
            del self.last[next(iter(self.last))]

    def moved(self, inputs: list, strangers: list[int]) -> None:
        """Have these inputs copied in recordings made from now on."""
        self.moving |= {k for k in strangers if isinstance(
            inputs[k], torch.Tensor)} - self.static


def numbers(values: Iterable) -> tuple:
    """Those of the values that are no tensors, such as sizes."""
    return tuple([value for value in values
                  if not isinstance(value, torch.Tensor)])


def addresses(values: Iterable) -> list[int]:
    """Where each tensor's first element lies; 0 for what is no tensor."""
    return [value.data_ptr() if isinstance(value, torch.Tensor) else 0
            for value in values]


class GraphedFunction:
    """One compiled graph's forward and backward, replayed when safe.

    The first `visible` outputs of the forward are the user's, the others
    go to the backward. `static`: the inputs of the forward that stay
    where they are, such as parameters; it writes to those in `written`.
    `blocked` says why nothing can be recorded, if something does. `stats`
    counts what became of calls. Both collections of recordings begin with
    the one that was not used for the longest time.
    """

    def __init__(self, forward: Run, backward: Run | None,
                 device: Cuda, *, visible: int | None = None,
                 static: Iterable[int] = (), written: Iterable[int] = (),
                 blocked: str | None = None):
        self.ahead = Capturer(forward, visible, static, written)
        self.back = Capturer(backward, None) if backward else None
        self.device = device
        self.blocked = blocked
        self.lock = threading.Lock()
        self.stats: Counter[str] = Counter()
        self.forwards: list[Recording] = []
        self.backwards: dict[Recording | tuple, Recording] = {}

    def forward(self, inputs: list) -> tuple:
        """The forward's outputs for these inputs."""
        return self._call(self.ahead, inputs, self._forward)

    def backward(self, inputs: list) -> tuple:
        """The gradients for these saved values and tangents."""
        return self._call(self.back, inputs, self._backward)

    def _call(self, capturer: Capturer, inputs: list,
              find: Callable) -> tuple:
        """What the program gives; by replay, if `find` finds one."""
        if self.blocked:
            self.stats[self.blocked] += 1
            return capturer.run(inputs)
        with self.lock:
            capturer.calls += 1
            made = capturer.made
            found = self.device.refusal() or find(inputs)
            if isinstance(found, Recording):
                self.stats["recorded"] += capturer.made - made
                self.stats["replayed"] += 1
                self.device.order()
                return found.run(inputs)
            self.stats[found] += 1
            capturer.ran(inputs)
        return capturer.run(inputs)

    def _forward(self, inputs: list) -> Recording | str:
        """A free recording for these inputs, or why there is none."""
        busy, strangers = 0, []
        for recording in reversed(self.forwards):
            strange = recording.inputs.strangers(inputs)
            if not strange and recording.outputs.free():
                if recording is not self.forwards[-1]:
                    self.forwards.remove(recording)
                    self.forwards.append(recording)
                return recording
            busy += not strange
            strangers += strange
        if why := self.ahead.too_early(numbers(inputs)):
            return why
        if busy >= AT_ONCE:
            return "every recording is held by a pending backward"
        if not busy:
            self.ahead.moved(inputs, strangers)
            self._drop(lambda recording: any(
                k in self.ahead.moving for k, _ in recording.inputs.bound))
        made = self.ahead.record(self.device, inputs)
        if isinstance(made, Recording):
            self.forwards.append(made)
            self._drop(lambda recording: recording is not made
                       and not self._fit())
        return made

    def _backward(self, inputs: list) -> Recording | str:
        """The recording that goes with the forward of these values."""
        sizes = numbers(inputs)
        if why := self.back.too_early(sizes):
            return why
        here = set(addresses(inputs))
        lender = next((r for r in self.forwards if r.lends & here), None)
        lends = any(recording.lends for recording in self.forwards)
        if lender is None and (lends or not self.forwards):
            return "the forward was not replayed"
        if lender and not lender.lends <= here:
            return "a saved value was replaced"
        key = lender or sizes
        found = self.backwards.pop(key, None)
        strange = found.inputs.strangers(inputs) if found else []
        if not found or strange:
            self.back.moved(inputs, strange)
            found = self.back.record(self.device, inputs, lender)
        if isinstance(found, Recording):
            self.backwards[key] = found
            if len(self.backwards) > KEPT:
                del self.backwards[next(iter(self.backwards))]
        return found

    def _fit(self) -> bool:
        """Whether the recordings are few and small enough to be kept."""
        kept = [*self.forwards, *self.backwards.values()]
        return len(self.forwards) <= KEPT and sum(
            recording.bytes for recording in kept) <= self.device.most()

    def _drop(self, unwanted: Callable[[Recording], bool]) -> None:
        """Drop free recordings that are unwanted, and their backwards."""
        for recording in list(self.forwards):
            if recording.outputs.free() and unwanted(recording):
                self.forwards.remove(recording)
                self.backwards.pop(recording, None)
