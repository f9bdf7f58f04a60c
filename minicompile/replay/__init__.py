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

import torch

from ..core import load, log
from ..core.graph import Boxed, holds_graphs
from ..core.schedule import Schedule, views_in
from .recording import LOCK, Cuda, Recording

#: Fewer steps are launched one by one faster than results are cloned.
WORTH = 4


def whole(schedule: Schedule, *_: object) -> type[Recording] | str:
    """Recordings of all of a program, or why there can be none."""
    devices = {buffer.device for buffer in schedule.buffers.values()}
    if any(device.type != "cuda" for device in devices):
        return "not all tensors are on a CUDA device"
    if len(devices) > 1:
        return "tensors are on several devices"
    for call in schedule.externs:
        op, given = call.target, [view.dtype for view in views_in(call)]
        if holds_graphs(op):
            return "the graph chooses a branch"
        if torch.Tag.data_dependent_output in getattr(op, "tags", ()) or (
                "index" in str(op) and torch.bool in given):
            return f"{op} waits for the device"
    return Recording


#: What makes recordings of a program, or says why nothing can: given its
#: schedule, how many of its results are the user's, None for all, the
#: program, if it is one of emit's, and whether to compare the two. The
#: last one is asked.
KINDS: list[Callable[..., Callable[..., Recording] | str]] = [whole]


def graphed(runs: Mapping[str, Boxed], schedules: Mapping[str, Schedule],
            check: bool = False, visible: int | None = None,
            programs: Mapping[str, object] | None = None,
            **settings: object) -> GraphedFunction:
    """The programs of one graph, graphed; named as its halves are."""
    kinds = [KINDS[-1](schedule, visible if name == "forward" else None,
                       programs and programs[name], check)
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

    `blocked` is a reason why nothing can be recorded, or None. `kinds`
    make the recordings, the forward's first. The forward has `settings`.
    """

    def __init__(self, forward: Boxed, backward: Boxed | None,
                 device: Cuda, *, blocked: str | None = None,
                 kinds: Sequence[Callable] = (Recording,), **settings):
        self.device, self.blocked, self.halves = device, blocked, []
        self.forward = self.half(forward, kinds[0], **settings)
        self.backward = self.half(backward, kinds[-1])

    def half(self, run: Boxed, kind: Callable | str, **settings) -> Half:
        """One more half, such as the backward of other results; or `kind`
        says why nothing of it can be recorded."""
        self.halves.append(HALVES[-1](self, run, kind, self.blocked or (
            kind if isinstance(kind, str) else None), **settings))
        return self.halves[-1]

    @property
    def stats(self) -> Counter[str]:
        """How many calls were replayed, and how many not, by the reason."""
        return sum((half.stats for half in self.halves), Counter())


@dataclass(eq=False)
class Half:
    """The forward `of` a graphed function, or a backward.

    The first `visible` outputs are the user's, the others go to the
    backward. It writes to the inputs in `written`. Those in `static`, such
    as parameters, stay where they are.
    """

    of: GraphedFunction
    run: Boxed
    kind: Callable[..., Recording]
    blocked: str | None
    visible: int | None = None
    static: Collection[int] = ()
    written: Collection[int] = ()
    recordings: list[Recording] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)  # of calls
    most = 4  # recordings

    def __call__(self, inputs: list) -> tuple:
        """The program's results; by replay, if a recording is found."""
        with LOCK:
            found = self.blocked or self.of.device.refusal() or (
                self.find(inputs))
            if isinstance(found, Recording):
                self.stats["replayed"] += 1
                return found.run(inputs)
            self.stats[found] += 1
        return self.run(inputs)

    def find(self, inputs: list) -> Recording | str:
        """A free recording for these inputs, or why there is none."""
        for recording in self.recordings:
            if recording.free() and not recording.strangers(inputs):
                return recording
        return self.record(inputs, self.static)

    def record(self, inputs: list, bound: Collection[int],
               pool: object = None) -> Recording | str:
        """A new recording, which reads the inputs in `bound` where they
        lie, or why there is none."""
        if not self.stats:
            return "first call"
        if len(self.recordings) == self.most:
            return "no recording is free and fits"
        try:
            made = self.kind(self, inputs, bound, pool)
        except Exception as error:  # out of memory, or never to be recorded
            self.blocked = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {self.blocked}")
            return self.blocked
        self.recordings.append(made)
        self.stats["recorded"] += 1
        return made


#: What makes devices, and halves of graphed functions: the last rows.
DEVICES: list[type[Cuda]] = [Cuda]
HALVES: list[type[Half]] = [Half]

load(__name__, __path__)
