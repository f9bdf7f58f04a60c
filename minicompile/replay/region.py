"""A region: a forward, its backward, and the recordings of both.

In: the two as boxed calls. Out: two boxed calls that replay where that
is safe and run the program otherwise, counting why. A recording of the
forward is busy as long as somebody holds what it lent: until then another
one is taken. So two forwards before two backwards need no rule for users.
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

#: Recordings of one forward that may be busy at the same time, and the
#: recordings of one program that are made before it is given up.
AT_ONCE, EVER = 4, 64


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded call, ready to be replayed."""

    inputs: Inputs
    replay: Callable[[], None]
    outputs: Outputs
    lends: frozenset[int]  # the addresses of what it lends
    pool: object  # the memory it works in

    def run(self, inputs: list) -> tuple:
        """What the program would give for these inputs."""
        self.inputs.copy(inputs)
        self.replay()
        self.inputs.write_back(inputs)
        results = self.outputs.deliver(inputs)
        inputs.clear()
        return results


class Recorder:
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
        self.made = 0

    def record(self, device: Cuda, inputs: list,
               lender: Recording | None) -> Recording:
        """A new recording; what `lender` lends stays where it is."""
        self.made += 1
        lent = lender.lends if lender else frozenset()
        pool = lender.pool if lender else device.pool()
        now, before = addresses(inputs), self.last[numbers(inputs)]
        bound = {k for k, address in enumerate(now)
                 if k in self.static or address in lent
                 or k not in self.moving and address == before[k]}
        with torch.inference_mode(False), torch.no_grad():
            ways, read = bind(inputs, bound, self.written)
            replay, outputs = device.record(self.run, list(read), pool)
        visible = len(outputs) if self.visible is None else self.visible
        lends = frozenset(addresses(outputs[visible:])) - {0}
        return Recording(ways, replay, share(outputs, visible, read),
                         lends, pool)

    def too_early(self, sizes: tuple) -> str:
        """Why nothing can be recorded for these sizes yet; else ""."""
        if sizes in self.last:
            return ""
        if len(self.last) >= EVER:
            return f"called with more than {EVER} tuples of sizes"
        return "first call of its sizes" if self.last else "first call"

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


class Region:
    """One compiled graph's forward and backward, replayed when safe.

    The first `visible` outputs of the forward are the user's, the others
    go to the backward. `static`: the inputs of the forward that stay
    where they are, such as parameters; it writes to those in `written`.
    `blocked` says why nothing can be
    recorded, if something does. `stats` counts what became of calls.
    """

    def __init__(self, forward: Run, backward: Run | None,
                 device: Cuda, *, visible: int | None = None,
                 static: Iterable[int] = (), written: Iterable[int] = (),
                 blocked: str | None = None):
        self.ahead = Recorder(forward, visible, static, written)
        self.back = Recorder(backward, None) if backward else None
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

    def _call(self, recorder: Recorder, inputs: list,
              find: Callable) -> tuple:
        """What the program gives; by replay, if `find` finds one."""
        if self.blocked:
            self.stats[self.blocked] += 1
            return recorder.run(inputs)
        with self.lock:
            found = self.device.refusal() or find(inputs)
            if isinstance(found, Recording):
                self.stats["replayed"] += 1
                self.device.order()
                return found.run(inputs)
            self.stats[found] += 1
            if len(recorder.last) < EVER:
                recorder.last[numbers(inputs)] = addresses(inputs)
        return recorder.run(inputs)

    def _forward(self, inputs: list) -> Recording | str:
        """A free recording for these inputs, or why there is none."""
        busy, strangers = 0, []
        for recording in self.forwards:
            strange = recording.inputs.strangers(inputs)
            if not strange and recording.outputs.free():
                return recording
            busy += not strange
            strangers += strange
        if why := self.ahead.too_early(numbers(inputs)):
            return why
        if busy >= AT_ONCE:
            return "every recording is held by a pending backward"
        if not busy:
            self.ahead.moved(inputs, strangers)
            self._forget()
        made = self._record(self.ahead, inputs)
        if isinstance(made, Recording):
            self.forwards.append(made)
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
        found = self.backwards.get(key)
        strange = found.inputs.strangers(inputs) if found else []
        if found and not strange:
            return found
        self.back.moved(inputs, strange)
        found = self._record(self.back, inputs, lender)
        if isinstance(found, Recording):
            self.backwards[key] = found
        return found

    def _record(self, recorder: Recorder, inputs: list,
                lender: Recording | None = None) -> Recording | str:
        """A new recording, or why there will be none."""
        if recorder.made >= EVER:
            return f"recorded {EVER} times already"
        try:
            made = recorder.record(self.device, inputs, lender)
        except Exception as error:
            self.blocked = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {self.blocked}")
            return self.blocked
        self.stats["recorded"] += 1
        return made

    def _forget(self) -> None:
        """Drop free recordings that bind an input known to move."""
        for recording in list(self.forwards):
            if recording.outputs.free() and any(
                    k in self.ahead.moving
                    for k, _ in recording.inputs.bound):
                self.forwards.remove(recording)
                self.backwards.pop(recording, None)
