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
from dataclasses import dataclass, field
from functools import cached_property

from ...core.index import (Index, Variable, coefficient, guess, index,
                           may_exceed, most_of, product)
from ...core.layout import flatten, row_major
from ...core.loops import EXPENSIVE, Expression, Kernel
from ..cpp import WRITERS, CppWriter
from ..target import CPP
from ..writer import Stage, reached, stages

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


@dataclass
class Scheduled(CppWriter):
    """A kernel being written, its loops in a better order.

    `inner` is the vector loop. If it is a variable of the row, `abreast`
    rows run side by side; else it is one of the elements. `tile` is a
    second variable run in blocks, for transposed accesses. `kept` names
    the scratch of values that a later pass reads again.
    """

    kept: dict[Expression, str] = field(default_factory=dict)

    @cached_property
    def inner(self) -> Variable | None:
        """The innermost loop: its neighbours are neighbours in memory."""
        return fastest(self.kernel)

    @property
    def vectors(self) -> bool:
        """Whether a row is reduced in the lanes of a vector."""
        return self.inner not in self.kernel.ranges

    @cached_property
    def tile(self) -> Variable | None:
        """A second variable that runs in blocks, if one should."""
        return None if self.vectors or self.kernel.reduced else turned_axis(
            self.kernel, self.inner, lambda v: guess(v.size) >= 8)

    @cached_property
    def outer(self) -> tuple[Variable, ...]:
        """The variables of the row that run one by one."""
        return tuple(v for v in self.kernel.ranges
                     if v not in (self.inner, self.tile))

    @cached_property
    def abreast(self) -> int:
        """How many rows run side by side: as many as the cache holds, but
        few enough for all threads to have some."""
        if self.vectors or self.tile:
            return 32 if self.tile else 1
        size = guess(self.inner.size)
        length = max(1, guess(self.kernel.row_length))
        if self.inner.size.constant is None:
            size = max(size, 1024)
        if sum(stage.pass_needed for stage in self.stages) > 1:
            return min(size, max(16, (1 << 16) // length // 16 * 16),
                       SIDE_BY_SIDE * 64)
        others = guess(product(v.size for v in self.outer))
        share = size * others // (4 * PIECES) // 64 * 64
        return min(size, max(1024 // length, share, 64), SIDE_BY_SIDE)

    @cached_property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        return () if self.vectors else tuple(
            v for v in (self.tile, self.inner)
            if v and may_exceed(v.size, self.abreast))

    @cached_property
    def reduced(self) -> tuple[Variable, ...]:
        """The loops over elements, the vector loop last."""
        return tuple(sorted(self.kernel.reduced, key=self.inner.__eq__))

    @cached_property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        start = f" - {self.inner}_" * (self.inner in self.blocked)
        return f"[{self.inner}{start}]"

    def rows(self):
        """The loops over rows, and over the starts `v_` of blocks.

        Threads share them if there is enough work.
        """
        costly = sum(is_expensive(node) for stage in self.stages
                     for node in stage.body + stage.row)
        loops = [(v, 1) for v in self.outer] + [
            (v, self.abreast) for v in self.blocked]
        pragmas = [""] * len(loops)
        pragmas[:1] = [self.threads(
            WAKING // (1 + 8 * costly + len(self.kernel.loops)),
            len(loops))] * bool(loops)
        return self.nest(*(
            self.loop(v if step == 1 else f"{v}_", pragma,
                      stop=CPP.index(v.size), step=step)
            for (v, step), pragma in zip(loops, pragmas)))

    def lanes(self):
        """Loops over the rows that run side by side."""
        return self.nest(*(
            self.within(v, pragma) for v, pragma in (
                (self.tile, ""), (self.inner, "simd"))
            if v and not self.vectors))

    def within(self, variable: Variable, pragma: str):
        """A loop over the block that starts at `v_`, if it has blocks."""
        size, block = variable.size, self.abreast
        if variable not in self.blocked:
            return self.loop(variable, pragma)
        stop = f"{variable}_ + {block}"
        if size % block != 0:
            stop = f"smaller<int64>({stop}, {CPP.index(size)})"
        return self.loop(variable, pragma, f"{variable}_", stop)

    def array(self, value: Expression, count: Index | int) -> str:
        """The name of an array of such values, which is declared."""
        name = self.numbered("k", value)
        self.add(f"{CPP.type_of(value.dtype)} {name}[{count}];")
        return name

    def work(self) -> None:
        """The stages, after the scratch for the values that a row keeps."""
        self.kept = {value: self.array(
            value, most_of(self.kernel.row_length))
            for value in dict.fromkeys(value for stage in self.stages
                                       for value in stage.again)}
        super().work()

    def row(self, stage: Stage) -> None:
        """Values of the row; arrays for those that are read elsewhere."""
        if self.vectors:
            return super().row(stage)
        read = reached((each for other in self.stages for each in (
            *other.stores, *other.folds,
            *(other.row_stores if other is not stage else ()))),
            lambda node: node not in stage.row)
        public = {value: self.array(value, self.abreast) + self.lane
                  for value in stage.row if value in read}
        with self.lanes():
            super().row(stage)
            self.add(*(f"{place} = {self.read(value)};"
                       for value, place in public.items()))
        self.texts |= public

    def elements(self, stage: Stage) -> None:
        """A pass; an accumulator of rows side by side is an array."""
        if self.vectors:
            return super().elements(stage)
        made = [each for fold in stage.folds
                for each in self.variables(fold)]
        self.add(*(f"{kind} {name}[{self.abreast}];"
                   for kind, name, *_ in made))
        if made:
            with self.lanes():
                self.add(*(f"{name}{self.lane} = {start};"
                           for _, name, start, _ in made))
        with self.nest(*map(self.loop, self.reduced), self.lanes()):
            self.element(stage, self.lane)
        self.texts |= {fold: self.result(
            fold, self.accumulator(fold) + self.lane)
            for fold in stage.folds}

    def element(self, stage: Stage, lane: str = "") -> None:
        """The lines of a pass for one element, and to keep its values."""
        place = CPP.index(flatten(map(index, self.reduced), row_major(
            tuple(v.size for v in self.reduced))))
        for value in stage.again:
            self.name(value, f"{self.kept[value]}[{place}]")
        super().element(stage, lane)
        self.add(*(f"{name}[{place}] = {self.read(value)};"
                   for value, name in self.kept.items()
                   if value in stage.body))


def scheduled(kernel: Kernel) -> Scheduled:
    """The kernel's writer. A row keeps its expensive values from pass to
    pass, if the stack holds them and rows do not run side by side."""
    keeps = fastest(kernel) in kernel.reduced and not may_exceed(
        kernel.row_length, ON_STACK)
    return Scheduled(kernel, stages(
        kernel, lambda node: keeps and is_expensive(node)), depth=1)


WRITERS.append(scheduled)
