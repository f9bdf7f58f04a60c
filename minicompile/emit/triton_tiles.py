"""How a kernel's points are dealt out to Triton programs and threads.

In: a kernel. Out: a Tiling: one or two axes, each a run of loop variables
seen as one number, with a block size. Nothing is timed: a thread gets two
loads of 16 bytes and the blocks are small enough that every processor of
the GPU gets two. In Inductor: torch/_inductor/runtime/triton_heuristics.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..core.index import (Division, Index, Symbol, Variable, atoms_of,
                          fold, guess, index, may_exceed, most_of,
                          not_negative, product, substitute)
from ..core.layout import unflatten
from ..core.loops import Kernel, Op, walk
from .nest import fastest, indices, turned
from .stages import Stage, everything, stages

#: Blocks that fill the GPU twice: an H200 has 132 multiprocessors.
ENOUGH = 2 * 132
#: The bytes a thread loads of one tensor: twice what one load can take.
A_THREAD = 32
#: The elements of a row that one block can keep in registers.
IN_REGISTERS = 40_000
#: Positions up to this one are counted in 32 bits.
NARROW = 2 ** 31 - 2 ** 20 - 1
#: The elements of a block that walks along rows, or down columns.
WALKING, DOWN = 4096, 16_384
#: What computing one of these needs in registers, beside its operand.
LONG = frozenset("erf erfc lgamma pow".split())
WORKING = 2


@dataclass(frozen=True)
class Axis:
    """Loop variables that are counted as one, in blocks."""

    name: str
    variables: tuple[Variable, ...]
    block: int

    @property
    def length(self) -> str:
        """The name of the block's size in the kernel."""
        return f"{self.name.upper()}BLOCK"

    @property
    def size(self) -> Index:
        """How many points the axis has."""
        return product(variable.size for variable in self.variables)

    @property
    def blocks(self) -> Index:
        """How many blocks cover the axis."""
        return (self.size + self.block - 1) // self.block

    @property
    def even(self) -> bool:
        """Whether the last block is full: no mask is needed."""
        return self.size % self.block == 0

    def coordinates(self) -> dict[Variable, Index]:
        """The loop variables in terms of the one number."""
        number = index(Variable(self.name, self.size))
        sizes = tuple(variable.size for variable in self.variables)
        return dict(zip(self.variables, unflatten(number, sizes)))


@dataclass(frozen=True)
class Tiling:
    """A kernel's axes; with `looped` a block walks along the last one."""

    axes: tuple[Axis, ...]
    warps: int
    reduces: bool = False
    looped: bool = False

    def __post_init__(self):
        sizes = (self.warps, *(axis.block for axis in self.axes))
        assert all(size == _power(size) for size in sizes), self

    @property
    def grid(self) -> Index:
        """How many programs run."""
        return product(axis.blocks for axis in self.outer)

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes that are dealt out to programs."""
        return self.axes[:-1] if self.reduces else self.axes

    def place(self, where: Index) -> Index:
        """An index of the kernel in terms of the axes' numbers."""
        return substitute(where, {
            variable: number for axis in self.axes
            for variable, number in axis.coordinates().items()})

    def along(self, where: Index) -> frozenset[str]:
        """The names of the axes that an index depends on."""
        used = atoms_of(where)
        return frozenset(axis.name for axis in self.axes
                         if not used.isdisjoint(axis.variables))


def tile(kernel: Kernel) -> Tiling:
    """The Tiling of a kernel whose loop nest is simplified."""
    first = fastest(kernel)
    if not kernel.reduced:
        second = first and turned(kernel, first, lambda v: min(
            _count(v.size), _count(first.size)) >= 16)
        return _plane(kernel, first, second) if second else (
            _line(kernel, first))
    if first in kernel.reduced:
        return _rows(kernel)
    return _columns(kernel, first)


def _line(kernel: Kernel, first: Variable | None) -> Tiling:
    """All points in a row."""
    count, thread = _count(kernel.rows), A_THREAD // _widest(kernel)
    block = _fitted(count, 128 * thread, 128)
    return Tiling((Axis("x", _last(kernel.ranges, first), block),),
                  max(1, block // (32 * thread)))


def _widest(kernel: Kernel) -> int:
    """Bytes of the widest element that the kernel reads or writes."""
    loads = (load for loop in kernel.loops for load in loop.loads)
    return max(moved.dtype.itemsize
               for moved in (*loads, *kernel.written.values()))


def _plane(kernel: Kernel, first: Variable, second: Variable) -> Tiling:
    """Tiles of two variables, for accesses that are transposed."""
    others = tuple(v for v in kernel.ranges if v != first)
    count = _count(kernel.rows)
    edge = 64 if count >= ENOUGH * 64 * 64 else 32
    axes = (Axis("y", _last(others, second), edge),
            Axis("x", (first,), min(edge, _power(_count(first.size)))))
    return Tiling(axes, max(1, axes[0].block * axes[1].block // 512))


def _rows(kernel: Kernel) -> Tiling:
    """Whole rows in registers; a row too long is walked along."""
    rows, length = _count(kernel.rows), most_of(kernel.row_length)
    registers = kept(stages(kernel, everything)) + _working(kernel)
    if length == inf or _power(length) * registers > IN_REGISTERS:
        walking = min(WALKING, max(128, _power(guess(kernel.row_length))))
        return _reduction(kernel, kernel.ranges, 1, walking,
                          max(1, walking // 512), looped=True)
    whole = _power(length)
    block = max(1, min(2048 // whole, _power(rows // ENOUGH)))
    elements = block * whole
    warps = max(1, min(8, elements // 1024), elements // 2048)
    return _reduction(kernel, kernel.ranges, block, whole, warps)


def _working(kernel: Kernel) -> int:
    """The registers an element needs while it is worked on."""
    nodes = (node for loop in kernel.loops for node in walk(loop.value))
    return WORKING * any(isinstance(node, Op) and node.name in LONG
                         for node in nodes)


def _columns(kernel: Kernel, first: Variable) -> Tiling:
    """Neighbouring columns together, their rows walked along."""
    columns, length = _count(kernel.rows), kernel.row_length
    block = _fitted(2 * columns, 64, 16)
    whole = _power(_count(length))
    sums = sum(loop.reduction is not None for loop in kernel.loops)
    rows = min(whole, _within(DOWN // (block * sums)))
    warps = max(1, min(8, block * rows // 512))
    return _reduction(kernel, _last(kernel.ranges, first), block, rows,
                      warps, looped=may_exceed(length, rows))


def _reduction(kernel: Kernel, ranges: tuple[Variable, ...], block: int,
               length: int, warps: int, looped: bool = False) -> Tiling:
    """A Tiling of a kernel that reduces."""
    axes = Axis("x", ranges, block), Axis("r", kernel.reduced, length)
    return Tiling(axes, warps, True, looped)


def kept(work: tuple[Stage, ...]) -> int:
    """How many registers an element needs from one pass to the next."""
    most, made = 1, set()
    for number, stage in enumerate(work):
        later = made.intersection(
            local for after in work[number:] for local in after.again)
        most = max(most, sum(max(4, local.dtype.itemsize) // 4
                             for local in later))
        made.update(stage.body)
    return most


def wide(kernel: Kernel, tiling: Tiling) -> tuple[Index, ...]:
    """The numbers that may be too large for 32 bits, if any is met while
    positions are computed; a constant one is."""
    found: dict[Index, None] = {}
    for where in indices(kernel):
        found |= dict.fromkeys(_reach(tiling.place(where)))
    large = [most for most in found if may_exceed(most, NARROW)]
    return tuple(a for a in large if not any(
        b is not a and not_negative(b - a) for b in large))


def _reach(where: Index) -> list[Index]:
    """No number met while computing `where` is further from 0 than the
    largest of these; the first is for `where` itself."""
    inside: list[Index] = []

    def most(atom: Symbol | Variable | Division) -> Index:
        match atom:
            case Symbol():
                return index(atom)
            case Variable(_, size):
                return size
        reached = _reach(atom.dividend)
        inside.extend(reached)
        return (reached[0] // atom.divisor if atom.sign == "//"
                else atom.divisor)
    positive = Index({atoms: abs(n) for atoms, n in where.terms})
    return [index(fold(positive, most)), *inside]


def _fitted(count: int, most: int, least: int) -> int:
    """A block of at most `most` points, so that there are enough blocks.
    """
    block = min(most, max(least, _power(count // ENOUGH)))
    return min(block, _power(count))


def _count(size: Index) -> int:
    """How many there are; enough to keep the GPU busy, if not known."""
    return max(guess(size), 0 if size.constant is not None else 1 << 12)


def _power(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def _within(count: int) -> int:
    """The largest power of two that is not above `count`; at least 1."""
    return _power(count // 2 + 1)


def _last(variables: tuple[Variable, ...],
          last: Variable | None) -> tuple[Variable, ...]:
    """The variables with `last` behind the others."""
    others = tuple(v for v in variables if v != last)
    return others + tuple(v for v in variables if v == last)
