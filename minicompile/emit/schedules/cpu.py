"""How a kernel's loops are run on a CPU: vectors, blocks, threads.

The innermost loop is the variable that memory runs along. If that is a
variable of the row, a block of rows runs side by side, and what a row
keeps is an array with a place for each. Everything is decided from sizes
and strides, so a kernel adds in the same order for any number of threads.
Inductor decides this in torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...core.index import (Variable, enclosed, guess, index, may_exceed,
                           most_of, product)
from ...core.layout import flatten, row_major
from ...core.loops import EXPENSIVE, Kernel
from ..cpp import WRITERS, CppWriter, result, variables
from ..stages import Local, Stage, stages
from ..target import CPP
from ..writer import accumulator
from .memory import fastest, turned_axis

#: Work, in cheap operations, that is worth waking a second thread for.
WORTH = 1 << 15
#: Into how many pieces work is cut, so that all threads have some.
PIECES = 32
#: How many rows run side by side, at most.
SIDE_BY_SIDE = 1 << 10
#: How many elements of scratch the stack holds.
ON_STACK = 1 << 13


def is_expensive(local: Local) -> bool:
    """Whether it costs far more than an access to the cache."""
    return getattr(local.node, "name", None) in EXPENSIVE


@dataclass(frozen=True)
class CpuSchedule:
    """The loops of a kernel, outermost first.

    `rows` run one by one; `inner` is the vector loop. With `lanes` it is
    a variable of the row, and `block` rows run side by side; else it is
    one of the elements. `tile` is a second variable run in blocks, for
    transposed accesses. Threads share the rows from `worth` elements on.
    """

    rows: tuple[Variable, ...]
    inner: Variable | None
    lanes: bool
    block: int
    tile: Variable | None
    worth: int

    @property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        return tuple(v for v in (self.tile, self.inner) if self.lanes
                     and v and may_exceed(v.size, self.block))


def schedule(kernel: Kernel, work: tuple[Stage, ...]) -> CpuSchedule:
    """The loops that suit a kernel's sizes and strides."""
    inner = fastest(kernel)
    lanes = inner in kernel.ranges
    tile = turned_axis(kernel, inner, lambda v: guess(v.size) >= 8) if (
        lanes and not kernel.reduced) else None
    rows = tuple(v for v in kernel.ranges if v not in (inner, tile))
    passes = sum(stage.pass_needed for stage in work)
    block = 32 if tile else side_by_side(
        kernel, inner, rows, passes) if lanes else 1
    costly = sum(is_expensive(local) for stage in work
                 for local in stage.body + stage.row)
    return CpuSchedule(rows, inner, lanes, block, tile,
                       WORTH // (1 + 8 * costly + len(kernel.loops)))


def side_by_side(kernel: Kernel, inner: Variable,
                 rows: tuple[Variable, ...], passes: int) -> int:
    """How many rows run side by side: what the cache holds of them, yet
    few enough for all threads to have some."""
    size, length = guess(inner.size), max(1, guess(kernel.row_length))
    if inner.size.constant is None:
        size = max(size, 1024)
    if passes > 1:
        return min(size, max(16, (1 << 16) // length // 16 * 16),
                   SIDE_BY_SIDE * 64)
    others = guess(product(v.size for v in rows))
    share = size * others // (4 * PIECES) // 64 * 64
    return min(size, max(1024 // length, share, 64), SIDE_BY_SIDE)


class Scheduled(CppWriter):
    """A kernel being written with a schedule."""

    @cached_property
    def schedule(self) -> CpuSchedule:
        """Which loops run where."""
        return schedule(self.kernel, self.stages)

    @cached_property
    def reduced(self) -> tuple[Variable, ...]:
        """The loops over elements, the vector loop last."""
        inner = self.schedule.inner
        return tuple(sorted(self.kernel.reduced, key=inner.__eq__))

    @cached_property
    def width(self) -> int:
        """How many rows run side by side."""
        plan = self.schedule
        return min(plan.block, plan.inner.size.constant or plan.block
                   ) if plan.lanes else 1

    @cached_property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        inner = self.schedule.inner
        start = f" - {inner}_" * (inner in self.schedule.blocked)
        return f"[{inner}{start}]" if self.schedule.lanes else ""

    @cached_property
    def kept(self) -> tuple[Local, ...]:
        """The values of an element that scratch holds for later passes."""
        return tuple(dict.fromkeys(
            local for stage in self.stages for local in stage.again))

    def rows(self):
        """The loops over rows, and over the starts `v_` of blocks."""
        plan = self.schedule
        loops = [(v, 1) for v in plan.rows] + [
            (v, plan.block) for v in plan.blocked]
        pragmas = [self.threads(plan.worth, len(loops))] + [""] * len(loops)
        return self.nest(*(
            self.loop(v if step == 1 else f"{v}_", pragma,
                      stop=CPP.index(v.size), step=step)
            for (v, step), pragma in zip(loops, pragmas)))

    def lanes(self):
        """Loops over the rows that run side by side."""
        return self.nest(*(
            self.within(v, pragma) for v, pragma in (
                (self.schedule.tile, ""), (self.schedule.inner, "simd"))
            if v and self.schedule.lanes))

    def within(self, variable: Variable, pragma: str):
        """A loop over the block that starts at `v_`, if it has blocks."""
        size, block = variable.size, self.schedule.block
        if variable not in self.schedule.blocked:
            return self.loop(variable, pragma)
        stop = f"{variable}_ + {block}"
        if size % block != 0:
            stop = f"smaller<int64>({stop}, {CPP.index(size)})"
        return self.loop(variable, pragma, f"{variable}_", stop)

    def work(self) -> None:
        """The stages, with scratch declared before and freed after."""
        size, heap = self.kernel.row_length * self.width, []
        for local in self.kept:
            kind, name = CPP.type_of(local.dtype), f"k{local.number}"
            if not may_exceed(size, ON_STACK):
                self.add(f"{kind} {name}[{most_of(size)}];")
                continue
            self.add(f"{kind}* {name} = ({kind}*)malloc("
                     f"{enclosed(CPP.index(size))} * sizeof({kind}));")
            heap.append(name)
        super().work()
        self.add(*(f"free({name});" for name in heap))

    def row(self, stage: Stage) -> None:
        """Values of the row; arrays for those that are read elsewhere."""
        public = [local for local in stage.row if self.schedule.lanes
                  and local in shared(self.stages)]
        self.add(*(f"{CPP.type_of(local.dtype)} k{local.number}"
                   f"[{self.width}];" for local in public))
        if not self.schedule.lanes:
            return super().row(stage)
        with self.lanes():
            super().row(stage)
            self.add(*(f"k{local.number}{self.lane} = {self.read(local)};"
                       for local in public))
        self.texts |= {local: f"k{local.number}{self.lane}"
                       for local in public}

    def elements(self, stage: Stage) -> None:
        """A pass; an accumulator of rows side by side is an array."""
        if not self.schedule.lanes:
            return super().elements(stage)
        made = [each for fold in stage.folds
                for each in variables(fold, False)]
        self.add(*(f"{kind} {name}[{self.width}];"
                   for kind, name, _ in made))
        if made:
            with self.lanes():
                self.add(*(f"{name}{self.lane} = {start};"
                           for _, name, start in made))
        with self.nest(*map(self.loop, self.reduced), self.lanes()):
            self.element(stage, self.lane)
        self.texts |= {
            fold: result(fold, accumulator(fold) + self.lane, False)
            for fold in stage.folds}

    def element(self, stage: Stage, lane: str = "") -> None:
        """What a pass does for one element, with what is kept of it."""
        for local in stage.again:
            self.name(local, self.scratch(local))
        super().element(stage, lane)
        self.add(*(f"{self.scratch(local)} = {self.read(local)};"
                   for local in self.kept if local in stage.body))

    def scratch(self, local: Local) -> str:
        """Where a row keeps a value of this element."""
        where = CPP.index(flatten(map(index, self.reduced), row_major(
            tuple(v.size for v in self.reduced))))
        if self.schedule.lanes:
            where = f"{enclosed(where)} * {self.width} + {self.lane[1:-1]}"
        return f"k{local.number}[{where}]"


def shared(work: tuple[Stage, ...]) -> set[Local]:
    """The values of the row that are read outside the stage's row part."""
    found: set[Local] = set()
    for stage in work:
        for made, roots in (
                (stage.row, [store.local for store in stage.row_stores]),
                (stage.body, [store.local for store in stage.stores]
                 + [fold.operands[0] for fold in stage.folds])):
            read = [o for local in made for o in local.operands] + roots
            found.update(local for local in read if not local.element
                         and local not in made)
    return found


WRITERS.append(lambda kernel: Scheduled(
    kernel, stages(kernel, is_expensive), depth=1))
