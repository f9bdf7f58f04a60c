"""Programs that walk along the rows of a chunk and reduce its columns.

In: a row kernel with loops that reduce chunks of rows. Out: a program for
each chunk. It works on one block of rows after the other, as on whole rows
elsewhere, and keeps a reduction for each column in registers. It stores
these after its last row. A weight is loaded before the first row; the next
rows are loaded while a program works on a block. Inductor's is
torch/_inductor/codegen/triton.py, with `RSPLIT`.
"""

from dataclasses import dataclass, replace
from math import gcd

from ...core.index import Index, Variable, atoms_of, index, substitute
from ...core.loops import Kernel, Load, Loop, draws
from ...core.machines.cost import WALKING
from ..triton import TILINGS, TRITON, WRITERS, Axis, Tiling, pow2
from ..writer import Fold, Stage, Store
from .gpu import counting, lower_pow2, tile
from .online import ScanningWriter

#: The elements of a block of rows, at most, and the warps for them. Half as
#: many if it draws random numbers, which takes registers.
BLOCK, WARPS = 4096, 8
#: How many blocks are under way, if so many bytes hold them.
STAGES, BYTES = 3, 160 << 10


@dataclass(frozen=True)
class Walk(Tiling):
    """Blocks of rows that a program takes one after the other, until its
    `chunk` of so many rows in `length` ends."""

    chunk: Variable = Variable("chunk", index(1))
    length: Index = index(1)
    flat = False

    @property
    def grid(self) -> Index:
        """A program for each chunk."""
        return self.chunk.size

    @property
    def first(self) -> Index:
        """The first row of the program's chunk."""
        return index(self.chunk) * self.length


def down(kernel: Kernel) -> list[Loop]:
    """The loops that reduce the rows of a chunk."""
    return [loop for loop in kernel.loops if loop.down]


def walking(kernel: Kernel) -> Tiling:
    """Whole rows in registers, some of them at a time."""
    if not down(kernel):
        return tile(kernel)
    loop, *_ = sums = down(kernel)
    whole = pow2(int(kernel.row_length))
    held = len(sums) + len({
        load.buffer for loop in kernel.loops for load in loop.loads
        if not atoms_of(load.index).isdisjoint(kernel.reduced)})
    block = min(BLOCK >> draws(kernel.loops),
                lower_pow2(WALKING["cuda"] // held))
    together = gcd(max(1, block // whole), *(
        number for _, number in loop.down.terms))
    return counting(kernel, Walk(
        (Axis("x", kernel.ranges, together),
         Axis("r", kernel.reduced, whole)),
        max(min(WARPS, together * whole // 256), whole // 512, 1),
        looped="x", chunk=Variable("chunk", loop.buffer.shape[0]),
        length=loop.down))


class WalkingWriter(ScanningWriter):
    """A writer of rows that a program walks along: what they share comes
    first, and last what is added up of them."""

    def __post_init__(self):
        super().__post_init__()
        at = self.tiling.axes[0].coordinates(self.tiling.first)
        work = dict.fromkeys(node for stage in self.stages
                             for node in (*stage.row, *stage.body))
        last = [node for node in work if isinstance(node, Store)
                and getattr(node.value, "down", False)]
        first = [node for node in work if "x" not in self.reach(node)
                 and node not in last and not getattr(node, "down", False)]
        self.stages = (
            Stage(tuple(first), tuple(
                node for node in work if node not in {*first, *last})),
            Stage(tuple(replace(store, index=substitute(store.index, at))
                        for store in last), ()))

    def blocks(self) -> None:
        """Write the lanes of a block of rows, and which chunk is ours."""
        super().blocks()
        self.add(f"{self.tiling.chunk} = {self.program}")

    def loops(self, folds: list[Fold]):
        """The loop that walks along the rows of a chunk, some blocks of
        which are loaded at a time."""
        (x, r), length = self.tiling.axes, self.tiling.length
        end = TRITON.index(length)
        if length * self.tiling.grid != x.size:
            rest = TRITON.index(x.size - self.tiling.first)
            end = f"min({end}, {rest})"
        size = sum(node.dtype.itemsize for node in self.stages[0].body
                   if isinstance(node, Load)
                   and "r" in self.tiling.along(node.index))
        count = STAGES if (
            STAGES * size * x.block * r.block <= BYTES) else 1
        return [self.block(f"for start in tl.range(0, {end}, XBLOCK, "
                           f"num_stages={count}):")]

    def element(self, stage: Stage) -> None:
        """Write the work on a block of rows."""
        x, first = self.tiling.axes[0], TRITON.index(self.tiling.first)
        self.point(x, f"{first} + start + lane")
        self.compute(stage.body)


TILINGS.append(walking)
WRITERS[Walk] = WalkingWriter
WALKING["cuda"] = 40_960
