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

from collections.abc import Sequence
from copy import copy, deepcopy
from functools import partial
from inspect import unwrap
from itertools import groupby

import torch
from torch import Tensor

from ...core.errors import BackendError
from ...core.machines.cost import machine
from ...core.graph import Boxed, has_effect
from ...core.index import index
from ...core.options import HINTS
from ...core.schedule import (Extern, Schedule, Step, View, made_by,
                              reads_of)
from ..cuda.graphs import (KINDS, TAPES, WORTH, Recording, memory_of,
                           obstacle, tape_of)

#: Bytes that are worth moving, and the seconds Python needs for a launch.
LARGE, LAUNCH = 2 ** 20, 8e-6


def cut_up(program: object, recorded: Sequence[bool], tail: int) -> dict:
    """A program in parts, as plain data: texts of functions of its steps.
    The `tail` runs after the replay and makes the results that are
    `moved`; there are texts of the other `results`. All names are those of
    the program.
    """
    text, schedule = program.text, program.text.schedule
    steps, results = schedule.steps, schedule.outputs
    parts, end = [], 0
    for is_recorded, group in groupby(recorded[:tail]):
        start, end = end, end + len([*group])
        wanted = reads_of([*steps[end:], results])
        makes = {text.names[made.name]: made for step in steps[start:end]
                 for made in made_by(step) if made.name in wanted}
        parts.append(part(text, steps[start:end], [
            View(made.name, made.shape, made.stride, index(0), made.dtype)
            for made in makes.values()]) | {
                "recorded": is_recorded, "makes": {
                    name: f"torch.empty_strided({made.shape}, {made.stride}"
                    f", dtype={made.dtype}, device='{made.device}')"
                    for name, made in makes.items()}})
    last = {made.name for step in steps[tail:] for made in made_by(step)}
    moved = {place: view for place, view in enumerate(results)
             if isinstance(view, View) and view.buffer in last}
    names, sizes = schedule.unpacked(text.names.__getitem__)
    found = {"inputs": names, "sizes": sizes, "parts": parts,
             "tail": part(text, steps[tail:], [*moved.values()]),
             "moved": [*moved], "results": [
                 None if place in moved else text.value(view)
                 for place, view in enumerate(results)]}
    unwrap(program.run).__globals__.update(text.given)
    return found


def part(text: object, steps: tuple[Step, ...], outputs: list) -> dict:
    """Some steps of a program as a function's `source`; it `reads` buffers
    and then all sizes."""
    whole, text = text.schedule, copy(text)
    known = {made.name for step in steps for made in made_by(step)}
    known |= whole.constants.keys()
    reads = [name for name in reads_of([*steps, outputs])
             if name not in known]
    sizes = {symbol: place for place, symbol
             in enumerate(whole.sizes, len(reads))}
    given = [*map(text.buffers.get, reads), *[None] * len(sizes)]
    text.schedule = Schedule(tuple(given), steps, tuple(outputs),
                             whole.constants, sizes)
    return {"source": text.call(), "reads": [
        *map(text.names.get, reads), *map(str, sizes)]}


class InParts(Recording):
    """Recordings of parts of a program, and what runs between them.

    That reads what is `known` by name: what a replay leaves, and, while
    it runs, the bound inputs of this call, which are at `places`.
    """

    def __init__(self, parts: dict, *given):
        self.parts = parts
        super().__init__(*given)

    def record(self, half: object, inputs: list) -> tuple:
        """The outputs, None for those that the tail makes."""
        parts, names = self.parts, unwrap(half.run).__globals__
        known, self.steps = dict(zip(parts["inputs"], inputs)), []
        exec("\n".join(parts["sizes"]), names, known)
        reads = {*parts["tail"]["reads"]}
        for each in parts["parts"]:
            run, replay = run_of(each, names), None
            if each["recorded"]:
                replay, made = half.of.device.record(
                    run, [known[name] for name in each["reads"]], self.pool)
            else:
                made = [eval(text, names, known)
                        for text in each["makes"].values()]
                reads.update(each["reads"])
            self.steps.append((replay, (run, each["reads"]), made))
            known.update(zip(each["makes"], made))
        self.tail = run_of(parts["tail"], names), parts["tail"]["reads"]
        self.places = {name: place for place, name
                       in enumerate(parts["inputs"])
                       if name in reads and place in self.bound}
        self.known = {name: known[name]
                      for name in reads - self.places.keys()}
        return tuple([text and eval(text, names, known)
                      for text in parts["results"]])

    def replay(self) -> None:
        """Each part in order; what others make goes to where it is read."""
        for replay, between, made in self.steps:
            if replay:
                replay()
                continue
            for old, new in zip(made, self.results_of(*between)):
                old.copy_(new)

    def results_of(self, run: Boxed, reads: Sequence[str]) -> tuple:
        """The results of a part in this call, which is not recorded."""
        return run([self.known[name] for name in reads])

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by replays."""
        self.known |= {name: inputs[place]
                       for name, place in self.places.items()}
        results = list(super().run(inputs))
        if moved := self.parts["moved"]:
            for place, made in zip(moved, self.results_of(*self.tail)):
                results[place] = made
        self.known |= dict.fromkeys(self.places)
        return tuple(results)


def run_of(part: dict, names: dict) -> Boxed:
    """The function of a part, among the names of its program."""
    exec(part["source"], names, found := {})
    return found["call"]


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


def tape_in_parts(program: object, visible: int | None, check: bool
                  ) -> dict:
    """The same; recordings are checked, if that is asked for, or in parts,
    if they have to be or if the results are large."""
    found, schedule = tape_of(program), program.text.schedule
    if check and found["kind"] == "whole":
        return found | {"kind": "checked"}
    gpus = {buffer.device for buffer in schedule.buffers.values()
            if buffer.device.type == "cuda"}
    steps, buffers = schedule.steps, program.text.buffers
    recorded = tuple(obstacle(Schedule(tuple(
        buffers[name] for name in reads_of(step) if name in buffers),
        (step,), (), {})) is None for step in steps)
    tail = tail_of(steps, schedule.outputs, visible)
    if check or len(gpus) > 1 or sum(recorded[:tail]) < WORTH - 1 or (
            tail == len(steps) and all(recorded)):
        return found
    return found | {"kind": "parts",
                    "parts": cut_up(program, recorded, tail)}


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


TAPES.append(tape_in_parts)
KINDS |= {"checked": lambda _: Checked,
          "parts": lambda tape: partial(InParts, tape["parts"])}
HINTS.pop("replay_check", None)  # it has an effect now
