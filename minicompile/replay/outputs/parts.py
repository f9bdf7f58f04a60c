"""Programs that are recorded in parts, and replays that are checked.

A step that chooses between graphs, works on the CPU or waits for the
device runs between two recordings. Its results go to where the later
recording reads them. If a step near the end makes a large result for the
user, that step and those after it run after the replay, into new memory.
So the result is moved out, where others are cloned. With
`options={"replay_check": True}` each replay is compared, bit by bit, with a
run of its program. Memory is poisoned before: what is still read, or what
the replay does not write, shows as NaN. Without this file such a step keeps
the program from being recorded, results are cloned, and nothing is checked.
torch.compile cuts a graph in torch/_inductor/scheduler.py. It hands out
memory that the next call overwrites, in torch/_inductor/cudagraph_trees.py.
"""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from itertools import groupby

import torch
from torch import Tensor

from ...core.errors import BackendError
from ...core.machines.cost import machine
from ...core.graph import Boxed, has_effect
from ...core.index import Symbol, evaluate_index, index
from ...core.loops import Buffer
from ...core.options import HINTS
from ...core.semantics.evaluate import known as known_of
from ...core.semantics.evaluate import resolved
from ...core.schedule import (Extern, Schedule, Step, View, made_by,
                              reads_of)
from ..cuda.graphs import KINDS, WORTH, Recording, memory_of, whole

#: Bytes that are worth moving, and the seconds Python needs for a launch.
LARGE, LAUNCH = 2 ** 20, 8e-6


@dataclass(frozen=True)
class Part:
    """Steps in order: a function of the buffers and sizes it `reads`
    that gives others those it `makes`."""

    run: Boxed
    reads: tuple[str | Symbol, ...]
    makes: Sequence[Buffer]
    is_recorded: bool


class Parts:
    """A program's `parts`, then the `tail`, which runs after the replay
    and makes the results that are `moved`."""

    def __init__(self, program: object, recorded: Sequence[bool],
                 tail: int):
        self.program, self.schedule = program, program.text.schedule
        steps, results = self.schedule.steps, self.schedule.outputs
        self.parts, end = [], 0
        for is_recorded, group in groupby(recorded[:tail]):
            start, end = end, end + len([*group])
            wanted = reads_of([*steps[end:], results])
            makes = [made for step in steps[start:end]
                     for made in made_by(step) if made.name in wanted]
            self.parts.append(self.part(steps[start:end], [
                View(made.name, made.shape, made.stride, index(0),
                     made.dtype) for made in makes], makes, is_recorded))
        last = {made.name for step in steps[tail:]
                for made in made_by(step)}
        self.moved = {place: view for place, view in enumerate(results)
                      if isinstance(view, View) and view.buffer in last}
        self.tail = self.part(steps[tail:], [*self.moved.values()])

    def part(self, steps: tuple[Step, ...], outputs: list,
             makes: Sequence = (), is_recorded: bool = False) -> Part:
        """Some steps; they are given buffers, and then all sizes."""
        text, found = copy(self.program.text), {}
        known = {made.name for step in steps for made in made_by(step)}
        known |= self.schedule.constants.keys()
        reads = [name for name in reads_of([*steps, outputs])
                 if name not in known]
        sizes = {symbol: place for place, symbol in enumerate(
            self.schedule.sizes, len(reads))}
        given = [*map(text.buffers.get, reads), *[None] * len(sizes)]
        text.schedule = Schedule(tuple(given), steps, tuple(outputs),
                                 self.schedule.constants, sizes)
        names = unwrap(self.program.run).__globals__
        exec(text.call(), names, found)
        names.update(text.given)
        return Part(found["call"], (*reads, *sizes), makes, is_recorded)


class InParts(Recording):
    """Recordings of parts of a program, and what runs between them.

    That reads what is `known` by name: what a replay leaves, and, while
    it runs, the bound inputs of this call, which are at `places`.
    """

    def __init__(self, parts: Parts, *given):
        self.parts = parts
        super().__init__(*given)

    def record(self, half: object, inputs: list) -> tuple:
        """The outputs, None for those that the tail makes."""
        known, self.steps = known_of(self.parts.schedule, inputs), []
        for part in self.parts.parts:
            if part.is_recorded:
                replay, made = half.of.device.record(
                    part.run, [known[name] for name in part.reads],
                    self.pool)
                self.steps.append((replay, None, ()))
            else:
                made = [torch.empty_strided(*(
                    [evaluate_index(each, known) for each in measures]
                    for measures in (buffer.shape, buffer.stride)),
                    dtype=buffer.dtype, device=buffer.device)
                    for buffer in part.makes]
                self.steps.append((None, part, made))
            known |= {buffer.name: value
                      for buffer, value in zip(part.makes, made)}
        reads = {name for part in (*self.parts.parts, self.parts.tail)
                 if not part.is_recorded for name in part.reads}
        self.places = {given.name: place for place, given
                       in enumerate(self.parts.schedule.inputs)
                       if given and given.name in reads
                       and place in self.bound}
        self.known = {name: known[name]
                      for name in reads - self.places.keys()}
        return tuple([
            None if place in self.parts.moved else resolved(known, view)
            for place, view in enumerate(self.parts.schedule.outputs)])

    def replay(self) -> None:
        """Each part in order; what others make goes to where it is read."""
        for replay, part, made in self.steps:
            if replay:
                replay()
                continue
            for old, new in zip(made, self.results_of(part)):
                old.copy_(new)

    def results_of(self, part: Part) -> tuple:
        """The results of a part in this call, which is not recorded."""
        return part.run([self.known[name] for name in part.reads])

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by replays."""
        self.known |= {name: inputs[place]
                       for name, place in self.places.items()}
        results = list(super().run(inputs))
        if self.parts.moved:
            for place, made in zip(self.parts.moved, self.results_of(
                    self.parts.tail)):
                results[place] = made
        self.known |= dict.fromkeys(self.places)
        return tuple(results)


class Checked(Recording):
    """A recording that is poisoned, replayed and compared in each run."""

    def __init__(self, half: object, *given):
        self.program = half.run
        super().__init__(half, *given)

    def run(self, inputs: list) -> tuple:
        """The program's results, or a BackendError if a replay differs."""
        kept, given = list(inputs), deepcopy([
            each.detach() if isinstance(each, Tensor) else each
            for each in inputs])
        gpus = {each.device for each in inputs
                if isinstance(each, Tensor) and each.is_cuda}
        with torch.random.fork_rng(gpus):
            wanted = self.program(list(given))
            self.poison(wanted)
        found = super().run(inputs)
        try:
            torch.testing.assert_close(
                {"results": found, "inputs": tuple(kept)},
                {"results": wanted, "inputs": tuple(given)},
                rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            raise BackendError("a result of a replay is not what its "
                               f"program gives: {error}") from None
        return found

    def poison(self, wanted: tuple) -> None:
        """Fill the memory that a replay writes with NaN.

        Memory that the program gives in every run, `wanted` being one, is
        that of a constant, and stays.
        """
        mine = [*self.clones.values(), *self.kept]
        for k, memory in memory_of(mine).items():
            if memory not in memory_of(wanted).values():
                torch.empty(
                    0, dtype=torch.uint8, device=mine[k].device).set_(
                    mine[k].untyped_storage()).fill_(255)


def kind_of(program: object, visible: int | None, check: bool
            ) -> Callable[..., Recording] | str:
    """The recordings of a program: checked, if that is asked for; in
    parts, if it has to be or if its results are large."""
    schedule, buffers = program.text.schedule, program.text.buffers
    found, steps = whole(schedule), schedule.steps
    if check and found is Recording:
        return Checked
    gpus = {buffer.device for buffer in schedule.buffers.values()
            if buffer.device.type == "cuda"}
    if check or len(gpus) > 1:
        return found
    recorded = tuple(whole(Schedule(tuple(
        buffers[name] for name in reads_of(step) if name in buffers),
        (step,), (), {})) is Recording for step in steps)
    tail = tail_of(steps, schedule.outputs, visible)
    if sum(recorded[:tail]) < WORTH - 1 or (
            tail == len(steps) and all(recorded)):
        return found
    return partial(InParts, Parts(program, recorded, tail))


def tail_of(steps: tuple[Step, ...], outputs: tuple,
            visible: int | None) -> int:
    """From which step on a program runs after its replay.

    Steps that draw, that write to inputs, or that make something for the
    backward, are in no tail.
    """
    results, saved = (reads_of(part) for part in (
        outputs[:visible], () if visible is None else outputs[visible:]))
    best, most, size, gained = len(steps), 0.0, 0, LAUNCH
    for place, step in reversed([*enumerate(steps)]):
        made = made_by(step)
        if any(each.into or each.name in saved for each in made) or (
                isinstance(step, Extern)
                and (step.aliases or has_effect(step))):
            break
        gained -= LAUNCH
        for each in made:
            if each.name in results:
                size += each.nbytes
                gained += 2 * each.nbytes / machine(each.device).bandwidth
        if size >= LARGE and gained > most:
            best, most = place, gained
    return best


KINDS.append(kind_of)
HINTS.pop("replay_check", None)  # it has an effect now
