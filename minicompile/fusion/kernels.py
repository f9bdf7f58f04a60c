"""Groups become kernels: sorted, named, and rid of needless buffers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..core.loops import Expression, Kernel, Load, Loop, rewrite
from .group import Group
from .space import over


def kernel_of(group: Group, number: int, needed: set[str]) -> Kernel:
    """The group as a Kernel; `needed` buffers are read outside of it."""
    body = group.body
    at = {step.buffer.name: position for position, step in group.steps}
    order = sorted(body.loops, key=lambda loop: at[loop.buffer.name])
    loops = without_relays([over(loop, body.space) for loop in order],
                           needed)
    internal = frozenset(loop.buffer.name for loop in loops
                         if loop.buffer.name not in needed)
    return Kernel(name_of(number, loops), body.space.ranges,
                  body.space.reduced, tuple(loops), internal)


def without_relays(loops: list[Loop], needed: set[str]) -> list[Loop]:
    """The loops, one that only feeds one other being written into it."""
    readers = Counter(name for loop in loops for name in
                      {load.buffer for load in loop.loads})
    kept: list[Loop] = []
    inlined: dict[str, Expression] = {}
    for place, loop in enumerate(loops):
        loop = substituted(loop, inlined)
        name = loop.buffer.name
        if (name not in needed and loop.reduction is None
                and readers[name] == 1
                and is_relay(loop, loops[place + 1:])):
            inlined[name] = loop.value
        else:
            kept.append(loop)
    return kept


def is_relay(loop: Loop, later: list[Loop]) -> bool:
    """Whether the only reader runs over the same points, unmasked."""
    for reader in later:
        loads = [load for load in reader.loads
                 if load.buffer == loop.buffer.name]
        if loads:
            return (reader.ranges + reader.reduced == loop.ranges
                    and all(load.mask is None for load in loads))
    return False


def substituted(loop: Loop, values: dict[str, Expression]) -> Loop:
    """The loop with loads of some buffers replaced by what they hold."""
    if not any(load.buffer in values for load in loop.loads):
        return loop
    value = rewrite(loop.value, lambda part: values.get(
        part.buffer, part) if isinstance(part, Load) else part)
    return replace(loop, value=value)


def name_of(number: int, loops: Iterable[Loop]) -> str:
    """`kernel_3_amax_exp_sum_div`: a number, and the first few nodes."""
    nodes = " ".join(loop.origin for loop in loops).split()
    plain = dict.fromkeys(re.sub(r"_\d+$", "", node) for node in nodes)
    return "_".join([f"kernel_{number}", *list(plain)[:4]])
