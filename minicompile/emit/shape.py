"""How a kernel's loops are run on a CPU: vectors, blocks, threads.

In: a simplified Kernel. Out: a Shape. Everything is decided from sizes
and strides, so that the same kernel always has the same shape, and the
same order of additions for any number of threads. Inductor decides this
in torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.index import Variable, product
from ..core.loops import Kernel
from .nest import accesses, coefficient, fastest
from .stages import Stage

#: Work, in cheap operations, that is worth waking a second thread for.
GRAIN = 1 << 15
#: How many elements are summed as float before a double takes over.
BLOCK = 2048
#: Into how many parts a row is cut where rows are too few for threads.
PARTS = 32


@dataclass(frozen=True)
class Shape:
    """The loops of a kernel, outermost first.

    `rows` run one by one; `inner` is the vector loop. With `lanes` it is
    a variable of the row, and `block` rows run side by side; else it is
    one of the elements, `block` of which are reduced together. `tile` is
    a second variable run in blocks, for transposed accesses. `parallel`
    is what threads share: "rows", the "elements" of a row, or nothing.
    """

    rows: tuple[Variable, ...]
    reduced: tuple[Variable, ...]
    inner: Variable | None
    lanes: bool
    block: int
    tile: Variable | None
    parallel: str


def shape(kernel: Kernel, stages: tuple[Stage, ...], dear: int) -> Shape:
    """The shape of a kernel with this many dear operations."""
    inner = fastest(kernel)
    lanes = inner in kernel.ranges
    tile = _tile(kernel, inner) if lanes and not kernel.reduced else None
    rows = tuple(v for v in kernel.ranges if v not in (inner, tile))
    reduced = tuple(v for v in kernel.reduced if v is not inner)
    passes = sum(stage.pass_needed for stage in stages)
    block = 32 if tile else _block(kernel, inner, lanes, rows, passes)
    units = _units(rows, inner, tile, block, lanes)
    return Shape(rows, reduced, inner, lanes, block, tile,
                 _parallel(kernel, dear, units))


def _tile(kernel: Kernel, inner: Variable) -> Variable | None:
    """A variable along which some access runs that strides over `inner`."""
    strided = [where for where in accesses(kernel)
               if not _near(coefficient(where, inner))]
    for variable in kernel.ranges:
        if variable is not inner and int(variable.size) >= 8 and any(
                coefficient(where, variable) == 1 for where in strided):
            return variable
    return None


def _near(step) -> bool:
    """Whether neighbours read the same element or the next."""
    return step is not None and step.constant in (0, 1)


def _block(kernel: Kernel, inner: Variable | None, lanes: bool,
           rows: tuple[Variable, ...], passes: int) -> int:
    """How many steps of the inner loop make a block."""
    if inner is None:
        return 1
    size, others = int(inner.size), int(product(v.size for v in rows))
    if not lanes:
        return BLOCK
    if not kernel.reduced:
        return size if others >= PARTS else min(size, max(
            1024, size * others // (4 * PARTS) // 64 * 64))
    if passes > 1:
        fitting = (1 << 16) // max(1, int(kernel.row_length))
        return min(size, max(16, fitting // 16 * 16))
    return min(size, 1024)


def _units(rows: tuple[Variable, ...], inner: Variable | None,
           tile: Variable | None, block: int, lanes: bool) -> int:
    """How many pieces of work the loops over rows make."""
    blocked = [v for v in (inner if lanes else None, tile) if v]
    return int(product(v.size for v in rows)) * int(product(
        -(-int(v.size) // block) for v in blocked))


def _parallel(kernel: Kernel, dear: int, units: int) -> str:
    """What the threads share."""
    work = int(kernel.rows) * int(kernel.row_length)
    if work * (1 + 8 * dear + len(kernel.loops)) < GRAIN:
        return ""
    if units < PARTS and kernel.reduced and work > GRAIN * units:
        return "elements"
    return "rows" if units > 1 else ""
