"""Stage 4: ATen operators become loops, loops are fused into kernels.

In: a functional FX graph of ATen operators with fake values. Out: a
Schedule of kernels and operator calls, in order. PyTorch's is
torch/_inductor/scheduler.py.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import count

import torch
from torch import fx

from ..core import load
from ..core.graph import placeholders
from ..core.index import Symbol, index
from ..core.loops import Buffer, Kernel
from ..core.schedule import (Extern, Schedule, Step, View, readers_of,
                             reads_of)
from .group import Group, Groups
from .lower import Lowering

#: Passes over the groups, before they are ordered.
MERGING: list[Callable[[Groups], None]] = []

#: What orders them, given the buffers that are never freed and the inputs
#: that are; what gives a kernel, whose loops run over a variable for its
#: rows and one for their elements, other loops; and what makes steps write
#: to inputs, and says which writes are left. The last rows count.
ORDERING: list[Callable[..., list[Group]]] = [
    lambda groups, kept, freed: groups.ordered()]
KERNELS: list[Callable[[Kernel], Kernel]] = [lambda kernel: kernel]
STORING: list[Callable[[list[Step], Lowering], dict[str, View]]] = [
    lambda steps, lowered: lowered.writes]

COPY = torch.ops.aten._foreach_copy_.default

#: What says which input each symbol is that a step or result uses, None
#: if it is computed: the last of these. The first is for symbols that are
#: each one number at all times.
SIZES: list[Callable[[list[Step], Lowering], dict[Symbol, int | None]]] = [
    lambda steps, _: dict.fromkeys(s for step in steps if isinstance(
        step, Kernel) for s in step.symbols)]


def fuse(module: fx.GraphModule, dying: Collection[str] = ()) -> Schedule:
    """The graph as fused kernels and operator calls.

    `module` holds functional ATen ops; every node has its fake value in
    `meta["val"]`. Strides of the results are those of the fake values.
    `dying` names the inputs that only the graph holds during the call.
    """
    lowered = Lowering(module)
    groups = Groups(lowered.steps)
    returned = reads_of((lowered.outputs, *lowered.writes.values()))
    for merge in MERGING:
        merge(groups)
    given = [b if isinstance(b, Buffer) else None for b in lowered.inputs]
    freed = [b for node, b in zip(placeholders(module.graph), given)
             if b and node.name in dying]
    steps = steps_of(ORDERING[-1](groups, returned, freed), returned)
    left = STORING[-1](steps, lowered)
    if left:
        into = [replace(value, buffer=name, offset=index(0))
                for name, value in left.items()]
        steps.append(Extern(COPY, (into, [*left.values()]), {}, (None,)))
    used = returned.keys() | readers_of(steps).keys()
    inputs = tuple(b if b and b.name in used else None for b in given)
    return Schedule(inputs, tuple(steps), lowered.outputs,
                    lowered.constants, SIZES[-1](steps, lowered),
                    frozenset(b.name for b in freed if b in inputs))


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
        loops = tuple(loop for _, loop in sorted(group.steps.items()))
        nodes = " ".join(loop.origin for loop in loops).split()
        plain = dict.fromkeys(re.sub(r"_\d+$", "", node) for node in nodes)
        name = "_".join([f"kernel_{next(kernels)}", *list(plain)[:4]])
        rows, row = group.body.domain.variables
        steps.append(KERNELS[-1](Kernel(
            name, (rows,), (row,) * (row.size != 1), loops,
            frozenset(group.body.stores) - needed)))
    return steps


load(__name__, __path__)
