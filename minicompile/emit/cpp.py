"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function, one line a value. Rows run in parallel,
and the innermost loop is marked for vectors. A LoopOrder says which loop
that is; the reference has better orders. One run of g++ makes a library of
all kernels of a program, named by the hash of source, compiler, flags and
processor. Inductor's are torch/_inductor/codegen/cpp.py and cpp_builder.py.
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from ..core.cache import library
from ..core.index import Index, Variable, index, most_of
from ..core.layout import flatten, row_major
from ..core.loops import Buffer, Expression, Kernel, Load, Position
from .target import CPP, FUNCTIONS, HALVES
from .writer import Fold, Stage, Store, Writer, failure, reached, stages

#: How many floats are summed up as floats: 2048, in 16 lanes.
LONG = 2048
#: The operators that let OpenMP's vector loop accumulate in lanes.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}


@dataclass(frozen=True)
class LoopOrder:
    """How a kernel's loops are run.

    `outer` variables of the row run one by one. The rows of `lanes` run
    side by side, in blocks of `block`, inside all other loops; the last of
    these is the vector loop. Without any it is the last of `reduced`, the
    loops over elements. Work beyond `worth` elements wakes more threads.
    """

    stages: tuple[Stage, ...]
    outer: tuple[Variable, ...]
    lanes: tuple[Variable, ...]
    reduced: tuple[Variable, ...]
    block: int = 1024
    worth: int = 1 << 13

    @property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        return tuple(v for v in self.lanes
                     if most_of(v.size) > self.block)


def plain(kernel: Kernel) -> LoopOrder:
    """The last loop in vectors, whether it is over rows or elements."""
    last = 0 if kernel.reduced else 1
    return LoopOrder(
        stages(kernel), kernel.ranges[:len(kernel.ranges) - last],
        kernel.ranges[-last:] * last, kernel.reduced)


#: In what order loops are run: the last of these decides.
ORDERS: list[Callable[[Kernel], LoopOrder]] = [plain]


@dataclass
class CppWriter(Writer):
    """One kernel being written in C++.

    `kept` names the scratch of values that a later pass reads again.
    """

    order: LoopOrder = field(kw_only=True)
    kept: dict[Expression, str] = field(default_factory=dict)
    target = CPP

    def body(self) -> list[str]:
        """The lines inside the function."""
        with self.rows():
            self.work()
        return self.lines

    def rows(self):
        """The loops over rows, and over the starts `v_` of blocks.

        Threads share them if there is enough work.
        """
        order = self.order
        loops = [(v, str(v), 1) for v in order.outer] + [
            (v, f"{v}_", order.block) for v in order.blocked]
        pragmas = [self.threads(len(loops)), *[""] * len(loops)]
        return self.nest(*(
            self.loop(name, pragma, stop=CPP.index(v.size), step=step)
            for (v, name, step), pragma in zip(loops, pragmas)))

    def lanes(self):
        """Loops over the rows that run side by side."""
        return self.nest(*(
            self.within(v, "simd" * (v is self.order.lanes[-1]))
            for v in self.order.lanes))

    def within(self, variable: Variable, pragma: str):
        """A loop over the block that starts at `v_`, if it has blocks."""
        size, block = variable.size, self.order.block
        if variable not in self.order.blocked:
            return self.loop(variable, pragma)
        stop = f"{variable}_ + {block}"
        if size % block != 0:
            stop = f"smaller<int64>({stop}, {CPP.index(size)})"
        return self.loop(variable, pragma, f"{variable}_", stop)

    @property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        if not self.order.lanes:
            return ""
        inner = self.order.lanes[-1]
        return f"[{inner}{f' - {inner}_' * (inner in self.order.blocked)}]"

    def array(self, value: Expression, count: Index | int) -> str:
        """The name of an array of such values, which is declared."""
        name = self.numbered("k", value)
        self.add(f"{CPP.type_of(value.dtype)} {name}[{count}];")
        return name

    def threads(self, loops: int) -> str:
        """The pragma that shares loops among threads, if it is worth it."""
        work = self.kernel.rows * self.kernel.row_length
        if most_of(work) <= self.order.worth:
            return ""
        clause = f" collapse({loops})" * (loops > 1)
        if work.constant is None:
            clause += f" if({CPP.index(work)} >= {self.order.worth})"
        return f"parallel for{clause}"

    def loop(self, name: Variable | str, pragma: str = "",
             start: object = 0, stop: object = None, step: int = 1):
        """A loop over a whole variable, or from `start` to `stop`."""
        stop = CPP.index(name.size) if stop is None else stop
        forward = f"++{name}" if step == 1 else f"{name} += {step}"
        return self.block(
            f"for (int64 {name} = {start}; {name} < {stop}; {forward})",
            *[f"#pragma omp {pragma}"] * bool(pragma))

    def value(self, node: Expression) -> str:
        """The text of a value whose operands have names."""
        match node:
            case Position(where, dtype):
                return CPP.convert(CPP.index(where), torch.int64, dtype)
            case Load(buffer, where, dtype, mask, other):
                text = f"{buffer}_ptr[{CPP.index(where)}]"
                text = f"load({text})" if dtype in HALVES else text
                return text if mask is None else (
                    f"{self.read(mask)} ? {text} : "
                    f"{CPP.literal(other, dtype)}")
        return super().value(node)

    def store(self, store: Store) -> str:
        """The line that puts a value into memory."""
        place = f"{store.buffer}_ptr[{CPP.index(store.index)}]"
        value = self.read(store.value)
        return (f"store({place}, {value});" if store.value.dtype in HALVES
                else f"{place} = {value};")

    def work(self) -> None:
        """The stages, after the scratch for the values that a row keeps."""
        self.kept = {value: self.array(
            value, most_of(self.kernel.row_length))
            for value in dict.fromkeys(
                value for stage in self.stages for value in stage.again)}
        super().work()

    def row(self, stage: Stage) -> None:
        """Values of the row; rows side by side have arrays of those that
        are read elsewhere."""
        if not self.order.lanes:
            return super().row(stage)
        read = reached((each for other in self.stages for each in (
            *other.stores, *other.folds,
            *(other.row_stores if other is not stage else ()))),
            lambda node: node not in stage.row)
        public = {value: self.array(value, self.order.block) + self.lane
                  for value in stage.row if value in read}
        with self.lanes():
            super().row(stage)
            self.add(*(f"{place} = {self.read(value)};"
                       for value, place in public.items()))
        self.texts |= public

    def elements(self, stage: Stage) -> None:
        """A pass: accumulators, loops over the elements, and results.

        The accumulator of rows side by side is an array.
        """
        lane, block = self.lane, self.order.block
        *outer, last = self.order.reduced
        made = [each for fold in stage.folds
                for each in self.variables(fold)]
        self.add(*(f"{kind} {name}" + (f"[{block}];" if lane
                                       else f" = {start};")
                   for kind, name, start, _ in made))
        if lane and made:
            with self.lanes():
                self.add(*(f"{name}{lane} = {start};"
                           for _, name, start, _ in made))
        inner = [self.loop(last), self.lanes()] if lane else [
            self.loop(last, "simd" + "".join(
                f" reduction({sign}:{name})" for _, name, _, sign in made))]
        with self.nest(*map(self.loop, outer), *inner):
            self.element(stage)
        for fold in stage.folds:
            text = self.result(fold, self.accumulator(fold) + lane)
            if lane:
                self.texts[fold] = text
            else:
                self.name(fold, text)

    def element(self, stage: Stage) -> None:
        """Write one element's part of a pass: values, those to keep, and
        each reduction's next step."""
        place = CPP.index(flatten(map(index, self.order.reduced), row_major(
            tuple(v.size for v in self.order.reduced))))
        for value in stage.again:
            self.name(value, f"{self.kept[value]}[{place}]")
        self.compute(stage.body, stage.stores)
        for fold in stage.folds:
            value = self.read(fold.operands[0])
            into, flag = self.accumulator(fold) + self.lane, self.flag(fold)
            better = "<>"[fold.reduction == "max"]
            self.add(f"{into} = " + (
                f"{value} {better} {into} ? {value} : {into};" if flag
                else f"{CPP.combined(fold, into, value)};"))
            self.add(*[f"{flag} |= {value} != {value};"] * bool(flag))
        self.add(*(f"{name}[{place}] = {self.read(value)};"
                   for value, name in self.kept.items()
                   if value in stage.body))

    def variables(self, fold: Fold) -> list[tuple[str, str, str, str]]:
        """(type, name, start, operator) of what a reduction accumulates.
        """
        found = [(CPP.types[self.accumulated(fold)], self.accumulator(fold),
                  CPP.neutral(fold), CLAUSES[fold.reduction])]
        flag = self.flag(fold)
        return found + [("int", flag, "0", "|")] * bool(flag)

    def accumulated(self, fold: Fold) -> torch.dtype:
        """The dtype of an accumulator: a double for a long sum of floats.
        """
        short = not self.order.lanes and (
            most_of(self.kernel.row_length) <= LONG)
        dtype = CPP.accumulator(fold)
        return dtype if short or dtype != torch.float32 or (
            fold.reduction != "sum") else torch.float64

    def flag(self, fold: Fold) -> str:
        """The name of what notes NaN, which OpenMP's maximum loses."""
        lost = (not self.order.lanes and fold.reduction in ("max", "min")
                and fold.dtype.is_floating_point)
        return self.numbered("nan", fold) if lost else ""

    def result(self, fold: Fold, text: str) -> str:
        """The finished reduction, in the type that holds it."""
        flag = self.flag(fold)
        text = f"{flag} ? not_a_number : {text}" if flag else text
        return CPP.convert(text, self.accumulated(fold), fold.dtype)


#: Into which kernels one is split first: the last row decides.
PIECES: list[Callable[[Kernel], tuple[Kernel, ...]]] = [
    lambda kernel: (kernel,)]


def text_of(kernel: Kernel) -> str:
    """The kernel as a C++ function of its buffers' addresses."""
    kinds = types(kernel)
    both = {name for buffer in kernel.written.values()
            for name in (buffer.name, buffer.into)
            if buffer.into in kernel.read}  # one memory, two names
    given = [f"{'const ' * (name in kernel.read)}{kinds[name]}* "
             f"{'__restrict ' * (name not in both)}{name}_ptr"
             for name in (*kernel.read, *kernel.written)]
    given += [f"int64 {symbol}" for symbol in kernel.symbols]
    bodies = [CppWriter(piece, order.stages, depth=1, order=order).body()
              for piece in PIECES[-1](kernel)
              for order in [ORDERS[-1](piece)]]
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


#: The first lines of the source. `SIMD` tells g++ that the C library has a
#: vector form of a function, so that a loop which calls `expf` still
#: becomes vector code. No standard header is read: that would take longer
#: than compiling the kernels.
HEADER = r"""
#include <features.h>
#ifndef __GLIBC_PREREQ
#define __GLIBC_PREREQ(major, minor) 0
#endif
typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

#if defined(__x86_64__) && __GLIBC_PREREQ(2, 35)
#define SIMD __attribute__((const, simd("notinbranch")))
#else
#define SIMD __attribute__((const))
#endif
#define UNARY(name) SIMD double name(double); SIMD float name##f(float);
#define BINARY(name) \
    SIMD double name(double, double); SIMD float name##f(float, float);
extern "C" {
UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10)
UNARY(log1p) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos)
UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh)
UNARY(atanh) UNARY(erf) UNARY(erfc) BINARY(pow) BINARY(atan2)
BINARY(hypot)
#undef SIMD
#define SIMD
UNARY(sqrt) UNARY(fabs) UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(rint)
UNARY(lgamma) BINARY(fmod) BINARY(copysign)
}
#define infinity __builtin_inff()
#define not_a_number __builtin_nanf("")
#define inline_ static inline __attribute__((always_inline))

constexpr int64 least = 1ull << 63;
template <class T> inline_ T smaller(T a, T b) { return a < b ? a : b; }
// NaN wins.
template <class T> inline_ T maximum(T a, T b) {
    return a > b | a != a ? a : b;
}
template <class T> inline_ T minimum(T a, T b) {
    return a < b | a != a ? a : b;
}
"""

#: g++ would make one sincosf, which has no vector form, of sin and cos.
#: No -ffast-math: NaN, infinity and -0.0 are what they are in eager, and
#: additions keep their order. -fwrapv: integers wrap around.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fwrapv",
         "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf",
         "-fno-builtin-cosf", "-fno-plt", "-w", "-shared", "-fPIC") + (
    ("-mprefer-vector-width=512",)  # AVX-512 in full width
    if platform.machine() == "x86_64" else ())


@cache
def processor() -> str:
    """The features of this processor, on which -march=native depends."""
    found = re.search(r"^(flags|Features)\s*:.*$",
                      Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return platform.machine() + (found.group() if found else "")


def headed(source: str) -> str:
    """The C++ source after what every kernel starts with."""
    return HEADER + "".join(FUNCTIONS["cpp"]) + source


def built(source: str) -> ctypes.CDLL:
    """The C++ source as a loaded library, compiled if need be."""
    return ctypes.CDLL(str(library(headed(source), *FLAGS, *_libraries(),
                                   host=processor())))


@cache
def _libraries() -> tuple[str, ...]:
    """The libraries to link: the C library's vectors, PyTorch's OpenMP.

    With an OpenMP of its own a kernel would have threads of its own, and
    torch.set_num_threads would not reach them.
    """
    loaded = re.search(r"\S*/lib[gi]omp\S*\.so\S*",
                       Path("/proc/self/maps").read_text())
    vectors = ("-lmvec",) if "x86_64" in platform.machine() else ()
    return (*vectors, "-lm", *((loaded.group(),) if loaded else ()))


def entry(library: ctypes.CDLL, name: str, count: int):
    """A kernel of the library, called with `count` addresses and sizes."""
    found = library[name]
    found.argtypes, found.restype = (ctypes.c_int64,) * count, None
    return found


class CppPrinter:
    """All kernels of a program as one C++ text, compiled as one library.
    """

    def prelude(self) -> str:
        """The import that compiles and loads."""
        return "from minicompile.emit.cpp import built, entry"

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The C++ text, and a Python function for each kernel."""
        text = "\n\n".join(map(text_of, kernels))
        counts = {kernel.name: len((*kernel.read, *kernel.written,
                                    *kernel.symbols)) for kernel in kernels}
        return "\n".join([
            f'library = built(r"""\n{text}\n""")',
            *(f'{name} = entry(library, "{name}", {count})'
              for name, count in counts.items())])

    def prepare(self, kernel: Kernel, defined: object,
                buffers: dict[str, Buffer]) -> None:
        """Nothing: g++ has compiled it."""

    def begin(self) -> str:
        """Nothing: a call needs no stream."""
        return ""

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call, with the addresses of the tensors, and numbers."""
        given = [f"{name}.data_ptr()" for name in tensors]
        return f"{kernel.name}({', '.join([*given, *numbers])})"
