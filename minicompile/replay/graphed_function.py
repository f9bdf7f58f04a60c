"""A graphed function: a forward, its backward, and recordings of both.

In: the two as boxed calls. Out: two boxed calls that replay where that is
safe and run the program otherwise, and count why. A recording of the
forward is busy while a tensor of the program holds memory that it lent.
Meanwhile another one is taken, so two forwards before two backwards need
no rule for users.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from ..core import log
from ..core.graph import Boxed, holds_graphs
from ..core.loops import Buffer
from ..core.schedule import (Schedule, Step, made_by, reads_of,
                             views_in)
from .recording import Cuda, Recording, sizes_of

#: How many recordings of one forward may be busy at the same time, how
#: many of one program are kept, and for how many tuples of sizes the
#: addresses of the last call are.
AT_ONCE, KEPT, SEEN = 4, 64, 1024
#: A program may be recorded as often as recordings are kept, and once more
#: each time it has been called so often: making one costs milliseconds.
CALLS = 64
#: Fewer steps are launched one by one faster than a replay's outputs are
#: cloned.
WORTH = 4

#: Recordings that are compared with their program: at most one kind.
CHECKED: list[type[Recording]] = []
#: Why a program on more than one GPU is not recorded at all.
SEVERAL = "tensors are on several devices"


def whole(schedule: Schedule, *_: object) -> type[Recording] | str:
    """Recordings of all of a program, or why there can be none."""
    gpus = {buffer.device for buffer in schedule.buffers.values()
            if buffer.device.type == "cuda"}
    reasons = [SEVERAL] * (len(gpus) > 1) + [*filter(None, (
        refusal(step, schedule.buffers) for step in schedule.steps))]
    return reasons[0] if reasons else Recording


#: What makes the recordings of a program, or why nothing does: given its
#: schedule, how many of its results are the user's, None for all, and the
#: program, if there is one of emit's. The last row decides.
KINDS: list[Callable[..., type[Recording] | str]] = [whole]


def graphed(runs: Mapping[str, Boxed], schedules: Mapping[str, Schedule],
            check: bool = False, visible: int | None = None,
            programs: Mapping[str, object] = MappingProxyType({}),
            **settings: object) -> GraphedFunction:
    """The programs of one graph, graphed; named as its halves are."""
    check = check and bool(CHECKED)
    kinds = {name: KINDS[0 if check else -1](
        schedule, visible if name == "forward" else None,
        programs.get(name)) for name, schedule in schedules.items()}
    reasons = [kind for kind in kinds.values() if isinstance(kind, str)]
    if sum(len(schedule.steps) for schedule in schedules.values()) < WORTH:
        reasons.append(f"fewer than {WORTH} launches")
    index = next((buffer.device.index for schedule in schedules.values()
                  for buffer in schedule.buffers.values()
                  if buffer.device.type == "cuda"), None)
    return GraphedFunction(
        runs["forward"], runs.get("backward"), Cuda(index or 0),
        blocked=next(iter(reasons), None), visible=visible,
        kinds=[CHECKED[-1] if check else kind for kind in kinds.values()],
        **settings)


def refusal(step: Step, buffers: Mapping[str, Buffer]) -> str | None:
    """Why a step cannot be recorded, or None."""
    op = getattr(step, "target", None)
    if holds_graphs(op):
        return "the graph chooses a branch"
    if any(buffers[name].device.type != "cuda" for name in (
            *(made.name for made in made_by(step)), *reads_of(step))
            if name in buffers):
        return "not all tensors are on a CUDA device"
    if torch.Tag.data_dependent_output in getattr(op, "tags", ()) or (
            "index" in str(op)
            and torch.bool in [view.dtype for view in views_in(step)]):
        return f"{op} waits for the device"
    return None


@dataclass
class Half:
    """A forward or a backward, its recordings, and its inputs' addresses.

    An input that lies where it lay in the call before is bound. One that
    was bound in vain is copied from then on, unless it is `static`. Each
    tuple of sizes has a first call, and recordings, of its own.
    """

    run: Boxed
    kind: Callable[..., Recording] = Recording
    visible: int | None = None
    static: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    recordings: list[Recording] = field(default_factory=list)  # by use
    moving: set[int] = field(default_factory=set)
    last: dict[tuple, list[int]] = field(default_factory=dict)
    calls: int = 0
    made: int = 0
    failed: str = ""  # why the last attempt did


def addresses(values: Iterable) -> list[int]:
    """The address of each tensor's first element; 0 for other values."""
    return [value.data_ptr() if isinstance(value, torch.Tensor) else 0
            for value in values]


class GraphedFunction:
    """One compiled graph's forward and backward, replayed when safe.

    The first `visible` outputs of the forward are the user's, the others
    go to the backward. `static`: the inputs of the forward that stay
    where they are, such as parameters; it writes to those in `written`.
    `blocked` says why nothing can be recorded, if something does. `kinds`
    make the recordings, the forward's first. `stats` counts calls.
    """

    def __init__(self, forward: Boxed, backward: Boxed | None,
                 device: Cuda, *, visible: int | None = None,
                 static: Iterable[int] = (), written: Iterable[int] = (),
                 blocked: str | None = None,
                 kinds: Sequence[Callable] = (Recording,)):
        self.ahead = Half(forward, kinds[0], visible, frozenset(static),
                          frozenset(written))
        self.back = Half(backward or forward, kinds[-1])
        self.device, self.blocked = device, blocked
        self.lock = threading.Lock()
        self.stats: Counter[str] = Counter()

    def forward(self, inputs: list) -> tuple:
        """The forward's outputs for these inputs."""
        return self._call(self.ahead, inputs)

    def backward(self, inputs: list) -> tuple:
        """The gradients for these saved values and tangents."""
        return self._call(self.back, inputs)

    def _call(self, half: Half, inputs: list) -> tuple:
        """The program's results; by replay, if a recording is found."""
        if self.blocked:
            self.stats[self.blocked] += 1
            return half.run(inputs)
        with self.lock:
            half.calls += 1
            found = self.device.refusal()
            if not found:
                self.device.order()
                found = self._find(half, inputs)
            if isinstance(found, Recording):
                self.stats["replayed"] += 1
                return found.run(inputs)
            self.stats[found] += 1
            half.last[sizes_of(inputs)] = addresses(inputs)
            if len(half.last) > SEEN:
                del half.last[next(iter(half.last))]
        return half.run(inputs)

    def _find(self, half: Half, inputs: list) -> Recording | str:
        """A free recording for these inputs, or why there is none."""
        sizes = sizes_of(inputs)
        if sizes not in half.last:
            return "first call"
        lender = None
        if half is self.back:
            lender = self._lender({*addresses(inputs)})
        if isinstance(lender, str):
            return lender
        busy, strangers = 0, set()
        for recording in reversed(half.recordings):
            if recording.lender is lender and recording.sizes == sizes:
                strange = recording.strangers(inputs)
                if not strange and recording.free():
                    half.recordings.remove(recording)
                    half.recordings.append(recording)
                    return recording
                busy += not strange
                strangers |= {*strange}
        if busy >= AT_ONCE:
            return "every recording is held by a pending backward"
        if not busy:
            half.moving |= strangers - half.static
        return self._record(half, inputs, lender, half.last[sizes])

    def _lender(self, here: set[int]) -> Recording | str | None:
        """The forward that lent a backward the tensors at these addresses;
        None if none lends, or a text that says why there is none."""
        lending = [each for each in self.ahead.recordings if each.lends]
        lender = next((each for each in lending if each.lends & here), None)
        if lender is None and (lending or not self.ahead.recordings):
            return "the forward was not replayed"
        if lender and not lender.lends <= here:
            return "a saved value was replaced"
        return lender

    def _record(self, half: Half, inputs: list, lender: Recording | None,
                last: list[int]) -> Recording | str:
        """A new recording, or why there is none; what `lender` lends, and
        what lies as in the `last` call, stays where it is."""
        most = KEPT + half.calls // CALLS
        if half.made >= most:
            return half.failed or "recorded too often for so few calls"
        self._make_room(half)
        half.made, half.failed = half.made + 1, ""
        lent = lender.lends if lender else ()
        bound = {k for k, now in enumerate(addresses(inputs))
                 if k in half.static or now in lent
                 or k not in half.moving and now == last[k]}
        try:
            half.recordings.append(half.kind(
                self.device, half.run, inputs, bound, half.visible,
                half.written, lender))
        except Exception as error:  # out of memory, or never to be recorded
            half.made = most
            half.failed = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {half.failed}")
            return half.failed
        self.stats["recorded"] += 1
        return half.recordings[-1]

    def _make_room(self, half: Half) -> None:
        """Drop free recordings that read what moves, and the oldest while
        they are too many or too large; backwards with their forwards."""
        for old in list(half.recordings):
            kept = [*self.ahead.recordings, *self.back.recordings]
            full = len(half.recordings) >= KEPT or sum(
                each.bytes for each in kept) > self.device.most()
            if old.free() and (full or half.moving & {*old.bound}):
                half.recordings.remove(old)
                self.back.recordings = [
                    each for each in self.back.recordings
                    if each.lender is not old]
