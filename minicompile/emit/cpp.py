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

import torch

from ..core.index import Variable, flatten, index, product, row_major
from ..core.loops import Const, Kernel
from . import cpp_folds as folding
from .cpp_ops import DEAR, TYPES, enclosed, held, repeated
from .cpp_text import element, expression, names, place, read, stored
from .nest import simplify
from .shape import BLOCK, PARTS, Shape, shape
from .stages import Fold, Local, Stage, Store, stages

#: How many elements of scratch the stack holds.
ON_STACK = 1 << 13
#: How many rows of lanes are summed as float before doubles take over.
LANE_BLOCK = 256


def function(kernel: Kernel) -> str:
    """The kernel as a C++ function of its buffers' addresses."""
    simple = simplify(kernel)
    work = stages(simple, DEAR)
    dear = sum(getattr(local.node, "name", None) in DEAR
               for stage in work for local in stage.body + stage.row)
    return Writer(simple, work, shape(simple, work, dear)).function()


def types(kernel: Kernel) -> dict[str, torch.dtype]:
    """The dtype of every buffer the kernel touches."""
    found = {load.buffer: load.dtype for loop in kernel.loops
             for load in loop.loads}
    return found | {loop.buffer.name: loop.buffer.dtype
                    for loop in kernel.loops}


@dataclass
class Writer:
    """One kernel being written; `texts` says how each local is read."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    shape: Shape
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    texts: dict[Local, str] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """Write lines; a pragma starts at the margin."""
        for line in lines:
            margin = line.startswith("#")
            self.lines.append(line if margin else "    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head { ... }` around what is written inside."""
        self.add(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add("}")

    def loop(self, variable: Variable, step: int = 1):
        """A loop over a variable, or over the starts of its blocks."""
        if step > 1:
            return self.block(f"for (int64 {variable}_ = 0; {variable}_ < "
                              f"{variable.size}; {variable}_ += {step})")
        return self.block(f"for (int64 {variable} = 0; {variable} < "
                          f"{variable.size}; ++{variable})")

    def within(self, variable: Variable, step: int):
        """A loop over the block of a variable that starts at `v_`."""
        if step >= int(variable.size):
            return self.loop(variable)
        stop = f"{variable}_ + {step}"
        if int(variable.size) % step:
            stop = f"smaller<int64>({stop}, {variable.size})"
        return self.block(f"for (int64 {variable} = {variable}_; "
                          f"{variable} < {stop}; ++{variable})")

    def function(self) -> str:
        """The whole function."""
        kinds = types(self.kernel)
        pointers = [f"const {TYPES[kinds[name]]}* __restrict "
                    f"{self.names[name]}" for name in self.kernel.read]
        pointers += [f"{TYPES[kinds[name]]}* __restrict {self.names[name]}"
                     for name in self.kernel.written]
        head = f'extern "C" void {self.kernel.name}({", ".join(pointers)})'
        with self.block(head), ExitStack() as opened:
            if self.shape.parallel == "rows":
                self.add(f"#pragma omp parallel for{self.collapse}")
            for variable in self.shape.rows:
                opened.enter_context(self.loop(variable))
            for variable in self.blocked:
                opened.enter_context(self.loop(variable, self.shape.block))
            self.row()
        return "\n".join(self.lines)

    @cached_property
    def names(self) -> dict[str, str]:
        """What each buffer is called in C++."""
        return names((*self.kernel.read, *self.kernel.written))

    @cached_property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        given = (self.shape.tile, self.shape.inner
                 if self.shape.lanes else None)
        return tuple(v for v in given
                     if v and int(v.size) > self.shape.block)

    @property
    def collapse(self) -> str:
        """The clause that makes one parallel loop of several."""
        count = len(self.shape.rows) + len(self.blocked)
        return f" collapse({count})" if count > 1 else ""

    def row(self) -> None:
        """A row, or a block of rows: its stages, one after the other."""
        heap = self.declare_scratch()
        for stage in self.stages:
            if stage.row or stage.row_stores:
                self.values(stage)
            if stage.pass_needed:
                self.elements(stage)
        for name in heap:
            self.add(f"free({name});")

    @cached_property
    def shared(self) -> frozenset[Local]:
        """The values of the row that are read where they are not made."""
        found: set[Local] = set()
        for stage in self.stages:
            for made, roots in (
                    (stage.row, [s.local for s in stage.row_stores]),
                    (stage.body, [s.local for s in stage.stores]
                     + [fold.operands[0] for fold in stage.folds])):
                read = {o for local in made for o in local.operands}
                found |= (read | set(roots)) - set(made)
        return frozenset(local for local in found if not local.element)

    @cached_property
    def kept(self) -> tuple[Local, ...]:
        """The values of an element that a later pass reads again."""
        return tuple(dict.fromkeys(
            local for stage in self.stages
            for local, store in stage.again.items() if store is None))

    @cached_property
    def homes(self) -> dict[Local, Store]:
        """Where memory that a later pass overwrites can keep a value."""
        last = {local: number for number, stage in enumerate(self.stages)
                for local in stage.again}
        free = [store for stage in self.stages for store in stage.stores]
        found = {}
        for local in self.kept:
            for store in free:
                if (store.stage >= last[local]
                        and store.local.dtype == held(local.dtype)):
                    found[local] = store
                    free.remove(store)
                    break
        return found

    @cached_property
    def width(self) -> int:
        """How many rows run side by side."""
        if not self.shape.lanes:
            return 1
        return min(self.shape.block, int(self.shape.inner.size))

    @cached_property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        inner = self.shape.inner
        if not self.shape.lanes:
            return ""
        return f"[{inner} - {inner}_]" if inner in self.blocked else (
            f"[{inner}]")

    @contextmanager
    def lanes(self) -> Iterator[None]:
        """A loop over the rows that run side by side, if any do."""
        if not self.shape.lanes:
            yield
            return
        with ExitStack() as opened:
            if self.shape.tile:
                opened.enter_context(self.within(
                    self.shape.tile, self.shape.block))
            self.add("#pragma omp simd")
            opened.enter_context(self.within(
                self.shape.inner, self.shape.block))
            yield

    def declare_scratch(self) -> list[str]:
        """Declare what a row keeps; the names of what must be freed."""
        heap = []
        size = int(self.kernel.row_length) * self.width
        for local in self.kept:
            if local in self.homes:
                continue
            kind, name = TYPES[held(local.dtype)], f"k{local.number}"
            if size <= ON_STACK:
                self.add(f"{kind} {name}[{size}];")
            else:
                self.add(f"{kind}* {name} = ({kind}*)malloc("
                         f"{size} * sizeof({kind}));")
                heap.append(name)
        if self.shape.lanes:
            for local in sorted(self.shared, key=lambda l: l.number):
                if not isinstance(local.node, (Fold, Const)):
                    self.add(f"{TYPES[held(local.dtype)]} "
                             f"k{local.number}[{self.width}];")
        return heap

    def values(self, stage: Stage) -> None:
        """What a stage computes for the row, and stores."""
        with self.lanes():
            made = self.compute(stage.row, stage.row_stores, self.shared)
            if self.shape.lanes:
                for local in stage.row:
                    if local in self.shared:
                        self.add(f"k{local.number}{self.lane} = "
                                 f"{made[local]};")
                        made[local] = f"k{local.number}{self.lane}"
        self.texts.update((local, made[local]) for local in stage.row
                          if local in self.shared)

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
            name = f"t{local.number}"
            if uses[local] == 1 and len(text) < 48 and local not in named:
                texts[local] = text
            else:
                kind = TYPES[held(local.dtype)]
                self.add(f"const {kind} {name} = {text};")
                texts[local] = name
        for store in stores:
            self.add(stored(store, read(store.local, texts), self.names))
        return texts

    def elements(self, stage: Stage) -> None:
        """A pass over the elements of a row, by all threads or by one."""
        folds, groups = stage.folds, self.groups
        level = "s" if groups else "a"
        if self.shape.parallel == "elements" and groups:
            self.parts(stage)
        else:
            self.declare(folds, level)
            self.work(stage, groups)
        self.finish(folds, level)

    @cached_property
    def groups(self) -> list[tuple[Variable, int]]:
        """The loops around those that one accumulator sees, with steps.

        Long loops are cut in blocks, so that no long sum is a chain of
        small additions to a large number.
        """
        *outer, last = [(v, 1) for v in self.shape.reduced] + (
            [] if self.shape.lanes else [(self.shape.inner, 1)])
        step = LANE_BLOCK if self.shape.lanes else BLOCK
        return outer + [(last[0], step)] * (int(last[0].size) > step)

    def declare(self, folds: tuple[Local, ...], level: str) -> None:
        """Declare accumulators and let them start."""
        found = [variable for fold in folds for variable in
                 folding.variables(fold, level, self.shape.lanes)]
        for kind, name, start in found:
            self.add(f"{kind} {name}[{self.width}];" if self.shape.lanes
                     else f"{kind} {name} = {start};")
        if self.shape.lanes and found:
            with self.lanes():
                self.add(*(f"{name}{self.lane} = {start};"
                           for _, name, start in found))

    def work(self, stage: Stage, groups: list[tuple[Variable, int]],
             ) -> None:
        """The loops of a pass, from the outermost to the vectors."""
        with ExitStack() as opened:
            for variable, step in groups:
                opened.enter_context(self.loop(variable, step))
            if not self.groups:
                self.innermost(stage)
                return
            self.declare(stage.folds, "a")
            self.innermost(stage)
            self.gather(stage.folds, "s", "a")

    def gather(self, folds: tuple[Local, ...], into: str,
               level: str, brackets: str = "") -> None:
        """Join accumulators of one level to those of another."""
        if folds:
            with self.lanes():
                for fold in folds:
                    at = brackets + self.lane
                    self.add(*folding.join(
                        fold, into, self.lane, folding.total(
                            fold, level, at, self.shape.lanes),
                        f"{level}i{fold.number}{at}"))

    def parts(self, stage: Stage) -> None:
        """A pass whose outermost loop is shared by all threads.

        Each part has totals of its own, joined in order at the end.
        """
        (first, step), *rest = self.groups
        steps = -(-int(first.size) // step)
        count = min(PARTS, steps)
        share = -(-steps // count) * step
        found = [(kind, name) for fold in stage.folds for kind, name, _ in
                 folding.variables(fold, "s", self.shape.lanes)]
        width = f"[{self.width}]" if self.shape.lanes else ""
        for kind, name in found:
            self.add(f"{kind} p{name[1:]}[{count}]{width};")
        self.add("#pragma omp parallel for")
        with self.block(f"for (int64 part = 0; part < {count}; ++part)"):
            self.declare(stage.folds, "s")
            cursor = f"{first}_" if step > 1 else f"{first}"
            with self.block(
                    f"for (int64 {cursor} = part * {share}; {cursor} < "
                    f"smaller<int64>(part * {share} + {share}, "
                    f"{first.size}); {cursor} += {step})"):
                self.work(stage, rest)
            with self.lanes():
                self.add(*(f"p{name[1:]}[part]{self.lane} = "
                           f"{name}{self.lane};" for _, name in found))
        self.declare(stage.folds, "s")
        if found:
            with self.block(
                    f"for (int64 part = 0; part < {count}; ++part)"):
                self.gather(stage.folds, "s", "p", "[part]")

    def innermost(self, stage: Stage) -> None:
        """The loops that vectors run in, and what they do."""
        with ExitStack() as opened:
            if self.shape.lanes:
                opened.enter_context(self.within(
                    self.shape.reduced[-1], LANE_BLOCK))
                opened.enter_context(self.lanes())
            else:
                if not any(map(folding.places, stage.folds)):
                    self.add("#pragma omp simd"
                             + folding.clauses(stage.folds))
                opened.enter_context(self.within(self.shape.inner, BLOCK))
            self.element(stage)

    def element(self, stage: Stage) -> None:
        """What a pass does for one element."""
        texts = {}
        for local, store in stage.again.items():
            texts[local] = f"t{local.number}"
            text = (element(store.buffer, store.index, local.dtype,
                            self.names) if store else self.scratch(local))
            self.add(f"const {TYPES[held(local.dtype)]} t{local.number} = "
                     f"{text};")
        values = {fold.operands[0] for fold in stage.folds}
        texts = self.compute(stage.body, stage.stores,
                             values | set(self.kept), texts)
        for local in stage.body:
            if local in self.kept:
                self.add(f"{self.scratch(local)} = {texts[local]};")
        position = place(flatten(
            map(index, self.kernel.reduced),
            row_major(tuple(v.size for v in self.kernel.reduced))))
        for fold in stage.folds:
            self.add(*folding.add(fold, read(fold.operands[0], texts),
                                  position, self.lane))

    def scratch(self, local: Local) -> str:
        """Where a row keeps a value of this element."""
        if local in self.homes:
            home = self.homes[local]
            return f"{self.names[home.buffer]}[{place(home.index)}]"
        around = (*self.shape.reduced, *(
            () if self.shape.lanes else (self.shape.inner,)))
        where = place(flatten(map(index, around), row_major(
            tuple(v.size for v in around))))
        if self.shape.lanes:
            where = (f"{enclosed(where)} * {self.width} + "
                     f"{self.lane[1:-1]}")
        return f"k{local.number}[{where}]"

    def finish(self, folds: tuple[Local, ...], level: str) -> None:
        """Name the results of a pass."""
        for fold in folds:
            kind, lane = TYPES[held(fold.dtype)], self.lane
            text = folding.result(fold, level, lane, self.shape.lanes)
            if text != f"{level}{fold.number}{lane}":
                self.add(f"{kind} k{fold.number}[{self.width}];"
                         if lane else f"const {kind} t{fold.number} = "
                         f"{text};")
                if lane:
                    with self.lanes():
                        self.add(f"k{fold.number}{lane} = {text};")
                text = f"k{fold.number}{lane}" if lane else (
                    f"t{fold.number}")
            self.texts[fold] = text
