"""The whole stage: a functional ATen graph becomes a Schedule.

In: an FX graph of ATen ops with fake values. Out: kernels and operator
calls in order, and after which of them each buffer's memory is free.
PyTorch's is torch/_inductor/scheduler.py.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count
from math import inf

import torch
from torch import fx

from ..core.index import Symbol, index
from ..core.loops import Buffer, Expression, Kernel, Load, Loop, rewrite
from ..core.schedule import (Extern, Schedule, Step, View, made_by,
                             readers_of, reads_of, views_in)
from .group import Group, Groups, nested
from .lower import Lowering
from .values import elements, touched

#: Passes over the groups, before they are ordered.
MERGING: list[Callable[[Groups], None]] = []

#: Passes over the order, made of the groups, of the buffers that are never
#: freed and of the inputs that are: see Groups.ordered.
ORDERING: list[Callable[..., Callable]] = []

#: Passes that make steps write to inputs. Each is given the steps, what was
#: lowered and the writes to do, and returns the writes that are left.
STORING: list[Callable[..., dict[str, View]]] = []

COPY = torch.ops.aten._foreach_copy_.default


def numbers_used(steps: list[Step], lowered: Lowering
                 ) -> dict[Symbol, tuple[int, str] | None]:
    """The symbols that kernels use, if each is one number at all times."""
    return dict.fromkeys(chain(*(step.symbols for step in steps
                                 if isinstance(step, Kernel))))


#: What says in which input each symbol is found that a step or result
#: uses, None if it is computed: the last of these.
SIZES: list[Callable[[list[Step], Lowering], dict[
    Symbol, tuple[int, str] | None]]] = [numbers_used]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python does not search the new objects for garbage meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@collector_paused()
def fuse(module: fx.GraphModule, dying: Collection[str] = ()) -> Schedule:
    """The graph as fused kernels and operator calls.

    `module` holds functional ATen ops; every node has its fake value in
    `meta["val"]`. Strides of the results are those of the fake values.
    `dying` names the inputs that only the graph holds during the call.
    """
    lowered = Lowering(module)
    groups = Groups(lowered.steps)
    for merge in MERGING:
        merge(groups)
    returned = reads_of((lowered.outputs, *lowered.writes.values()))
    given = [b if isinstance(b, Buffer) else None for b in lowered.inputs]
    freed = [b for b in given if b and b.name in dying]
    order = groups.ordered(*(
        make(groups, returned, freed) for make in ORDERING))
    steps = steps_of(order, returned)
    left = lowered.writes
    for store in STORING:
        left = store(steps, lowered, left)
    if left:
        into = [replace(value, buffer=name, offset=index(0))
                for name, value in left.items()]
        steps.append(Extern(COPY, (into, [*left.values()]), {}, (None,)))
    used = returned.keys() | readers_of(steps).keys()
    sizes = SIZES[-1](steps, lowered)
    asked = {place[0] for place in sizes.values() if place}
    inputs = tuple(b if b and (b.name in used or k in asked) else None
                   for k, b in enumerate(given))
    return Schedule(inputs, tuple(steps), lowered.outputs,
                    last_uses(steps, lowered), lowered.constants, sizes)


def steps_of(groups: list[Group], returned: Iterable[str]) -> list[Step]:
    """Each group as a kernel or as its operator call.

    A kernel is named after its number and the first few nodes that it
    computes, such as `kernel_3_amax_exp_sum_div`.
    """
    readers = readers_of(list(group.steps.values()) for group in groups)
    steps: list[Step] = []
    kernels = count()
    for number, group in enumerate(groups):
        if group.body is None:
            steps += group.steps.values()
            continue
        needed = {name for name in group.body.stores if name in returned
                  or readers.get(name, set()) - {number}}
        kernel = nested([loop for _, loop in sorted(group.steps.items())],
                        group.body.domain)
        loops = inlined(kernel.loops, needed)
        nodes = " ".join(loop.origin for loop in loops).split()
        plain = dict.fromkeys(re.sub(r"_\d+$", "", node) for node in nodes)
        names = frozenset(loop.buffer.name for loop in loops)
        steps.append(replace(
            kernel, name="_".join([f"kernel_{next(kernels)}",
                                   *list(plain)[:4]]),
            loops=tuple(loops), internal=names - needed))
    return steps


def inlined(loops: Iterable[Loop], needed: set[str]) -> list[Loop]:
    """The loops; a producer is inlined into its consumer if that is the
    only one, runs over the same points and reads it everywhere."""
    reads: dict[str, set] = {loop.buffer.name: set() for loop in loops}
    for number, loop in enumerate(loops):
        for load in loop.loads:
            reads.setdefault(load.buffer, set()).add(
                (number, loop.ranges + loop.reduced, load.mask))
    values: dict[str, Expression] = {}

    def value_of(part: Expression) -> Expression:
        return values.get(part.buffer, part) if isinstance(
            part, Load) else part
    kept: list[Loop] = []
    for loop in loops:
        if not values.keys().isdisjoint(reads_of(loop)):
            loop = replace(loop, value=rewrite(loop.value, value_of))
        name = loop.buffer.name
        once = [how for _, *how in reads[name]] == [[loop.ranges, None]]
        if once and loop.reduction is None and name not in needed:
            values[name] = loop.value
        else:
            kept.append(loop)
    return kept


def last_uses(steps: list[Step],
              lowered: Lowering) -> tuple[tuple[str, ...], ...]:
    """For each step, the buffers that no later step needs.

    Memory that a call's result shares is needed as long as the result.
    """
    kept = reads_of(lowered.outputs).keys() | lowered.constants.keys()
    last: dict[str, int] = {}
    under: dict[str, set[str]] = {}
    for number, step in enumerate(steps):
        read = reads_of(step)
        made = [buffer.name for buffer in made_by(step)]
        if isinstance(step, Extern) and step.aliases:
            for name in made:
                under[name] = set(read).union(
                    *(under.get(source, ()) for source in read))
        for name in (*made, *read):
            for memory in (name, *under.get(name, ())):
                last[memory] = number
    freed: list[list[str]] = [[] for _ in steps]
    for name, number in last.items():
        if name not in kept:
            freed[number].append(name)
    return tuple(map(tuple, freed))


def moved(schedule: Schedule) -> int:
    """Elements read and written by all steps together.

    A kernel reads each element of its inputs once, however many loops ask
    for it, and writes its results; an operator reads its arguments and
    writes its results. PyTorch counts so in its test_perf.py.
    """
    sizes = {name: memory(buffer)
             for name, buffer in schedule.buffers.items()}
    total = 0
    for step in schedule.steps:
        total += sum(map(memory, (*made_by(step), *views_in(step))))
        if isinstance(step, Kernel):
            places = {(load.buffer, load.index)
                      for loop in step.loops for load in loop.loads}
            total += sum(min(sizes.get(name, inf), sum(
                touched(where) for read, where in places if read == name))
                for name in step.read)
    return total


def memory(view: Buffer | View) -> int:
    """How many elements lie there, repeated ones counted once."""
    return elements(size for size, step in zip(
        view.shape, view.stride, strict=True) if step != 0)
