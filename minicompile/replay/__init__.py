"""Replay: a program's kernel launches recorded once, launched as one.

In: a compiled graph's forward and backward as boxed calls. Out: the same
calls, which on CUDA replay a recording where that is safe, run the program
otherwise, and count why. The idea: the only memory a replay may overwrite
is memory that no Python object can reach. So a recording of the forward is
busy while a tensor holds memory that it lent. Meanwhile another one is
taken, so two forwards before two backwards need no rule for users.
PyTorch's is torch/_inductor/cudagraph_trees.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from types import MappingProxyType

import torch

from ..core import load, log
from ..core.graph import Boxed, holds_graphs
from ..core.schedule import Schedule, Step, views_in
from .recording import Cuda, Recording, addresses, memory_of, sizes_of

#: Fewer steps are launched one by one faster than a replay's outputs are
#: cloned.
WORTH = 4
#: How many recordings of a program there may be, and for how many tuples
#: of sizes the addresses of the last call are known.
AT_ONCE, SEEN = 4, 1024


def refusal(step: Step) -> str | None:
    """Why a step cannot be recorded on any device, or None."""
    op = getattr(step, "target", None)
    if holds_graphs(op):
        return "the graph chooses a branch"
    if torch.Tag.data_dependent_output in getattr(op, "tags", ()) or (
            "index" in str(op)
            and torch.bool in [view.dtype for view in views_in(step)]):
        return f"{op} waits for the device"
    return None


def whole(schedule: Schedule, *_: object) -> type[Recording] | str:
    """Recordings of all of a program, or why there can be none."""
    devices = {buffer.device for buffer in schedule.buffers.values()}
    if any(device.type != "cuda" for device in devices):
        return "not all tensors are on a CUDA device"
    if len(devices) > 1:
        return "tensors are on several devices"
    return next(filter(None, map(refusal, schedule.steps)), Recording)


#: What makes recordings of a program, or a text that says why nothing can:
#: given its schedule, how many of its results are the user's, None for
#: all, the program, if it is one of emit's, and whether to compare the
#: two. The last row that gives something decides.
KINDS: list[Callable[..., Callable[..., Recording] | str | None]] = [whole]


def graphed(runs: Mapping[str, Boxed], schedules: Mapping[str, Schedule],
            check: bool = False, visible: int | None = None,
            programs: Mapping[str, object] = MappingProxyType({}),
            **settings: object) -> GraphedFunction:
    """The programs of one graph, graphed; named as its halves are."""
    kinds = [next(filter(None, (kind(
        schedule, visible if name == "forward" else None,
        programs.get(name), check) for kind in reversed(KINDS))))
        for name, schedule in schedules.items()]
    reasons = [kind for kind in kinds if isinstance(kind, str)]
    if sum(len(schedule.steps) for schedule in schedules.values()) < WORTH:
        reasons.append(f"fewer than {WORTH} launches")
    index = max((buffer.device.index or 0 for schedule in schedules.values()
                 for buffer in schedule.buffers.values()), default=0)
    return GraphedFunction(
        runs["forward"], runs.get("backward"), DEVICES[-1](index),
        blocked=next(iter(reasons), None), kinds=kinds, visible=visible,
        **settings)


class GraphedFunction:
    """One compiled graph's forward and backward, replayed when safe.

    `blocked` says why nothing can be recorded, if something does. `kinds`
    make the recordings, the forward's first. The forward has `settings`.
    """

    def __init__(self, forward: Boxed, backward: Boxed | None,
                 device: Cuda, *, blocked: str | None = None,
                 kinds: Sequence[Callable] = (Recording,), **settings):
        half = partial(HALVES[-1], device=device, lock=Lock(),
                       blocked=blocked)
        self.forward = self.ahead = half(forward, kinds[0], **settings)
        self.backward = half(backward, kinds[-1], ahead=self.ahead)
        self.device, self.blocked = device, blocked

    @property
    def stats(self) -> Counter[str]:
        """How many calls were replayed, and how many not, by the reason."""
        return self.forward.stats + self.backward.stats


@dataclass
class Half:
    """A forward; or a backward, with its forward `ahead`.

    The first `visible` outputs are the user's, the others go to the
    backward. It writes to the inputs in `written`. Those in `static`, such
    as parameters, stay where they are. Each tuple of sizes has a first
    call, and recordings, of its own. `stats` counts calls.
    """

    run: Boxed
    kind: Callable[..., Recording]
    device: Cuda
    lock: Lock
    blocked: str | None
    visible: int | None = None
    static: Collection[int] = ()
    written: Collection[int] = ()
    ahead: Half | None = None
    recordings: list[Recording] = field(default_factory=list)  # by use
    last: dict[tuple, list[int]] = field(default_factory=dict)
    stats: Counter[str] = field(default_factory=Counter)
    most: float = AT_ONCE  # recordings

    def __call__(self, inputs: list) -> tuple:
        """The program's results; by replay, if a recording is found."""
        with self.lock:
            found = self.blocked or self.device.refusal() or (
                self.find(inputs))
            if isinstance(found, Recording):
                self.stats["replayed"] += 1
                return found.run(inputs)
            self.stats[found] += 1
        return self.run(inputs)

    def find(self, inputs: list) -> Recording | str:
        """A free recording for these inputs, or why there is none."""
        self.device.order()
        sizes = sizes_of(inputs)
        for recording in reversed(self.recordings):
            if (recording.sizes == sizes and recording.free()
                    and not recording.strangers(inputs)):
                self.recordings.remove(recording)
                self.recordings.append(recording)
                return recording
        last = self.last.pop(sizes, None)
        self.last[sizes] = addresses(inputs)
        if len(self.last) > SEEN:
            del self.last[next(iter(self.last))]
        if last is None:
            return "first call"
        lender = self.ahead and self.ahead.lender(inputs)
        return lender if isinstance(lender, str) else self.record(
            inputs, last, lender)

    def lender(self, inputs: list) -> Recording | str:
        """The recording that lent a backward its inputs, or why none."""
        here, why = {*memory_of(inputs).values()}, (
            "the forward was not replayed")
        for recording in reversed(self.recordings):
            if recording.lent.keys() <= here:
                return recording
            if recording.lent.keys() & here:
                why = "a saved value was replaced"
        return why

    def record(self, inputs: list, last: list[int],
               lender: Recording | None) -> Recording | str:
        """A new recording, or why there is none."""
        if len(self.recordings) >= self.most:
            return "no recording is free and fits"
        try:
            made = self.kind(
                self.device, self.run, inputs,
                self.bound(inputs, last, lender), self.visible,
                self.written, lender)
        except Exception as error:  # out of memory, or never to be recorded
            self.blocked = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {self.blocked}")
            return self.blocked
        self.recordings.append(made)
        self.stats["recorded"] += 1
        return made

    def bound(self, inputs: list, last: list[int],
              lender: Recording | None) -> set[int]:
        """The inputs that a new recording reads where they lie."""
        return {*self.static} | {
            k for k, memory in memory_of(inputs).items()
            if lender and memory in lender.lent}


#: What makes devices, and halves of graphed functions: the last rows.
DEVICES: list[type[Cuda]] = [Cuda]
HALVES: list[type[Half]] = [Half]

load(__name__, __path__)
