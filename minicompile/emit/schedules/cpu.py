"""How a kernel's loops are run on a CPU: vectors, blocks, threads.

A vector reads neighbours at the price of one. So the innermost loop is the
variable whose neighbours lie side by side in as many loads and stores as
possible; a GPU's schedule asks for it, too. If that is a variable of the
row, a block of rows runs side by side, and each value that a row keeps is
an array with an element per row. Everything is decided from sizes
and strides, so a kernel adds in the same order for any number of threads.
Inductor decides this in torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.index import (Index, Variable, coefficient, guess, most_of,
                           product)
from ...core.loops import EXPENSIVE, Expression, Kernel
from ..cpp import ORDERS, LoopOrder
from ..writer import Stage, stages

#: Work, in cheap operations, that is worth waking a second thread for.
WAKING = 1 << 15
#: Into how many pieces work is cut, so that all threads have some.
PIECES = 32
#: How many rows run side by side, at most.
SIDE_BY_SIDE = 1 << 10
#: How many elements of scratch a row may keep on the stack.
ON_STACK = 1 << 13
#: The cost of an access whose neighbours read the same element, or next.
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


def is_expensive(node: Expression) -> bool:
    """Whether it costs far more than an access to the cache."""
    return getattr(node, "name", None) in EXPENSIVE


def ordered(kernel: Kernel) -> LoopOrder:
    """The loops in the order of memory.

    If the innermost is a variable of the row, rows run side by side, and
    with them a second variable if accesses are transposed. A row keeps its
    expensive values from pass to pass, if the stack holds them and rows do
    not run side by side.
    """
    inner, ranges = fastest(kernel), kernel.ranges
    lanes = (inner,) if inner in ranges else ()
    tile = turned_axis(kernel, inner, lambda v: guess(v.size) >= 8
                       ) if lanes and not kernel.reduced else None
    keeps = not lanes and most_of(kernel.row_length) <= ON_STACK
    work = stages(kernel, lambda node: keeps and is_expensive(node))
    costly = sum(is_expensive(node) for stage in work
                 for node in stage.body + stage.row)
    outer = tuple(v for v in ranges if v not in (inner, tile))
    return LoopOrder(
        work, outer, (tile, *lanes) if tile else lanes,
        tuple(sorted(kernel.reduced, key=inner.__eq__)),
        32 if tile else abreast(kernel, work, inner, outer) if lanes else 1,
        WAKING // (1 + 8 * costly + len(kernel.loops)))


def abreast(kernel: Kernel, work: tuple[Stage, ...], inner: Variable,
            outer: tuple[Variable, ...]) -> int:
    """How many rows run side by side: as many as the cache holds, but few
    enough for all threads to have some."""
    size = guess(inner.size)
    length = max(1, guess(kernel.row_length))
    if inner.size.constant is None:
        size = max(size, 1024)
    if sum(stage.pass_needed for stage in work) > 1:
        return min(size, max(16, (1 << 16) // length // 16 * 16),
                   SIDE_BY_SIDE * 64)
    others = guess(product(v.size for v in outer))
    share = size * others // (4 * PIECES) // 64 * 64
    return min(size, max(1024 // length, share, 64), SIDE_BY_SIDE)


ORDERS.append(ordered)
