"""Writes to inputs, done by the kernels that compute the new values.

In: the steps in order, and which inputs are to hold which values. Out:
the steps, with as many of these values as possible stored where the input
lies; copies at the end for the others. Inductor's is
torch/_inductor/scheduler.py:BaseSchedulerNode.decide_inplace_update.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..core.index import index
from ..core.loops import Buffer, Kernel, Loop
from ..core.schedule import Extern, Step, View, reads_of
from .lower import Lowered

COPY = torch.ops.aten._foreach_copy_.default


def in_place(steps: tuple[Step, ...], lowered: Lowered) -> tuple[Step, ...]:
    """The steps, and what writes to the inputs."""
    steps = list(steps)
    inputs = {given.name: given for given in lowered.inputs
              if isinstance(given, Buffer)}
    returned = reads_of(lowered.outputs)
    late: list[tuple[View, View]] = []
    for name, value in lowered.writes.items():
        given = inputs[name]
        place = None if value.buffer in returned else (
            storing(steps, given, value))
        if place is None:
            late.append((replace(
                value, buffer=name, offset=index(0)), value))
        else:
            steps[place] = redirected(steps[place], value.buffer, name)
    if late:
        into, values = map(list, zip(*late))
        steps.append(Extern(COPY, (into, values), {}, (None,)))
    return tuple(steps)


def storing(steps: list[Step], given: Buffer, value: View) -> int | None:
    """The kernel that can store the value in the input's memory, or None.

    Whoever reads what the input was must come before; an operator that
    returns a view of the input would read what it is.
    """
    readers = [place for place, step in enumerate(steps)
               if given.name in reads_of(step)]
    for place, step in enumerate(steps):
        if not isinstance(step, Kernel) or value.buffer not in step.written:
            continue
        made = step.written[value.buffer]
        form = given.shape, given.stride, given.dtype
        alike = all((each.shape, each.stride, each.dtype) == form
                    for each in (made, value))
        viewed = any(isinstance(steps[reader], Extern)
                     and steps[reader].aliases for reader in readers)
        if (alike and not made.into and not viewed
                and max(readers, default=-1) <= place
                and (place not in readers or in_turn(step, made, given))):
            return place
    return None


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


def redirected(kernel: Kernel, name: str, into: str) -> Kernel:
    """The kernel, storing one of its buffers where an input lies."""
    return replace(kernel, loops=tuple(
        replace(loop, buffer=replace(loop.buffer, into=into))
        if loop.buffer.name == name else loop for loop in kernel.loops))
