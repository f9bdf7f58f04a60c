"""The whole stage: a functional ATen graph becomes a Schedule.

In: an FX graph of ATen ops with fake values. Out: kernels and operator
calls in order, and after which of them each buffer's memory is free.
PyTorch's is torch/_inductor/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch import fx

from ..core.loops import Buffer, Extern, Kernel, Schedule, Step
from .group import Group, Grouping
from .kernels import kernel_of
from .lower import Lowered, lower
from .order import Order
from .uses import made_by, reads_of


def fuse(module: fx.GraphModule, dying: Collection[str] = ()) -> Schedule:
    """The graph as fused kernels and operator calls.

    `module` holds functional ATen ops; every node has its fake value in
    `meta["val"]`. Strides of the results are those of the fake values.
    `dying` names the inputs that nobody else holds during the call.
    """
    lowered = lower(module)
    returned = reads_of(lowered.outputs)
    inputs = [b for b in lowered.inputs if b and b.name in dying]
    groups = Order(Grouping(lowered.steps).groups, returned, inputs).run()
    steps = steps_of(groups, returned)
    used = returned.keys() | {
        name for step in steps for name in reads_of(step)}
    inputs = tuple(b if b is not None and b.name in used else None
                   for b in lowered.inputs)
    return Schedule(inputs, steps, lowered.outputs,
                    last_uses(steps, lowered), lowered.constants)


def steps_of(groups: list[Group],
             returned: Iterable[str]) -> tuple[Step, ...]:
    """Each group as a kernel or an operator call."""
    readers: dict[str, set[int]] = {name: {-1} for name in returned}
    for number, group in enumerate(groups):
        for _, step in group.steps:
            for name in reads_of(step):
                readers.setdefault(name, set()).add(number)
    steps: list[Step] = []
    kernels = 0
    for number, group in enumerate(groups):
        if group.body is None:
            steps.append(group.steps[0][1])
            continue
        needed = {name for name in group.body.stores
                  if readers.get(name, set()) - {number}}
        steps.append(kernel_of(group, kernels, needed))
        kernels += 1
    return tuple(steps)


def last_uses(steps: tuple[Step, ...],
              lowered: Lowered) -> tuple[tuple[str, ...], ...]:
    """For each step, the buffers that nobody needs after it.

    Memory that a call's result shares is needed as long as the result.
    """
    kept = reads_of(lowered.outputs).keys() | lowered.constants.keys()
    last: dict[str, int] = {}
    under: dict[str, set[str]] = {}
    for number, step in enumerate(steps):
        read = reads_of(step)
        made = [buffer.name for buffer in written_by(step)]
        if isinstance(step, Extern) and is_shared(step):
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


def written_by(step: Step) -> list[Buffer]:
    """The buffers that exist after a step and did not before."""
    return list(step.written.values()) if isinstance(
        step, Kernel) else made_by(step)


def is_shared(step: Extern) -> bool:
    """Whether the call's results lie in the memory of its arguments."""
    schema = getattr(step.target, "_schema", None)
    return schema is not None and any(
        result.alias_info for result in schema.returns)
