"""How a kernel's loops are run on a CPU: vectors, blocks, threads.

In: a simplified Kernel. Out: a Shape. Everything is decided from sizes
and strides, so that the same kernel always has the same shape, and the
same order of additions for any number of threads. Inductor decides this
in torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.index import Variable, guess, may_exceed, product
from ..core.loops import Kernel
from .nest import fastest, turned
from .stages import Stage

#: Work, in cheap operations, that is worth waking a second thread for.
GRAIN = 1 << 15
#: How many elements are summed as float before a double takes over.
BLOCK = 2048
#: The same where rows run side by side, each lane with its own sum.
LANE_BLOCK = 256
#: Into how many parts work is cut, at least, so that all threads have some.
PARTS = 32


@dataclass(frozen=True)
class Shape:
    """The loops of a kernel, outermost first.

    `rows` run one by one; `inner` is the vector loop. With `lanes` it is
    a variable of the row, and `block` rows run side by side; else it is
    one of the elements. `tile` is a second variable run in blocks, for
    transposed accesses. `parallel` is what threads share: "rows", the
    "elements" of a row, or nothing; they do from `worth` elements on.
    """

    rows: tuple[Variable, ...]
    reduced: tuple[Variable, ...]  # without `inner`
    inner: Variable | None
    lanes: bool
    block: int
    tile: Variable | None
    worth: int = 0
    parallel: str = ""

    @property
    def step(self) -> int:
        """How many elements one accumulator of the inner loop sees."""
        return LANE_BLOCK if self.lanes else BLOCK

    @property
    def groups(self) -> list[tuple[Variable, int]]:
        """The loops around those that one accumulator sees, with steps.

        Long loops are cut in blocks, so that no long sum is a chain of
        small additions to a large number.
        """
        inside = () if self.lanes or self.inner is None else (self.inner,)
        *outer, last = self.reduced + inside
        found = [(variable, 1) for variable in outer]
        return found + [(last, self.step)] * may_exceed(
            last.size, self.step)

    @property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        given = (self.tile, self.inner if self.lanes else None)
        return tuple(v for v in given
                     if v and may_exceed(v.size, self.block))

    @property
    def units(self) -> int:
        """How many pieces of work the loops over rows make, about."""
        return guess(product(v.size for v in self.rows)) * guess(product(
            (v.size + self.block - 1) // self.block for v in self.blocked))


def shape(kernel: Kernel, stages: tuple[Stage, ...], dear: int) -> Shape:
    """The shape of a kernel with this many dear operations."""
    inner = fastest(kernel)
    lanes = inner in kernel.ranges
    tile = turned(kernel, inner, lambda v: guess(v.size) >= 8) if (
        lanes and not kernel.reduced) else None
    rows = tuple(v for v in kernel.ranges if v not in (inner, tile))
    reduced = tuple(v for v in kernel.reduced if v is not inner)
    passes = sum(stage.pass_needed for stage in stages)
    block = 32 if tile else (_lanes(kernel, inner, rows, passes)
                             if lanes else 1)
    worth = GRAIN // (1 + 8 * dear + len(kernel.loops))
    found = Shape(rows, reduced, inner, lanes, block, tile, worth)
    return replace(found, parallel=_parallel(kernel, found))


def _lanes(kernel: Kernel, inner: Variable, rows: tuple[Variable, ...],
           passes: int) -> int:
    """How many rows run side by side: what the cache holds of them, yet
    few enough for all threads to have some."""
    size, length = guess(inner.size), max(1, guess(kernel.row_length))
    if inner.size.constant is None:
        size = max(size, 1024)
    if passes > 1:
        return min(size, max(16, (1 << 16) // length // 16 * 16))
    if length > LANE_BLOCK:
        return min(size, 1024)
    others = guess(product(v.size for v in rows))
    share = size * others // (4 * PARTS) // 64 * 64
    return min(size, max(1024 // length, share, 64))


def _parallel(kernel: Kernel, found: Shape) -> str:
    """What the threads share."""
    work = kernel.rows * kernel.row_length
    if not may_exceed(work, found.worth):
        return ""
    if (kernel.reduced and found.groups and found.units < PARTS
            and guess(work) > GRAIN * found.units):
        return "elements"
    symbolic = any(v.size.constant is None
                   for v in (*found.rows, *found.blocked))
    return "rows" if symbolic or found.units > 1 else ""
