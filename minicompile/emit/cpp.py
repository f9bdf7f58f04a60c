"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function, one line a value. Rows run in parallel,
and the innermost loop is marked for vectors. A reference schedule may
order the loops better. Inductor's is torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch

from ..core.index import Variable, may_exceed
from ..core.loops import Kernel, Load, Position
from .operations import HALVES
from .stages import Local, Stage, Store, stages
from .target import CPP
from .writer import Writer, accumulator, failure

#: Work, in elements, that is worth waking a second thread for.
GRAIN = 1 << 13
#: The operators that let OpenMP's vector loop accumulate in lanes.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}


class CppWriter(Writer):
    """One kernel being written in C++."""

    target = CPP

    def body(self) -> list[str]:
        """The lines inside the function."""
        with self.rows():
            self.work()
        return self.lines

    @cached_property
    def reduced(self) -> tuple[Variable, ...]:
        """The loops over elements, the vector loop last."""
        return self.kernel.reduced

    def rows(self):
        """The loops over all rows; pointwise, the last one in vectors."""
        ranges = self.kernel.ranges
        simd = not self.kernel.reduced
        pragmas = [""] * len(ranges)
        if ranges:
            pragmas[-1] = "simd" * simd
            pragmas[0] = self.threads(
                GRAIN, max(1, len(ranges) - simd),
                " simd" * (simd and len(ranges) == 1)) or pragmas[0]
        return self.nest(*map(self.loop, ranges, pragmas))

    def threads(self, worth: int, loops: int, simd: str = "") -> str:
        """The pragma that shares loops among threads, if it is worth it."""
        work = self.kernel.rows * self.kernel.row_length
        if not may_exceed(work, worth):
            return ""
        clause = f"{simd} collapse({loops})" if loops > 1 else simd
        if work.constant is None:
            clause += f" if({CPP.index(work)} >= {worth})"
        return f"parallel for{clause}"

    def loop(self, name: Variable | str, pragma: str = "",
             start: object = 0, stop: object = None, step: int = 1):
        """A loop, over a whole variable unless it is told otherwise."""
        stop = CPP.index(name.size) if stop is None else stop
        forward = f"++{name}" if step == 1 else f"{name} += {step}"
        return self.block(
            f"for (int64 {name} = {start}; {name} < {stop}; {forward})",
            *[f"#pragma omp {pragma}"] * bool(pragma))

    def value(self, local: Local) -> str:
        """The text of a value whose operands have names."""
        match local.node:
            case Position(where, dtype):
                return CPP.convert(CPP.index(where), torch.int64, dtype)
            case Load(buffer, where, dtype, mask, other):
                text = f"{buffer}_ptr[{CPP.index(where)}]"
                text = f"load({text})" if dtype in HALVES else text
                return text if mask is None else (
                    f"{self.read(local.operands[0])} ? {text} : "
                    f"{CPP.literal(other, dtype)}")
        return super().value(local)

    def store(self, store: Store) -> str:
        """The line that puts a value into memory."""
        place = f"{store.buffer}_ptr[{CPP.index(store.index)}]"
        value = self.read(store.local)
        return (f"store({place}, {value});" if store.local.dtype in HALVES
                else f"{place} = {value};")

    def elements(self, stage: Stage) -> None:
        """A pass: accumulators, loops over the elements, and results."""
        for fold in stage.folds:
            self.add(*(f"{kind} {name} = {start};"
                       for kind, name, start in variables(fold, True)))
        *outer, last = self.reduced
        with self.nest(*map(self.loop, outer)):
            with self.loop(last, "simd" + clauses(stage.folds)):
                self.element(stage)
        for fold in stage.folds:
            self.name(fold, result(fold, accumulator(fold), True))

    def element(self, stage: Stage, lane: str = "") -> None:
        """Write what a pass does for one element."""
        self.compute(stage.body, stage.stores)
        for fold in stage.folds:
            self.add(*step(fold, lane, self.read(fold.operands[0])))


#: How kernels are written: the last row decides.
WRITERS: list[Callable[[Kernel], CppWriter]] = [
    lambda kernel: CppWriter(kernel, stages(kernel), depth=1)]
#: Into which kernels one is split first: the last row decides.
PIECES: list[Callable[[Kernel], tuple[Kernel, ...]]] = [
    lambda kernel: (kernel,)]


def function(kernel: Kernel) -> str:
    """The kernel as a C++ function of its buffers' addresses."""
    kinds = types(kernel)
    both = {name for buffer in kernel.written.values()
            for name in (buffer.name, buffer.into)
            if buffer.into in kernel.read}  # one memory, two names
    given = [f"{'const ' * (name in kernel.read)}{kinds[name]}* "
             f"{'__restrict ' * (name not in both)}{name}_ptr"
             for name in (*kernel.read, *kernel.written)]
    given += [f"int64 {symbol}" for symbol in kernel.symbols]
    bodies = [WRITERS[-1](piece).body() for piece in PIECES[-1](kernel)]
    if len(bodies) > 1:
        bodies = [["    {", *body, "    }"] for body in bodies]
    return "\n".join([
        f'extern "C" void {kernel.name}(',
        "        " + ",\n        ".join(given) + ") {",
        *(line for body in bodies for line in body), "}"])


def types(kernel: Kernel) -> dict[str, str]:
    """C++'s type of every buffer the kernel touches."""
    found = {load.buffer: load.dtype for loop in kernel.loops
             for load in loop.loads}
    found |= {loop.buffer.name: loop.buffer.dtype for loop in kernel.loops}
    for dtype in found.values():
        if dtype not in CPP.types:
            raise failure(kernel, f"C++ has no type for {dtype} here")
    return {name: CPP.types[dtype] for name, dtype in found.items()}


def variables(fold: Local, vectors: bool) -> list[tuple[str, str, str]]:
    """(type, name, start) of what a reduction accumulates.

    OpenMP's maximum loses NaN, so a vector loop notes it apart.
    """
    name = accumulator(fold)
    found = [(CPP.types[accumulated(fold, vectors)], name,
              CPP.neutral(fold))]
    return found + [("int", f"nan{fold.number}", "0")] * (
        vectors and flagged(fold))


def accumulated(fold: Local, vectors: bool) -> torch.dtype:
    """The dtype of an accumulator: a double for a long sum of floats."""
    dtype = CPP.accumulator(fold)
    long = fold.node.long or not vectors
    return torch.float64 if long and dtype == torch.float32 and (
        fold.node.reduction == "sum") else dtype


def flagged(fold: Local) -> bool:
    """Whether NaN wins, and the type has one."""
    return (fold.node.reduction in ("max", "min")
            and fold.dtype.is_floating_point)


def clauses(folds: tuple[Local, ...]) -> str:
    """The clauses for a vector loop over elements."""
    found: dict[str, list[str]] = {}
    for fold in folds:
        for sign, (_, name, _) in zip(
                (CLAUSES[fold.node.reduction], "|"), variables(fold, True)):
            found.setdefault(sign, []).append(name)
    return "".join(f" reduction({sign}:{', '.join(names)})"
                   for sign, names in found.items())


def step(fold: Local, lane: str, value: str) -> list[str]:
    """Lines that take a value in; rows in lanes have each their own."""
    into = accumulator(fold) + lane
    if lane or not flagged(fold):
        return [f"{into} = {CPP.combined(fold, into, value)};"]
    sign = "<>"[fold.node.reduction == "max"]
    return [f"{into} = {value} {sign} {into} ? {value} : {into};",
            f"nan{fold.number} |= {value} != {value};"]


def result(fold: Local, text: str, vectors: bool) -> str:
    """The finished reduction, in the type that holds it."""
    if vectors and flagged(fold):
        text = f"nan{fold.number} ? not_a_number : {text}"
    return CPP.convert(text, accumulated(fold, vectors), fold.dtype)
