"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function. The rows of a kernel run in parallel;
the variable that memory runs along is the innermost loop, marked for
vectors. If that is a variable of the row, a block of rows runs side by
side, and what a row keeps is an array with a lane for each. Inductor's is
torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from ..core.index import (Index, Variable, coefficient, index, may_exceed,
                          most_of, substitute)
from ..core.layout import flatten, row_major
from ..core.loops import Const, Kernel
from . import cpp_folds as folding
from .cpp_lines import Lines
from .cpp_ops import DEAR, TYPES, enclosed, repeated
from .cpp_text import (
    element,
    expression,
    is_taken,
    place,
    read,
    stored,
)
from .nest import simplify
from .operations import held
from .printer import failure, named
from .shape import PARTS, Shape, shape
from .stages import Fold, Local, Stage, Store, homes, kept, shared, stages

#: How many elements of scratch the stack holds.
ON_STACK = 1 << 13
#: How long a row can be for the next one to be fetched beside it.
FETCHED = 1 << 12


def function(kernel: Kernel) -> str:
    """The kernel as a C++ function of its buffers' addresses."""
    simple = simplify(kernel)
    work = stages(simple, is_dear)
    dear = sum(is_dear(local) for stage in work
               for local in stage.body + stage.row)
    return Writer(simple, work, shape(simple, work, dear)).function()


def is_dear(local: Local) -> bool:
    """Whether it costs far more than an access to the cache."""
    return getattr(local.node, "name", None) in DEAR


def types(kernel: Kernel) -> dict[str, str]:
    """C++'s type of every buffer the kernel touches."""
    found = {load.buffer: load.dtype for loop in kernel.loops
             for load in loop.loads}
    found |= {loop.buffer.name: loop.buffer.dtype for loop in kernel.loops}
    for dtype in found.values():
        if dtype not in TYPES:
            raise failure(kernel, f"C++ has no type for {dtype} here")
    return {name: TYPES[dtype] for name, dtype in found.items()}


def type_of(local: Local) -> str:
    """C++'s type for a value between operations."""
    return TYPES[held(local.dtype)]


@dataclass
class Writer:
    """One kernel being written; `texts` says how each local is read."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    shape: Shape
    out: Lines = field(default_factory=Lines)
    texts: dict[Local, str] = field(default_factory=dict)

    def function(self) -> str:
        """The whole function."""
        kinds = types(self.kernel)
        pointers = [f"const {kinds[name]}* __restrict {self.names[name]}"
                    for name in self.kernel.read]
        pointers += [f"{kinds[name]}* __restrict {self.names[name]}"
                     for name in self.kernel.written]
        pointers += [f"int64 {symbol}" for symbol in self.kernel.symbols]
        joined = ",\n        ".join(pointers)
        loops = [(variable, 1) for variable in self.shape.rows]
        loops += [(variable, self.shape.block)
                  for variable in self.shape.blocked]
        with ExitStack() as opened:
            opened.enter_context(self.out.block(
                f'extern "C" void {self.kernel.name}(\n        {joined})'))
            if self.shape.parallel == "rows":
                several = f" collapse({len(loops)})" * (len(loops) > 1)
                self.parallel(several)
            for variable, step in loops:
                opened.enter_context(self.out.blocks(variable, step))
            self.row()
        return str(self.out)

    @cached_property
    def names(self) -> dict[str, str]:
        """What each buffer is called in C++."""
        return named((*self.kernel.read, *self.kernel.written), is_taken)

    def parallel(self, clause: str = "") -> None:
        """Let threads share the next loop, if that is worth it."""
        work = self.kernel.rows * self.kernel.row_length
        if work.constant is None:
            clause += f" if({place(work)} >= {self.shape.worth})"
        self.out.add(f"#pragma omp parallel for{clause}")

    def row(self) -> None:
        """A row, or a block of rows: its stages, one after the other."""
        heap = self.declare_scratch()
        for stage in self.stages:
            if stage.row or stage.row_stores:
                self.values(stage)
            if stage.pass_needed:
                self.elements(stage)
                if stage is self.stages[0]:
                    self.fetch()
        self.out.add(*(f"free({name});" for name in heap))

    @cached_property
    def width(self) -> int:
        """How many rows run side by side."""
        if not self.shape.lanes:
            return 1
        return min(self.shape.block,
                   self.shape.inner.size.constant or self.shape.block)

    @cached_property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        inner = self.shape.inner
        if not self.shape.lanes:
            return ""
        return f"[{inner} - {inner}_]" if inner in self.shape.blocked else (
            f"[{inner}]")

    @contextmanager
    def lanes(self) -> Iterator[None]:
        """A loop over the rows that run side by side, if any do."""
        with ExitStack() as opened:
            if self.shape.tile:
                opened.enter_context(self.out.within(
                    self.shape.tile, self.shape.block))
            if self.shape.lanes:
                self.out.add("#pragma omp simd")
                opened.enter_context(self.out.within(
                    self.shape.inner, self.shape.block))
            yield

    @cached_property
    def kept(self) -> tuple[Local, ...]:
        """The values of an element that later passes read again."""
        return kept(self.stages)

    @cached_property
    def homes(self) -> dict[Local, Store]:
        """Those that memory can hold which is written later anyway."""
        return {local: store for local, store in homes(self.stages).items()
                if held(local.dtype) == local.dtype}

    @cached_property
    def shared(self) -> tuple[Local, ...]:
        """The values of the row that passes or later stages read."""
        return shared(self.stages)

    def declare_scratch(self) -> list[str]:
        """Declare what a row keeps; the names of what must be freed."""
        heap, size = [], self.kernel.row_length * self.width
        for local in self.kept:
            kind, name = type_of(local), f"k{local.number}"
            if local in self.homes:
                continue
            if not may_exceed(size, ON_STACK):
                self.out.add(f"{kind} {name}[{most_of(size)}];")
                continue
            self.out.add(f"{kind}* {name} = ({kind}*)malloc("
                         f"{enclosed(place(size))} * sizeof({kind}));")
            heap.append(name)
        for local in self.shared if self.shape.lanes else ():
            if not isinstance(local.node, (Fold, Const)):
                self.out.add(f"{type_of(local)} k{local.number}"
                             f"[{self.width}];")
        return heap

    def values(self, stage: Stage) -> None:
        """What a stage computes for the row, and stores."""
        public = [local for local in stage.row if local in self.shared]
        with self.lanes():
            made = self.compute(stage.row, stage.row_stores, public)
            for local in public if self.shape.lanes else ():
                text = f"k{local.number}{self.lane}"
                self.out.add(f"{text} = {made[local]};")
                made[local] = text
        self.texts.update((local, made[local]) for local in public)

    def compute(self, locals: Iterable[Local], stores: Iterable[Store],
                named: Iterable[Local], texts=()) -> dict[Local, str]:
        """Write locals, then stores; how each local can be read.

        What is read once, and short, is written where it is read, except
        for the `named`.
        """
        texts = {**self.texts, **dict(texts)}
        uses = Counter(store.local for store in stores)
        for local in locals:
            for number, operand in enumerate(local.operands):
                uses[operand] += repeated(local.node, number)
        for local in locals:
            text = expression(local, texts, self.names)
            texts[local] = text
            if uses[local] > 1 or len(text) > 47 or local in named:
                texts[local] = f"t{local.number}"
                self.out.add(
                    f"const {type_of(local)} t{local.number} = {text};")
        for store in stores:
            value = read(store.local, texts)
            self.out.add(stored(store, value, self.names))
        return texts

    def elements(self, stage: Stage) -> None:
        """A pass over the elements of a row, by all threads or by one."""
        level = "w" if self.shape.groups else "a"
        if self.shape.parallel == "elements" and self.shape.groups:
            self.parts(stage)
        else:
            self.declare(stage.folds, level)
            self.work(stage, self.shape.groups)
        self.finish(stage.folds, level)

    def declare(self, folds: tuple[Local, ...], level: str) -> None:
        """Declare accumulators and let them start."""
        found = [variable for fold in folds for variable in
                 folding.variables(fold, level, self.shape.lanes)]
        if not self.shape.lanes:
            self.out.add(*(f"{kind} {name} = {start};"
                           for kind, name, start in found))
        elif found:
            self.out.add(*(f"{kind} {name}[{self.width}];"
                           for kind, name, _ in found))
            with self.lanes():
                self.out.add(*(f"{name}{self.lane} = {start};"
                               for _, name, start in found))

    def work(self, stage: Stage, loops: list[tuple[Variable, int]]) -> None:
        """The loops of a pass, from the outermost to the vectors."""
        with ExitStack() as opened:
            for variable, step in loops:
                opened.enter_context(self.out.blocks(variable, step))
            if not self.shape.groups:
                self.innermost(stage)
                return
            self.declare(stage.folds, "a")
            self.innermost(stage)
            self.join(stage.folds, "a")

    def join(self, folds: tuple[Local, ...], level: str,
             part: str = "") -> None:
        """Join the accumulators of a level to the totals."""
        at = part + self.lane
        with self.lanes() if folds else ExitStack():
            for fold in folds:
                value = folding.total(fold, level, at, self.shape.lanes)
                self.out.add(*folding.join(
                    fold, "w", self.lane, value,
                    f"{level}i{fold.number}{at}"))

    def parts(self, stage: Stage) -> None:
        """A pass whose outermost loop is shared by all threads.

        Each part has totals of its own, joined in order at the end.
        """
        (first, step), *rest = self.shape.groups
        steps = (first.size + step - 1) // step
        count = min(PARTS, steps.constant or PARTS)
        share = place((steps + count - 1) // count * step)
        totals = [(kind, name[1:]) for fold in stage.folds for kind, name, _
                  in folding.variables(fold, "w", self.shape.lanes)]
        width = f"[{self.width}]" if self.shape.lanes else ""
        self.out.add(*(f"{kind} p{name}[{count}]{width};"
                       for kind, name in totals))
        self.parallel()
        with self.out.loop("part", count):
            self.declare(stage.folds, "w")
            with self.out.loop(
                    first if step == 1 else f"{first}_",
                    f"smaller<int64>(part * {share} + {share}, "
                    f"{place(first.size)})", f"part * {share}", step):
                self.work(stage, rest)
            with self.lanes() if totals else ExitStack():
                self.out.add(*(
                    f"p{name}[part]{self.lane} = w{name}{self.lane};"
                    for _, name in totals))
        self.declare(stage.folds, "w")
        with self.out.loop("part", count) if totals else ExitStack():
            self.join(stage.folds, "p", "[part]")

    def innermost(self, stage: Stage) -> None:
        """The loops that vectors run in, and what they do."""
        with ExitStack() as opened:
            if self.shape.lanes:
                opened.enter_context(self.out.within(
                    self.shape.reduced[-1], self.shape.step))
                opened.enter_context(self.lanes())
            else:
                if not any(map(folding.places, stage.folds)):
                    self.out.add("#pragma omp simd"
                                 + folding.clauses(stage.folds))
                opened.enter_context(self.out.within(
                    self.shape.inner, self.shape.step))
            self.element(stage)

    def element(self, stage: Stage) -> None:
        """What a pass does for one element."""
        again = {}
        for local, store in stage.again.items():
            text = (element(store.buffer, store.index, local.dtype,
                            self.names) if store else self.scratch(local))
            again[local] = f"t{local.number}"
            self.out.add(f"const {type_of(local)} {again[local]} = {text};")
        folded = [fold.operands[0] for fold in stage.folds]
        texts = self.compute(stage.body, stage.stores,
                             (*self.kept, *folded), again)
        self.out.add(*(f"{self.scratch(local)} = {texts[local]};"
                       for local in stage.body if local in self.kept))
        position = place(flat(self.kernel.reduced))
        for fold in stage.folds:
            self.out.add(*folding.add(fold, read(fold.operands[0], texts),
                                      position, self.lane))

    def scratch(self, local: Local) -> str:
        """Where a row keeps a value of this element."""
        if local in self.homes:
            home = self.homes[local]
            return f"{self.names[home.buffer]}[{place(home.index)}]"
        where = place(flat(self.shape.reduced if self.shape.lanes else
                           (*self.shape.reduced, self.shape.inner)))
        if self.shape.lanes:
            where = (f"{enclosed(where)} * {self.width} + "
                     f"{self.lane[1:-1]}")
        return f"k{local.number}[{where}]"

    def finish(self, folds: tuple[Local, ...], level: str) -> None:
        """Name the results of a pass."""
        for fold in folds:
            text = folding.result(fold, level, self.lane, self.shape.lanes)
            name = f"{level}{fold.number}{self.lane}"
            if text != name and not self.shape.lanes:
                name = f"t{fold.number}"
                self.out.add(f"const {type_of(fold)} {name} = {text};")
            elif text != name:
                name = f"k{fold.number}{self.lane}"
                self.out.add(
                    f"{type_of(fold)} k{fold.number}[{self.width}];")
                with self.lanes():
                    self.out.add(f"{name} = {text};")
            self.texts[fold] = name

    def fetch(self) -> None:
        """Ask for the next row while later passes work on this one."""
        inner, size = self.shape.inner, self.kernel.row_length
        if (self.shape.lanes or self.shape.reduced
                or may_exceed(size, FETCHED)
                or len(self.stages) == 1 or self.shape.parallel != "rows"):
            return
        row = self.shape.rows[-1]
        for load in dict.fromkeys(load for loop in self.kernel.loops
                                  for load in loop.loads):
            steps = [coefficient(load.index, v) for v in (inner, row)]
            if load.buffer in self.kernel.read and steps[0] == 1 and (
                    steps[1] not in (None, 0)):
                next_row = {inner: index(0), row: index(row) + 1}
                where = place(substitute(load.index, next_row))
                self.out.add(f"fetch(&{self.names[load.buffer]}[{where}], "
                             f"{place(size)});")


def flat(variables: tuple[Variable, ...]) -> Index:
    """The row-major position of the variables' values."""
    return flatten(map(index, variables),
                   row_major(tuple(v.size for v in variables)))
