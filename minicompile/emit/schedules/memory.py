"""Which loop runs along memory.

A vector, or a warp, reads neighbours at the price of one. So the innermost
loop should be the variable whose neighbours lie side by side, in as many
of a kernel's loads and stores as possible. Inductor asks this in
torch/_inductor/scheduler.py:pick_loop_order.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.index import Index, Variable, coefficient, guess
from ...core.loops import Kernel

#: What an access costs if neighbours read the same element, or the next.
STEP_COST = {0: 0.02, 1: 0.1, -1: 0.1}


def fastest(kernel: Kernel) -> Variable | None:
    """The variable whose neighbours lie side by side in memory."""
    return min((kernel.ranges + kernel.reduced)[::-1], default=None,
               key=lambda variable: _cost(kernel, variable))


def _cost(kernel: Kernel, variable: Variable) -> float:
    """The cache lines touched for each point if this one is innermost."""
    steps = [coefficient(where, variable) for where in accesses(kernel)]
    cost = sum(1.0 if step is None else STEP_COST.get(step.constant, 1.0)
               for step in steps)
    return (cost + 0.01) * max(1.0, 16 / (guess(variable.size) or 64))


def turned_axis(kernel: Kernel, first: Variable,
                fits: Callable[[Variable], bool]) -> Variable | None:
    """A variable that fits, and is side by side where `first` is not."""
    strided = [where for where in accesses(kernel)
               if coefficient(where, first) not in (0, 1)]
    return next((v for v in kernel.ranges if v is not first and fits(v)
                 and any(coefficient(where, v) == 1 for where in strided)),
                None)


def accesses(kernel: Kernel) -> list[Index]:
    """The index of every load and store of memory."""
    found = [(loop.buffer.name, loop.index) for loop in kernel.loops]
    found += [(load.buffer, load.index) for loop in kernel.loops
              for load in loop.loads]
    return [where for name, where in dict.fromkeys(found)
            if name not in kernel.internal]
