"""Writes to inputs, done by the kernels that compute the new values.

The kernel that computes a value can store it where the input lies, if
nobody reads what the input was afterwards. Within that kernel, the thread
that overwrites an element must be the only one that reads it, and must
read it first. Inductor's is
torch/_inductor/scheduler.py:BaseSchedulerNode.decide_inplace_update.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.loops import Buffer, Kernel, Loop
from ...core.schedule import Extern, Step, View, readers_of, reads_of
from ..lower import Lowered
from ..schedule import STORING


def in_place(steps: list[Step], lowered: Lowered,
             writes: dict[str, View]) -> dict[str, View]:
    """Make kernels store into inputs; the writes that none of them can."""
    inputs = {given.name: given for given in lowered.inputs
              if isinstance(given, Buffer)}
    returned, readers = reads_of(lowered.outputs), readers_of(steps)
    makers = {name: place for place, step in enumerate(steps)
              if isinstance(step, Kernel) for name in step.written}
    left = {}
    for name, value in writes.items():
        place = makers.get(value.buffer)
        if place is None or value.buffer in returned or not can_store(
                steps, place, inputs[name], value, readers.get(name, ())):
            left[name] = value
            continue
        steps[place] = replace(steps[place], loops=tuple(
            replace(loop, buffer=replace(loop.buffer, into=name))
            if loop.buffer.name == value.buffer else loop
            for loop in steps[place].loops))
    return left


def can_store(steps: list[Step], place: int, given: Buffer, value: View,
              readers: set[int]) -> bool:
    """Whether a kernel can store the value in the input's memory.

    All steps that read the input's old value must come before it. None
    may be an operator that returns a view: that would see the new one.
    """
    made = steps[place].written[value.buffer]
    form = given.shape, given.stride, given.dtype
    return (all((each.shape, each.stride, each.dtype) == form
                for each in (made, value))
            and not made.into and max(readers, default=-1) <= place
            and not any(isinstance(steps[reader], Extern)
                        and steps[reader].aliases for reader in readers)
            and (place not in readers
                 or in_turn(steps[place], made, given)))


def in_turn(kernel: Kernel, made: Buffer, given: Buffer) -> bool:
    """Whether each element of an input is read by whoever overwrites it,
    before that."""
    last: Loop | None = None
    places = set()
    if kernel.reduced:  # threads of one row may read what one has written
        return False
    for loop in kernel.loops:
        mine = {load.index for load in loop.loads
                if load.buffer == given.name}
        if mine and last is not None:
            return False
        places |= {(where, loop.ranges) for where in mine}
        if loop.buffer.name == made.name:
            last = loop
    return places <= {(last.index, last.ranges)}


STORING.append(in_place)
