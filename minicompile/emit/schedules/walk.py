"""Programs that walk along the rows of a chunk and reduce its columns.

In: a row kernel with loops that reduce chunks of rows. Out: a program for
each chunk. It works on one block of rows after the other, as on whole rows
elsewhere, and keeps a reduction for each column in registers. It stores
these after its last row. A weight is loaded before the first row; the next
rows are loaded while a program works on a block. Inductor's is
torch/_inductor/codegen/triton.py, with `RSPLIT`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd

from ...core.index import Index, Variable, atoms_of, index
from ...core.loops import (WALKING, Expression, Kernel, Load, Loop,
                           flatten, rewrite, row_major)
from ...core.semantics.evaluate import decided
from ..target import TRITON
from ..triton import TILINGS, WRITERS, Axis, Tiling, TritonWriter, pow2
from ..writer import Fold, Store, reached, stages
from .gpu import counting

#: The elements of a block of rows, at most, and the warps for them.
BLOCK, WARPS = 4096, 8
#: How many blocks are under way, if so many bytes hold them.
STAGES, BYTES = 3, 160 << 10


@dataclass(frozen=True)
class Walk(Tiling):
    """Blocks of rows that a program takes one after the other."""

    chunks: Index = index(1)
    flat = False

    @property
    def grid(self) -> Index:
        """A program for each chunk."""
        return self.chunks


@dataclass(frozen=True, eq=False)
class Down(Fold):
    """A reduction over the rows of a chunk, for each element of a row,
    which goes into a `buffer`."""

    buffer: str


def down(kernel: Kernel) -> list[Loop]:
    """The loops that reduce the rows of a chunk."""
    return [loop for loop in kernel.loops
            if loop.reduced and loop.reduced != kernel.reduced]


def walking(kernel: Kernel) -> Tiling:
    """Whole rows in registers, some of them at a time."""
    if not down(kernel):
        return before(kernel)
    loop, *_ = sums = down(kernel)
    whole = pow2(int(kernel.row_length))
    held = len(sums) + len({
        load.buffer for loop in kernel.loops for load in loop.loads
        if not atoms_of(load.index).isdisjoint(kernel.reduced)})
    block = min(BLOCK, pow2(WALKING["cuda"] // held // 2 + 1))
    together = gcd(max(1, block // whole), *(
        number for _, number in loop.reduced[0].size.terms))
    return counting(kernel, Walk(
        (Axis("x", kernel.ranges, together),
         Axis("r", kernel.reduced, whole)),
        max(min(WARPS, together * whole // 256), whole // 512, 1),
        chunks=loop.ranges[0].size))


def by_element(kernel: Kernel) -> Kernel:
    """The kernel with each row in place of its chunk and its place there;
    a reduction of rows is a store of what an element adds to it."""
    row, known = Variable("row", kernel.rows), flatten(
        map(index, kernel.ranges), row_major(tuple(
            v.size for v in kernel.ranges)))

    def changed(loop: Loop) -> Loop:
        if loop not in sums:
            return loop
        chunk, (place,) = loop.ranges[0], loop.reduced
        loop = loop.over({chunk: index(row) // place.size,
                          place: index(row) % place.size}, (), ())
        loop = replace(loop, reduction=None,
                       value=rewrite(loop.value, decided))
        return loop.over({row: known}, kernel.ranges + kernel.reduced, ())
    sums = down(kernel)
    return replace(kernel, loops=tuple(map(changed, kernel.loops)))


@dataclass
class WalkingWriter(TritonWriter):
    """A writer of a kernel by element; `sums` has its loops down columns,
    by what they store."""

    sums: dict[str, Loop] = field(kw_only=True)

    def point(self, axis: Axis, text: str) -> None:
        """Write an axis's numbers; before the walk, this program's chunk
        and the lanes of a block of rows."""
        if axis.name == "r" or self.depth > 1:
            return super().point(axis, text)
        loop, *_ = self.sums.values()
        program, lane = text.split(f" * {axis.length} + ")
        self.add(f"{loop.ranges[0]} = {program}", f"lane = {lane}")

    def work(self) -> None:
        """Write the walk, then the stores of what it has added up."""
        self.compute(self.fixed())
        folds = {store.buffer: self.fold_of(store) for stage in self.stages
                 for store in stage.body if isinstance(store, Store)
                 and store.buffer in self.sums}
        super(TritonWriter, self).declare(tuple(folds.values()))
        loop, *_ = self.sums.values()
        chunk, length, rows = loop.ranges[0], loop.reduced[0].size, (
            self.tiling.axes[0].size)
        first = index(chunk) * length
        end = str(length) if length * chunk.size == rows else (
            f"min({length}, {rows - first})")
        with self.block(f"for start in tl.range(0, {end}, XBLOCK, "
                        f"num_stages={self.under_way()}):"):
            self.point(self.tiling.axes[0], f"{first} + start + lane")
            super().work()
        for name, fold in folds.items():
            where, given = self.sums[name].index, self.accumulator(fold)
            self.add(f"{given} = " + TRITON.convert(
                self.across(fold, given, 0), self.accumulated(fold),
                fold.dtype),
                f"tl.store({self.pointer(name, where, frozenset())}, "
                f"{given}{self.mask(frozenset('r'))})")

    def fixed(self) -> Iterator[Expression]:
        """The values that are the same for every row."""
        for stage in self.stages:
            for node in (*stage.row, *stage.body):
                if not isinstance(node, (Fold, Store)) and not any(
                        isinstance(part, Fold) or "x" in self.tiling.along(
                            getattr(part, "index", index(0)))
                        or isinstance(part, Load)
                        and part.buffer not in self.kernel.read
                        for part in reached([node])):
                    yield node

    def under_way(self) -> int:
        """How many blocks are loaded at a time."""
        loads = {node for stage in self.stages for node in stage.body
                 if isinstance(node, Load)}.difference(self.texts)
        size = sum(load.dtype.itemsize for load in loads)
        x, r = self.tiling.axes
        return STAGES if STAGES * size * x.block * r.block <= BYTES else 1

    def fold_of(self, store: Store) -> Down:
        """The reduction of what is stored for each element."""
        return Down(self.sums[store.buffer].reduction, (store.value,),
                    store.value.dtype, store.buffer)

    def store(self, store: Store) -> str:
        """The line of a store, or of a step of a reduction of rows."""
        if store.buffer not in self.sums:
            return super().store(store)
        fold, x = self.fold_of(store), self.tiling.axes[0]
        dtype, name = self.accumulated(fold), self.accumulator(fold)
        part = TRITON.convert(self.read(store.value), fold.dtype, dtype)
        if not x.even:
            part = (f"tl.where(x_inside, {part}, "
                    f"{TRITON.neutral(fold, dtype)})")
        return TRITON.assigned.format(
            name, TRITON.combined(fold, dtype, name, part))


def written(kernel: Kernel, tiling: Tiling) -> TritonWriter:
    """The writer of a kernel that is tiled so."""
    if not isinstance(tiling, Walk):
        return plainly(kernel, tiling)
    kernel, sums = by_element(kernel), {
        loop.buffer.name: loop for loop in down(kernel)}
    return WalkingWriter(kernel, stages(kernel), depth=1, tiling=tiling,
                         sums=sums)


before, plainly = TILINGS[-1], WRITERS[-1]
TILINGS.append(walking)
WRITERS.append(written)
WALKING["cuda"] = 40_960
