"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function, one line a value. Rows run in parallel;
the variable that memory runs along is the innermost loop, marked for
vectors. If that is a variable of the row, a block of rows runs side by
side, and what a row keeps is an array with a lane for each. Inductor's is
torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch

from ..core.index import (Index, Variable, coefficient, enclosed, index,
                          may_exceed, most_of, substitute)
from ..core.layout import flatten, row_major
from ..core.loops import Kernel, Load, Op, Position
from . import cpp_folds as folding
from .target import CPP
from .nest import simplify
from .operations import HALVES
from .printer import failure
from .shape import PARTS, Shape, shape
from .stages import Local, Stage, Store, homes, kept, shared, stages

#: Operations that cost far more than an access to the cache.
DEAR = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid pow
    atan2 hypot remainder fmod div_floor uniform""".split())
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
        if dtype not in CPP.types:
            raise failure(kernel, f"C++ has no type for {dtype} here")
    return {name: CPP.types[dtype] for name, dtype in found.items()}


def expression(local: Local, operands: list[str]) -> str:
    """The text that computes a local from its operands."""
    match local.node:
        case Op() as op:
            return CPP.operation(op, operands)
        case Position(where, dtype):
            return CPP.convert(CPP.index(where), torch.int64, dtype)
        case Load(buffer, where, dtype, mask, other):
            text = element(buffer, where, dtype)
            return text if mask is None else (
                f"{operands[0]} ? {text} : {CPP.literal(other, dtype)}")


def element(buffer: str, where: Index, dtype: torch.dtype) -> str:
    """An element of memory, in the type that holds it."""
    text = f"{buffer}_ptr[{CPP.index(where)}]"
    return f"load({text})" if dtype in HALVES else text


@dataclass
class Writer:
    """One kernel being written; `texts` says how each local is read."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    shape: Shape
    texts: dict[Local, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        """Write lines in the block that is open."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str, pragma: str = "") -> Iterator[None]:
        """Write `head { ... }` around what is written inside."""
        if pragma:
            self.lines.append(f"#pragma omp {pragma}")
        self.add(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add("}")

    def loop(self, name: object, stop: object, start: object = 0,
             step: int = 1, pragma: str = ""):
        """A loop from `start` until `stop`."""
        forward = f"++{name}" if step == 1 else f"{name} += {step}"
        return self.block(f"for (int64 {name} = {start}; {name} < {stop}; "
                          f"{forward})", pragma)

    def blocks(self, loops: Iterable[tuple[Variable, int]],
               pragma: str = ""):
        """Loops over the starts `v_` of the variables' blocks."""
        return self.nest(*(
            self.loop(v if step == 1 else f"{v}_", CPP.index(v.size), 0,
                      step, "" if number else pragma)
            for number, (v, step) in enumerate(loops)))

    def within(self, variable: Variable, step: int, pragma: str = ""):
        """A loop over the block that starts at `v_`, if it has blocks."""
        size, start = variable.size, f"{variable}_"
        if not may_exceed(size, step):
            return self.loop(variable, CPP.index(size), pragma=pragma)
        stop = f"{start} + {step}"
        if size % step != 0:
            stop = f"smaller<int64>({stop}, {CPP.index(size)})"
        return self.loop(variable, stop, start, pragma=pragma)

    @contextmanager
    def nest(self, *blocks) -> Iterator[None]:
        """Blocks, each in the one before."""
        with ExitStack() as opened:
            for block in blocks:
                opened.enter_context(block)
            yield

    def function(self) -> str:
        """The whole function."""
        kernel, kinds = self.kernel, types(self.kernel)
        given = [f"const {kinds[name]}* __restrict {name}_ptr"
                 for name in kernel.read]
        given += [f"{kinds[name]}* __restrict {name}_ptr"
                  for name in kernel.written]
        joined = ",\n        ".join(
            [*given, *(f"int64 {symbol}" for symbol in kernel.symbols)])
        loops = [(variable, 1) for variable in self.shape.rows]
        loops += [(variable, self.shape.block)
                  for variable in self.shape.blocked]
        threads = self.threads(f" collapse({len(loops)})" * (
            len(loops) > 1)) if self.shape.parallel == "rows" else ""
        with (self.block(f'extern "C" void {kernel.name}(\n        '
                         f"{joined})"), self.blocks(loops, threads)):
            self.row()
        return "\n".join(self.lines)

    def threads(self, clause: str = "") -> str:
        """What lets threads share a loop, if that is worth it."""
        work = self.kernel.rows * self.kernel.row_length
        if work.constant is None:
            clause += f" if({CPP.index(work)} >= {self.shape.worth})"
        return f"parallel for{clause}"

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
        self.add(*(f"free({name});" for name in heap))

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

    def lanes(self):
        """A loop over the rows that run side by side, if any do."""
        found = []
        if self.shape.tile:
            found.append(self.within(self.shape.tile, self.shape.block))
        if self.shape.lanes:
            found.append(self.within(self.shape.inner, self.shape.block,
                                     "simd"))
        return self.nest(*found)

    def declare(self, variables: list[tuple[str, str, str]]) -> None:
        """Declare variables, each with a place for every lane, and give
        them their values: (type, name, value)."""
        if not self.shape.lanes:
            self.add(*(f"{kind} {name} = {value};"
                       for kind, name, value in variables))
        elif variables:
            self.add(*(f"{kind} {name}[{self.width}];"
                       for kind, name, _ in variables))
            with self.lanes():
                self.add(*(f"{name}{self.lane} = {value};"
                           for _, name, value in variables))

    def declare_scratch(self) -> list[str]:
        """Declare what a row keeps; the names of what must be freed."""
        heap, size = [], self.kernel.row_length * self.width
        for local in kept(self.stages):
            kind, name = CPP.type_of(local.dtype), f"k{local.number}"
            if local in homes(self.stages):
                continue
            if not may_exceed(size, ON_STACK):
                self.add(f"{kind} {name}[{most_of(size)}];")
                continue
            self.add(f"{kind}* {name} = ({kind}*)malloc("
                     f"{enclosed(CPP.index(size))} * sizeof({kind}));")
            heap.append(name)
        return heap

    def values(self, stage: Stage) -> None:
        """What a stage computes for the row, and stores."""
        public = [local for local in shared(self.stages)
                  if local in stage.row]
        lanes = public if self.shape.lanes else ()
        self.add(*(f"{CPP.type_of(local.dtype)} k{local.number}"
                   f"[{self.width}];" for local in lanes))
        with self.lanes():
            made = self.compute(stage.row, stage.row_stores, self.texts)
            for local in lanes:
                text = f"k{local.number}{self.lane}"
                self.add(f"{text} = {made[local]};")
                made[local] = text
        self.texts.update((local, made[local]) for local in public)

    def compute(self, locals: Iterable[Local], stores: Iterable[Store],
                texts: Mapping[Local, str]) -> dict[Local, str]:
        """Write locals, then stores; how each local can be read."""
        texts = dict(texts)
        for local in locals:
            text = expression(local, [
                CPP.read(operand, texts) for operand in local.operands])
            texts[local] = text if text.isidentifier() else (
                self.named(local, text))
        for store in stores:
            value = CPP.read(store.local, texts)
            text = f"{store.buffer}_ptr[{CPP.index(store.index)}]"
            self.add(f"store({text}, {value});" if store.local.dtype
                     in HALVES else f"{text} = {value};")
        return texts

    def named(self, local: Local, text: str) -> str:
        """Write a line that gives the value a name; the name."""
        name = f"t{local.number}"
        self.add(f"const {CPP.type_of(local.dtype)} {name} = {text};")
        return name

    def elements(self, stage: Stage) -> None:
        """A pass over the elements of a row, by all threads or by one."""
        level = "w" if self.shape.groups else "a"
        if self.shape.parallel == "elements" and self.shape.groups:
            self.parts(stage)
        else:
            self.declare(self.accumulators(stage, level))
            self.work(stage, self.shape.groups)
        for fold in stage.folds:
            name = f"{level}{fold.number}"
            text = folding.result(fold, level, self.lane)
            if text != name + self.lane:
                name = f"t{fold.number}"
                self.declare([(CPP.type_of(fold.dtype), name, text)])
            self.texts[fold] = name + self.lane

    def accumulators(self, stage: Stage,
                     level: str) -> list[tuple[str, str, str]]:
        """The variables that a pass's folds have at a level."""
        return [variable for fold in stage.folds for variable in
                folding.variables(fold, level, self.lane)]

    def work(self, stage: Stage, loops: list[tuple[Variable, int]]) -> None:
        """The loops of a pass, from the outermost to the vectors."""
        with self.blocks(loops):
            if not self.shape.groups:
                self.innermost(stage)
                return
            self.declare(self.accumulators(stage, "a"))
            self.innermost(stage)
            self.join(stage.folds, "a")

    def join(self, folds: tuple[Local, ...], level: str,
             part: str = "") -> None:
        """Join the accumulators of a level to the totals."""
        at = part + self.lane
        with self.lanes() if folds else ExitStack():
            for fold in folds:
                value = folding.total(fold, level, at)
                self.add(*folding.join(fold, "w", self.lane, value,
                                       f"{level}i{fold.number}{at}"))

    def parts(self, stage: Stage) -> None:
        """A pass whose outermost loop is shared by all threads.

        Each part has totals of its own, joined in order at the end.
        """
        (first, step), *rest = self.shape.groups
        steps = (first.size + step - 1) // step
        count = min(PARTS, steps.constant or PARTS)
        share = enclosed(CPP.index((steps + count - 1) // count * step))
        totals = self.accumulators(stage, "w")
        width = f"[{self.width}]" if self.shape.lanes else ""
        self.add(*(f"{kind} p{name[1:]}[{count}]{width};"
                   for kind, name, _ in totals))
        with self.loop("part", count, pragma=self.threads()):
            self.declare(totals)
            with self.loop(
                    first if step == 1 else f"{first}_",
                    f"smaller<int64>(part * {share} + {share}, "
                    f"{CPP.index(first.size)})", f"part * {share}", step):
                self.work(stage, rest)
            with self.lanes() if totals else ExitStack():
                self.add(*(f"p{name[1:]}[part]{self.lane} = "
                           f"{name}{self.lane};" for _, name, _ in totals))
        self.declare(totals)
        with self.loop("part", count) if totals else ExitStack():
            self.join(stage.folds, "p", "[part]")

    def innermost(self, stage: Stage) -> None:
        """The loops that vectors run in, and what they do."""
        if self.shape.lanes:
            loops = self.within(self.shape.reduced[-1],
                                self.shape.step), self.lanes()
        else:
            vectors = not any(map(folding.places, stage.folds))
            loops = self.within(
                self.shape.inner, self.shape.step, vectors * "simd" and
                "simd" + folding.clauses(stage.folds)),
        with self.nest(*loops):
            self.element(stage)

    def element(self, stage: Stage) -> None:
        """What a pass does for one element."""
        texts = dict(self.texts)
        for local, store in stage.again.items():
            text = (element(store.buffer, store.index, local.dtype)
                    if store else self.scratch(local))
            texts[local] = self.named(local, text)
        texts = self.compute(stage.body, stage.stores, texts)
        self.add(*(f"{self.scratch(local)} = {texts[local]};"
                   for local in kept(self.stages) if local in stage.body))
        position = CPP.index(flat(self.kernel.reduced))
        for fold in stage.folds:
            self.add(*folding.add(fold, CPP.read(fold.operands[0], texts),
                                  position, self.lane))

    def scratch(self, local: Local) -> str:
        """Where a row keeps a value of this element."""
        if home := homes(self.stages).get(local):
            return element(home.buffer, home.index, local.dtype)
        where = CPP.index(flat(self.shape.reduced if self.shape.lanes else
                           (*self.shape.reduced, self.shape.inner)))
        if self.shape.lanes:
            where = (f"{enclosed(where)} * {self.width} + "
                     f"{self.lane[1:-1]}")
        return f"k{local.number}[{where}]"

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
                where = CPP.index(substitute(load.index, next_row))
                self.add(f"fetch(&{load.buffer}_ptr[{where}], "
                         f"{CPP.index(size)});")


def flat(variables: tuple[Variable, ...]) -> Index:
    """The row-major position of the variables' values."""
    return flatten(map(index, variables),
                   row_major(tuple(v.size for v in variables)))
