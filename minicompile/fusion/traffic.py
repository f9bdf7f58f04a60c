"""How many elements a schedule moves: what fusion is there to lower.

A kernel reads each element of its inputs once, however many loops ask
for it, and writes its results; an operator reads its arguments and
writes its results.
"""

from __future__ import annotations

from ..core.index import Index
from ..core.loops import Extern, Kernel, Schedule, View
from torch.utils._pytree import tree_leaves

from .group import touched
from .values import elements


def moved(schedule: Schedule) -> int:
    """Elements read and written by all steps together."""
    return sum(kernel_traffic(step) if isinstance(step, Kernel)
               else call_traffic(step) for step in schedule.steps)


def kernel_traffic(kernel: Kernel) -> int:
    """Elements a kernel reads from outside and writes for others."""
    places: dict[str, set[Index]] = {}
    for loop in kernel.loops:
        for load in loop.loads:
            if load.buffer in kernel.read:
                places.setdefault(load.buffer, set()).add(load.index)
    read = sum(touched(where) for at in places.values() for where in at)
    return read + sum(elements(buffer.shape)
                      for buffer in kernel.written.values())


def call_traffic(call: Extern) -> int:
    """Elements of an operator's arguments and results."""
    leaves = tree_leaves((call.args, call.kwargs),
                         is_leaf=lambda leaf: isinstance(leaf, View))
    views = [leaf for leaf in leaves if isinstance(leaf, View)]
    return sum(elements(size for size, step in zip(view.shape, view.stride)
                        if step != 0) for view in views) + sum(
        elements(buffer.shape) for buffer in call.outputs if buffer)
