"""Large results that a program makes last are moved out, not cloned.

A recording writes to the same memory in each replay, so the results of a
call would be those of the next. If the last launch of a program is a
kernel that only makes results, it is not recorded. After each replay it
runs as it would without one, into new memory that is the user's. Without
this file such results are cloned, as all others are. torch.compile hands
out the memory of the recording, and the next call overwrites it:
torch/_inductor/cudagraph_trees.py.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass, replace
from functools import partial
from inspect import unwrap
from types import FunctionType, SimpleNamespace

import torch

from ...core.graph import Boxed
from ...core.index import guess
from ...core.loops import Buffer, Kernel
from ...core.schedule import Schedule, View
from ..graphed_function import KINDS
from ..recording import Cuda, Recording

#: Bytes that take longer to copy than a kernel to launch.
LARGE = 2 ** 20


@dataclass(frozen=True)
class LastLaunch:
    """The last launch of the program `run`: the name of its kernel, how
    many tensors that reads, and the places of the results it makes."""

    run: Boxed
    kernel: str
    reads: int
    places: tuple[int, ...]


def last_launch(run: Boxed, schedule: Schedule, visible: int | None
                ) -> LastLaunch | None:
    """The last launch, if it only makes large results for the user."""
    step = schedule.steps[-1]
    if not isinstance(step, Kernel):
        return None
    made = list(step.written.values())
    names = [view.buffer if isinstance(view, View) else None
             for view in schedule.outputs]
    inputs = {given.name for given in schedule.inputs
              if isinstance(given, Buffer)}
    calls = [each.argval for each in dis.get_instructions(unwrap(run))]
    if (any(b.into or names.count(b.name) != 1 for b in made)
            or inputs & {*step.read} or calls.count(step.name) != 1
            or sum(guess(b.elements) * b.dtype.itemsize
                   for b in made) < LARGE):
        return None
    places = tuple(names.index(b.name) for b in made)
    fits = all(is_whole(schedule.outputs[place], b)
               for place, b in zip(places, made))
    return LastLaunch(run, step.name, len(step.read), places) if (
        fits and {*places} <= {*range(len(names))[:visible]}) else None


def is_whole(view: View, buffer: Buffer) -> bool:
    """Whether a result is all of a buffer's memory, in any shape."""
    same = replace(buffer, shape=view.shape, stride=view.stride)
    return (view.dtype == buffer.dtype and view.offset == 0
            and same.elements == buffer.elements)


class Moved(Recording):
    """A recording of all of a program but its last launch."""

    def __init__(self, last: LastLaunch, device: Cuda, run: Boxed,
                 inputs: list, *settings):
        self.last = last if run is last.run else None
        self.device = device
        super().__init__(device, self.begin if self.last else run, inputs,
                         *settings)

    def begin(self, inputs: list) -> tuple:
        """The program's results, None for those of its last launch."""
        def keep(stream: int, *given: object) -> None:
            reads, writes = self.last.reads, len(self.last.places)
            self.reads = given[:reads]
            self.symbols = given[reads + writes:]

        program = unwrap(self.last.run)
        self.launch = program.__globals__[self.last.kernel].run
        results = FunctionType(program.__code__, program.__globals__ | {
            self.last.kernel: SimpleNamespace(run=keep)})(inputs)
        self.layouts = [
            (made.shape, made.stride(), made.dtype, made.device)
            for made in map(results.__getitem__, self.last.places)]
        return tuple(None if place in self.last.places else result
                     for place, result in enumerate(results))

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by a replay."""
        results = super().run(inputs)
        if self.last is None:
            return results
        fresh = [torch.empty_strided(shape, stride, dtype=dtype,
                                     device=device)
                 for shape, stride, dtype, device in self.layouts]
        self.launch(self.device.address, *self.reads, *fresh, *self.symbols)
        made = dict(zip(self.last.places, fresh))
        return tuple(made.get(place, result)
                     for place, result in enumerate(results))


def kind(run: Boxed, schedule: Schedule, visible: int | None):
    """The kind of recordings that suits a forward."""
    last = last_launch(run, schedule, visible)
    return partial(Moved, last) if last else Recording


KINDS.append(kind)
