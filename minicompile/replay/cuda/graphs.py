"""Launches recorded as CUDA graphs, and replayed where that is safe.

In: a compiled graph's forward and backward as boxed calls. Out: the same
calls, which on CUDA replay a recording where that is safe, run the program
otherwise, and count why. The idea: the only memory a replay may overwrite
is memory that no Python object can reach. An input is *bound* (the
recording reads the caller's own memory, as long as it lies at the same
address) or *copied* (into a buffer that belongs to the recording). An
output is *cloned* for the user, or *lent*: handed out as it lies. A
recording is busy while a tensor holds memory that it lent. Meanwhile
another one is taken, so two forwards before two backwards need no rule for
users. A program has many recordings, for other sizes too, and for
parameters that were replaced. They may take a part of the device, and the
one that was unused for the longest time makes room. Making one costs
milliseconds, so a program is not recorded much more often than it is
called. Without this file programs are launched step by step. PyTorch's are
torch/_inductor/cudagraph_trees.py, and its limit is
torch/_inductor/config.py:triton.cudagraph_unexpected_rerecord_limit.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import (Callable, Collection, Iterable, Mapping,
                             Sequence)
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core import log
from ...core.graph import Boxed, holds_graphs, row
from ...core.options import HINTS
from ...core.schedule import Schedule, views_in
from .. import GRAPHED

#: Whoever holds it replays or makes a recording, in this process.
LOCK = threading.RLock()

#: The identity of the memory under a tensor, and how many tensors hold it.
memory_id, holders = torch._C._storage_id, torch._C._storage_Use_Count

#: How many recordings of one program are kept. It may be recorded as
#: often, and once more each time it has been called so many times.
KEPT, CALLS_EACH = 64, 64
#: How many of them may be for the same inputs.
AT_ONCE = 4
#: For how many tuples of sizes the places of the last call are known.
SEEN = 1024


class Cuda:
    """Recordings on one CUDA device, which run one after the other.

    A call on another stream than the last one's first waits for that
    stream. So a backward may take its temporary memory from the pool of
    its forward. Two forwards may not share a pool: the tensors that the
    second lends would lie where the first keeps temporaries.
    """

    def __init__(self, index: int):
        self.index = index
        self.stream = self.last = self.address = None

    def refusal(self) -> str | None:
        """Why nothing may be replayed right now; else wait in order."""
        if torch._C._cuda_isCurrentStreamCapturing():
            return "the caller is recording"
        address = torch._C._cuda_getCurrentRawStream(self.index)
        if address != self.address:
            current = torch.cuda.current_stream(self.index)
            if self.last is not None:
                current.wait_stream(self.last)
            self.last, self.address = current, address
        return None

    def bytes(self) -> int:
        """The memory that PyTorch holds on the device, for any purpose."""
        return torch.cuda.memory_reserved(self.index)

    def most(self) -> int:
        """The memory that the recordings of one function may take."""
        return torch.cuda.get_device_properties(
            self.index).total_memory // 4

    def pool(self) -> object:
        """Memory for one forward and the backward that goes with it."""
        return torch.cuda.graph_pool_handle()

    def record(self, run: Boxed, inputs: list, pool: object
               ) -> tuple[Callable[[], None], tuple]:
        """(replay, outputs): the launches of `run(inputs)`, not run.

        Meanwhile nothing is in flight, nothing is freed by the garbage
        collector, and no workspace is shared.
        """
        graph = torch.cuda.CUDAGraph()
        self.stream = self.stream or torch.cuda.Stream(self.index)
        with torch.cuda.stream(self.stream), ExitStack() as afterwards:
            if gc.isenabled():
                gc.disable()
                afterwards.callback(gc.enable)
            torch.cuda.synchronize(self.index)
            torch._C._cuda_clearCublasWorkspaces()
            afterwards.callback(torch._C._cuda_clearCublasWorkspaces)
            graph.capture_begin(pool, "thread_local")
            afterwards.callback(graph.capture_end)
            made = run(inputs)
        return graph.replay, made


def memory_of(values: Iterable) -> dict[int, int]:
    """The memory under each tensor among the values, by position."""
    return {k: memory_id(value) for k, value in enumerate(values)
            if isinstance(value, Tensor)}


def place(value: object) -> object:
    """The address of a tensor's first element; any other value itself."""
    return value.data_ptr() if isinstance(value, Tensor) else value


class Recording:
    """A recorded call of a half's program, ready to be replayed.

    It reads the inputs in `bound` where they lie, and lends the outputs
    that are not visible. A number, such as a size, is bound to its value.
    `pool` is the memory to work in, if another recording's is shared.
    """

    def __init__(self, half: Half, inputs: list, bound: Collection[int],
                 pool: object = None):
        self.pool = half.of.device.pool() if pool is None else pool
        with torch.inference_mode(False), torch.no_grad():
            self.copied = {k: like(inputs[k]) for k
                           in memory_of(inputs).keys() - bound}
            read = [self.copied.get(k, each)
                    for k, each in enumerate(inputs)]
            self.bound = {k: place(each) for k, each in enumerate(inputs)
                          if k not in self.copied}
            made = self.record(half, list(read))
        self.written = {*half.written} & {*self.copied}
        owners = {memory: k for k, memory in memory_of(read).items()}
        self.kept, self.clones, self.passed = list(made), {}, {}
        for k, memory in memory_of(made).items():
            if memory in owners:
                it, owner = made[k], owners[memory]
                layout = [it.shape, it.stride()] * (it is not read[owner])
                self.passed[k] = owner, *layout, (
                    it.storage_offset() - read[owner].storage_offset())
            elif half.visible is None or k < half.visible:
                self.clones[k] = made[k]
        for k in (*self.passed, *self.clones):
            self.kept[k] = None
        self.lent = {memory: holders(memory)
                     for memory in memory_of(self.kept).values()}

    def record(self, half: Half, inputs: list) -> tuple:
        """The program's outputs for these inputs, as replays fill them."""
        self.replay, made = half.of.device.record(
            half.run, inputs, self.pool)
        return made

    def strangers(self, inputs: list) -> list[int]:
        """The positions of inputs that are not where they were bound."""
        return [k for k, known in self.bound.items()
                if place(inputs[k]) != known]

    def free(self) -> bool:
        """Whether all memory that was lent has come back."""
        return all(holders(memory) == count
                   for memory, count in self.lent.items())

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by a replay."""
        copy_all(self.copied.values(), [inputs[k] for k in self.copied])
        self.replay()
        copy_all([inputs[k] for k in self.written],
                 [self.copied[k] for k in self.written])
        results = [each.data if isinstance(each, Tensor) else each
                   for each in self.kept]
        for k, (owner, *layout, shift) in self.passed.items():
            results[k] = given = inputs[owner]
            if layout:
                results[k] = given.as_strided(
                    *layout, given.storage_offset() + shift)
        for k, clone in self.clones.items():
            results[k] = like(clone)
        copy_all([results[k] for k in self.clones], self.clones.values())
        inputs.clear()
        return tuple(results)


def copy_all(buffers: Iterable[Tensor], given: Iterable[Tensor]) -> None:
    """Bring the tensors into the buffers, in one launch."""
    buffers, given = [*map(row, buffers)], [*map(row, given)]
    if len(buffers) == 1:
        buffers[0].copy_(given[0])
    elif buffers:
        torch._foreach_copy_(buffers, given)


def like(tensor: Tensor) -> Tensor:
    """New memory for a tensor of this shape and these strides."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride())


#: Fewer steps are launched one by one faster than results are cloned.
WORTH = 4


def obstacle(schedule: Schedule) -> str | None:
    """Why no recording can have all steps of a program, if so."""
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
    return None


def tape_of(program: object, *_: object) -> dict:
    """All that replay has to know of a program, as plain data: the `kind`
    of its recordings, or why there can be none; how many `steps` it has;
    the number of their `device`."""
    schedule = program.text.schedule
    return {"kind": obstacle(schedule) or "whole",
            "steps": len(schedule.steps), "device": max((
                buffer.device.index or 0
                for buffer in schedule.buffers.values()), default=0)}


#: What tells this, given a program, how many of its results are the user's,
#: None for all, and whether to compare each replay with the program. The
#: last one is asked.
TAPES: list[Callable[[object, int | None, bool], dict]] = [tape_of]
#: What makes recordings of a kind, given the program's tape.
KINDS: dict[str, Callable[[dict], Callable[..., Recording]]] = {
    "whole": lambda _: Recording}


def kind_of(tape: dict) -> Callable[..., Recording] | str:
    """What makes the recordings of a program, or why nothing can."""
    return KINDS.get(tape["kind"], lambda _: tape["kind"])(tape)


def graphed(programs: Mapping[str, object], inputs: Sequence = (),
            visible: int | None = None, written: Collection[int] = (),
            check: bool = False, tapes: Mapping[str, dict] | None = None
            ) -> GraphedFunction:
    """The programs of one graph, graphed; named as its halves are.
    Parameters among the inputs are static. With their `tapes`, programs
    need be no more than what runs.
    """
    tapes = tapes or {name: TAPES[-1](
        program, visible if name == "forward" else None, check)
        for name, program in programs.items()}
    kinds = [*map(kind_of, tapes.values())]
    reasons = [kind for kind in kinds if isinstance(kind, str)]
    if sum(tape["steps"] for tape in tapes.values()) < WORTH:
        reasons.append(f"fewer than {WORTH} launches")
    return GraphedFunction(
        programs["forward"].run, getattr(
            programs.get("backward"), "run", None),
        Cuda(max(tape["device"] for tape in tapes.values())),
        blocked=next(iter(reasons), None), kinds=kinds, tapes=tapes,
        visible=visible, written=written, static=[
            k for k, given in enumerate(inputs)
            if isinstance(given, torch.nn.Parameter)])


class GraphedFunction:
    """One compiled graph's forward and backward, replayed when safe.

    `blocked` is a reason why nothing can be recorded, or None. `kinds`
    make the recordings, the forward's first. The forward has `settings`.
    `tapes` has what was told of its programs.
    """

    def __init__(self, forward: Boxed, backward: Boxed | None,
                 device: Cuda, *, blocked: str | None = None,
                 kinds: Sequence[Callable] = (Recording,),
                 tapes: Mapping[str, dict] | None = None, **settings):
        self.device, self.blocked, self.halves = device, blocked, []
        self.tapes = tapes
        self.forward = self.half(forward, kinds[0], **settings)
        self.backward = self.half(backward, kinds[-1])

    def half(self, run: Boxed, kind: Callable | str, **settings) -> Half:
        """One more half, such as the backward of other results; or `kind`
        says why nothing of it can be recorded."""
        self.halves.append(Half(self, run, kind, self.blocked or (
            kind if isinstance(kind, str) else None), **settings))
        return self.halves[-1]

    def another(self, program: object, check: bool) -> Half:
        """One more half: a program, the backward of other results."""
        return self.half(program.run, kind_of(
            TAPES[-1](program, None, check)))

    @property
    def stats(self) -> Counter[str]:
        """How many calls were replayed, and how many not, by the reason."""
        return sum((half.stats for half in self.halves), Counter())


@dataclass(eq=False)
class Half:
    """The forward `of` a graphed function, or a backward.

    The first `visible` outputs are the user's, the others go to the
    backward. It writes to the inputs in `written`. Those in `static`, such
    as parameters, stay where they are; those in `moving` were bound in
    vain. `made` counts attempts to record, `failed` says why the last one
    did.
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
    last: dict[tuple, list] = field(default_factory=dict)  # by sizes
    moving: set[int] = field(default_factory=set)
    made: int = 0
    failed: str = ""

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
        """A free recording for these inputs, the last one used from now
        on; or why there is none."""
        for recording in self.recordings:
            if recording.free() and not recording.strangers(inputs):
                self.recordings.remove(recording)
                self.recordings.append(recording)
                return recording
        return self.record(inputs)

    def record(self, inputs: list) -> Recording | str:
        """A new recording, or why there is none.

        An input that lies where it lay in the call before is bound, too. If
        it moves after all, it is copied from then on, unless it is
        `static`. A backward has what it was lent bound, and works in the
        memory of its forward.
        """
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
        allowed = KEPT + calls // CALLS_EACH
        if self.made >= allowed:
            return self.failed or "recorded too often for so few calls"
        self.make_room()
        held = self.of.device.bytes()
        bound = {*self.static} | {
            k for k, memory in memory_of(inputs).items()
            if lender and memory in lender.lent
            or now[k] == before[k] and k not in self.moving}
        try:
            made = self.kind(self, inputs, bound, lender and lender.pool)
        except Exception as error:  # out of memory, or never to be recorded
            self.made = allowed
            self.failed = f"cannot be recorded: {error}".split("\n")[0]
            log.show("perf_hints", f"no replay: {self.failed}")
            return self.failed
        self.made, self.failed = self.made + 1, ""
        made.bytes = self.of.device.bytes() - held
        made.sizes, made.lender = sizes, lender
        self.recordings.append(made)
        self.stats["recorded"] += 1
        return made

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


GRAPHED.append(graphed)
HINTS.pop("cudagraphs")  # it has an effect
