"""How many elements a schedule moves: what fusion is there to lower.

A kernel reads each element of its inputs once, however many loops ask
for it, and writes its results; an operator reads its arguments and
writes its results. PyTorch counts so in its test_perf.py.
"""

from __future__ import annotations

from ..core.index import Index
from ..core.loops import Buffer, Kernel
from ..core.schedule import Extern, Schedule, View, made_by, views_in
from .values import elements, touched


def moved(schedule: Schedule) -> int:
    """Elements read and written by all steps together."""
    sizes = {name: tensor.numel()
             for name, tensor in schedule.constants.items()}
    sizes |= {name: memory(buffer)
              for name, buffer in schedule.buffers.items()}
    return sum(kernel_traffic(step, sizes) if isinstance(step, Kernel)
               else call_traffic(step) for step in schedule.steps)


def memory(view: Buffer | View) -> int:
    """How many elements lie there, repeated ones counted once."""
    return elements(size for size, step in zip(
        view.shape, view.stride, strict=True) if step != 0)


def kernel_traffic(kernel: Kernel,
                   sizes: dict[str, int] | None = None) -> int:
    """Elements that a kernel reads from outside, and writes for others;
    of a buffer no more than its size, if that is given."""
    places: dict[str, set[Index]] = {}
    for loop in kernel.loops:
        for load in loop.loads:
            places.setdefault(load.buffer, set()).add(load.index)
    read = {name: sum(map(touched, places[name])) for name in kernel.read}
    most = sizes or {}
    return (sum(min(n, most.get(name, n)) for name, n in read.items())
            + sum(map(memory, made_by(kernel))))


def call_traffic(call: Extern) -> int:
    """Elements of an operator's arguments and results."""
    return sum(map(memory, [*views_in(call), *made_by(call)]))
