"""How a kernel's points are dealt out to Triton programs and threads.

Nothing is timed: a thread gets two loads of 16 bytes, and the blocks are
small enough that every processor of the GPU gets two. Neighbours in memory
belong to neighbouring threads. In Inductor:
torch/_inductor/runtime/triton_heuristics.py.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain
from math import gcd, prod

from ...core.index import (Division, Index, Variable, atoms_of,
                           coefficient, guess, index, least_of, most_of,
                           not_negative, substitute)
from ...core.loops import Kernel, Load, draws, picked
from ..triton import NARROW, TILINGS, Axis, Tiling, pow2
from ..writer import stages
from .cpu import called, fastest, keeping, turned_axis
from .online import together

#: Blocks that fill the GPU twice: an H200 has 132 multiprocessors.
ENOUGH = 2 * 132
#: The bytes a thread loads of one tensor: twice what one load can take;
#: those of a line of the cache, which columns share; those of the columns
#: that the threads of a warp add up.
A_THREAD, A_LINE, A_WARP = 32, 128, 4096
#: The columns that share a program, if they are as short as this and one
#: load takes 16 bytes: half a line of the cache may do. It also does if
#: reductions keep step; then as many rows are met at a time.
BESIDE, BRIEF = 32, 256
#: The columns that share a program if there are many and a load takes one
#: element, as where rows begin at any place of a line of the cache.
ONE_BY_ONE = 64
#: The elements of a row that one block can keep in registers.
IN_REGISTERS = 40_000
#: The elements of rows that are met once, or of columns held whole, that
#: share a program; as many pairs of bytes of other rows. The elements of
#: the two variables of a tile, at least; of a row that is one thread's.
TOGETHER, LEAST_TILE, A_ROW = 2048, 512, 8
#: The elements of columns that one block can keep in registers.
HELD = 16_384
#: The loads of one tensor that make a window of neighbours.
WINDOW = 4
#: A variable of so many neighbours is as good as a longer one: the next
#: one goes on where it ends.
FEW_BESIDE = 4
#: The elements of a block that walks along rows, and of one that does so
#: once, with work at each step; of all such blocks, if sums follow a
#: maximum; the bytes of a block that walks down columns.
WALKED, ONLINE, AT_A_TIME, DOWN_COLUMNS = 8192, 2048, 1 << 21, 32_768
#: The registers that one of these needs to compute, beside its operand.
LENGTHY = frozenset("erf erfc lgamma pow".split())
WORKING = 2


def tile(kernel: Kernel) -> Tiling:
    """A line, a tile of two variables, rows or columns."""
    first = fastest(kernel, FEW_BESIDE)
    second = turned_axis(kernel, first, partial(
        has_tiles, first)) if first else None
    if kernel.reduced:
        tiling = rows(kernel) if first in kernel.reduced else (
            columns(kernel, first))
    else:
        tiling = plane(kernel, first, second) if second else (
            line(kernel, first))
    return counting(kernel, tiling)


def counting(kernel: Kernel, tiling: Tiling) -> Tiling:
    """The tiling, its positions as wide as they have to be."""
    large = wide(kernel, tiling)
    if any(least_of(number) > NARROW for number in large):
        return tiling
    return replace(tiling, counted="WIDE" if large else "", large=large)


def line(kernel: Kernel, first: Variable | None) -> Tiling:
    """All points in a row; few a thread, if each reads its neighbours."""
    loads = {load for loop in kernel.loops for load in loop.loads}
    moved = [load for load in loads
             if first is None or first in atoms_of(load.index)]
    size = max(each.dtype.itemsize for each in (
        *moved, *kernel.written.values()))
    thread = A_THREAD // size
    if size == 2 and "erf" in called(kernel):
        thread *= 2  # they share the constants that it loads
    beside = Counter(load.buffer for load in loads
                     if not picked(load.index))
    if max(beside.values(), default=0) >= WINDOW:
        thread = 2
    block = _fitted(_count(kernel.rows), 128 * thread, 128)
    across = tuple(sorted(kernel.ranges, key=first.__eq__))
    return Tiling((Axis("x", across, block),),
                  max(1, block // (32 * thread)))


def has_tiles(first: Variable, second: Variable) -> bool:
    """Whether a tile of the two has long sides, or one and a short one."""
    sides = _count(first.size), _count(second.size)
    return min(sides) > 2 and prod(sides) >= LEAST_TILE


def plane(kernel: Kernel, first: Variable, second: Variable) -> Tiling:
    """Tiles of two variables, for accesses that are transposed. The others
    go with the longer one."""
    others = tuple(v for v in kernel.ranges if v not in (first, second))
    down, across = (pow2(_count(each.size)) for each in (second, first))
    edge = 64 if _count(kernel.rows) >= ENOUGH * 64 * 64 else 32
    y = Axis("y", (*(others if down >= across else ()), second), min(
        down, max(edge, edge * edge // across)))
    x = Axis("x", (*(others if down < across else ()), first), min(
        across, edge * edge // y.block))
    return Tiling((y, x), max(1, y.block * x.block // 512))


def rows(kernel: Kernel) -> Tiling:
    """Whole rows in registers. A thread walks along a row of a few
    elements, unless many of them are stored, or loads bring all together.
    One warp has a program's rows if these are short and met many times.
    """
    count, met = _count(kernel.rows), passes(kernel)
    most = min(most_of(kernel.row_length), 2 * IN_REGISTERS)
    whole = pow2(most)
    loads = {load for loop in kernel.loops for load in loop.loads
             if varies_in_rows(load.index, kernel)}
    read = {load for load in loads if load.buffer in kernel.read}
    size = max((load.dtype.itemsize for load in read), default=4)
    stores = any(varies_in_rows(loop.index, kernel) for loop in kernel.loops
                 if loop.buffer.name in kernel.written)
    if whole * registers(kernel) > IN_REGISTERS or (
            met == 1 and whole > 2 * ONLINE and called(kernel)):
        return long_rows(kernel, read, stores)
    if whole <= A_ROW >> stores and (
            most < whole or at_once(loads, kernel.ranges) == 1):
        return Tiling((Axis("x", kernel.ranges, _fitted(count, 256, 128)),
                       Axis("r", kernel.reduced, 1)), 4, looped="r")
    several = TOGETHER if met == 1 else lower_pow2(
        2 * TOGETHER // (size * max(1, len(loads))))
    if met > 2 and stores and whole <= 32 * at_once(loads, kernel.ranges):
        several = min(several, A_WARP // 4)
    block = max(1, min(several // whole, pow2(count // ENOUGH)))
    return Tiling((Axis("x", kernel.ranges, block),
                   Axis("r", kernel.reduced, whole)),
                  warps_for(kernel, block * whole, whole, loads))


def long_rows(kernel: Kernel, read: set[Load], stores: bool) -> Tiling:
    """Rows that are walked along: too long for registers, or met once, to
    call functions, so that nothing reads them again. A thread has 16
    elements under way, if these loads take 16 bytes each. It has 8 if they
    bring one element, or if reductions keep step. It has 4 if these are
    all there is to do, or if weights come one by one, too."""
    met, functions = passes(kernel), called(kernel)
    even = fills(read, kernel.ranges)
    led = ways(kernel)
    shared = not even and weighted(kernel)
    narrow = shared or not even and any(
        load.dtype.itemsize < 4 for load in read)
    block = WALKED >> narrow >> bool(functions & LENGTHY)
    for_each = 512 if even else 256
    if met == 1 and functions:
        block, for_each = ONLINE, 256
    elif met == 2 and "exponentials" in led:
        block, for_each = max(ONLINE, min(WALKED, lower_pow2(
            AT_A_TIME // _count(kernel.rows)))), 512
    elif led - {"exponentials"}:
        block, for_each = (block, 256) if stores and not shared else (
            ONLINE, 128)
    block = min(block, max(128, pow2(guess(kernel.row_length))))
    return Tiling((Axis("x", kernel.ranges, 1),
                   Axis("r", kernel.reduced, block)),
                  max(1, block // for_each), looped="r")


def weighted(kernel: Kernel) -> bool:
    """Whether elements are read that all rows have in common."""
    return any(not atoms_of(load.index).isdisjoint(kernel.reduced)
               and not varies_in_rows(load.index, kernel)
               for loop in kernel.loops for load in loop.loads)


def warps_for(kernel: Kernel, elements: int, row: int,
              loads: set[Load]) -> int:
    """How many warps work on rows. They wait for each other wherever they
    reduce a row together, so a short one is left to a single warp, even if
    that has to load several times. More of them hide how long functions
    take of elements that are met once."""
    near = at_once(loads, kernel.ranges)
    if draws(kernel.loops):
        for_each = 256
    elif passes(kernel) == 1 and called(kernel):
        for_each = 512
    elif row <= 32 * near:
        for_each = min(1024, 512 * near)
    else:
        for_each = 2048 if row < 2048 else 1024
    return max(1, min(8, elements // for_each), elements // 2048)


def varies_in_rows(where: Index, kernel: Kernel) -> bool:
    """Whether it differs from row to row, and from element to element."""
    used = atoms_of(where)
    return not (used.isdisjoint(kernel.ranges)
                or used.isdisjoint(kernel.reduced))


def at_once(loads: set[Load], others: tuple[Variable, ...]) -> int:
    """How many neighbours one instruction loads, at most 16 bytes, if
    these lie at multiples of that, whatever the other variables are."""
    return min((gcd(16 // load.dtype.itemsize, *(
        guess(coefficient(load.index, v) or index(0)) for v in others))
        for load in loads), default=1)


def fills(loads: set[Load], others: tuple[Variable, ...]) -> bool:
    """Whether one instruction loads 16 bytes of the widest elements."""
    return at_once(loads, others) * max(
        (load.dtype.itemsize for load in loads), default=1) >= 16


def passes(kernel: Kernel) -> int:
    """How many times the elements of a row are met."""
    return sum(bool(stage.body) for stage in stages(kernel))


def ways(kernel: Kernel) -> set[str]:
    """How reductions keep step with others, if a block walks along."""
    return {way for way, _ in together(stages(kernel)).values()}


def registers(kernel: Kernel) -> int:
    """How many registers an element needs: from one pass to the next, and
    while it is worked on."""
    work = keeping(stages(kernel), lambda node: True)
    most, made = 1, set()
    for number, stage in enumerate(work):
        later = made.intersection(
            node for after in work[number:] for node in after.again)
        most = max(most, sum(max(4, node.dtype.itemsize) // 4
                             for node in later))
        made.update(stage.body)
    return most + WORKING * bool(called(kernel) & LENGTHY)


def columns(kernel: Kernel, first: Variable) -> Tiling:
    """Neighbouring columns together, their rows walked along; or whole, if
    several passes read them; a few columns apart. A thread has few of their
    elements under way if reductions keep step, or if a load brings one
    element of a short column.

    The registers of a thread hold its part of each sum and of each load,
    of which 8 are under way, whether one brings 16 bytes or one element.
    """
    count, length = _count(kernel.rows), kernel.row_length
    whole = pow2(min(most_of(length), 2 * HELD))
    across = tuple(sorted(kernel.ranges, key=first.__eq__))
    led = ways(kernel) - {"exponentials"}
    sums = [loop for loop in kernel.loops if loop.reduction is not None]
    read = {load for loop in sums for load in loop.loads
            if first in atoms_of(load.index)}
    even = fills(read, kernel.reduced)
    if not even and _count(first.size) >= 8 * ONE_BY_ONE and (
            led or passes(kernel) == 1):
        down = min(whole, 8 if whole <= 2 * BRIEF else lower_pow2(
            BESIDE // len(sums)))
        return Tiling((Axis("x", across, ONE_BY_ONE),
                       Axis("r", kernel.reduced, down)), 8,
                      looped="r" * (most_of(length) > down))
    if led and _count(first.size) >= BESIDE and whole > 2 * BESIDE:
        return Tiling((Axis("x", across, BESIDE),
                       Axis("r", kernel.reduced, BESIDE)), 2, looped="r")
    if passes(kernel) > 1 and whole * 16 <= HELD:
        block = min(64, max(16, TOGETHER // whole))
        return Tiling((Axis("x", across, block),
                       Axis("r", kernel.reduced, whole)),
                      max(1, block * whole // 1024))
    sizes = [load.dtype.itemsize for load in read] or [4]
    taken = sum(sizes) if even else 16 // max(sizes) * sum(sizes)
    line = BESIDE if even and whole <= BRIEF else A_LINE // max(sizes)
    block = _fitted(2 * count, max(16, line, lower_pow2(
        A_WARP // (sum(sizes) * whole))), 16) if count >= 16 else 1
    down = min(whole, lower_pow2(
        DOWN_COLUMNS // (block * (len(sums) or 1) * taken)))
    warps = min(8, lower_pow2(block * down * taken // A_WARP))
    return Tiling((Axis("x", across, block),
                   Axis("r", kernel.reduced, down)), warps,
                  looped="r" * (most_of(length) > down))


def wide(kernel: Kernel, tiling: Tiling) -> tuple[Index, ...]:
    """The numbers that may be too large for 32 bits, if any is met while
    positions are computed; a constant one is."""
    found = dict.fromkeys(
        number for loop in kernel.loops for where in loop.indices
        for number in _reach(tiling.place(where)))
    large = [most for most in found if most_of(most) > NARROW]
    return tuple(a for a in large if not any(
        b is not a and not_negative(b - a) for b in large))


def _reach(where: Index) -> list[Index]:
    """No number met while computing `where` is further from 0 than the
    largest of these; the first is for `where` itself."""
    inside = {atom: _reach(atom.dividend) for atoms, _ in where.terms
              for atom in atoms if isinstance(atom, Division)}
    most = {atom: reached[0] // atom.divisor if atom.sign == "//"
            else atom.divisor for atom, reached in inside.items()}
    most |= {atom: atom.size for atom in atoms_of(where)
             if isinstance(atom, Variable)}
    positive = Index({atoms: abs(n) for atoms, n in where.terms})
    return [substitute(positive, most), *chain(*inside.values())]


def _fitted(count: int, most: int, least: int) -> int:
    """A block of at most `most` points, so that there are enough blocks.
    """
    block = min(most, max(least, pow2(count // ENOUGH)))
    return min(block, pow2(count))


def lower_pow2(count: int) -> int:
    """The greatest power of two that is not above `count`; at least 1."""
    return pow2(count // 2 + 1)


def _count(size: Index) -> int:
    """How many there are; enough to keep the GPU busy, if not known."""
    return max(guess(size), 0 if size.constant is not None else 1 << 12)


TILINGS.append(tile)
