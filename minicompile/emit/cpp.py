"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function, one line a value. Rows run in parallel,
and the loop over a row's elements is marked for vectors; the reference has
better orders of the loops. One run of g++ makes a library of all kernels
of a program, named by the hash of source, compiler, flags and processor.
Inductor's are torch/_inductor/codegen/cpp.py and cpp_builder.py.
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from ..core.cache import library
from ..core.index import Variable, most_of
from ..core.loops import Expression, Kernel, Load, Position
from .target import CPP, FUNCTIONS, HALVES
from .writer import Fold, Stage, Store, Writer, failure, stages

#: How many floats are summed up as floats: 2048, in 16 lanes.
LONG = 2048
#: The operators that let OpenMP's vector loop accumulate in lanes.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}


@dataclass
class CppWriter(Writer):
    """One kernel being written in C++: rows outside, elements inside.

    Work beyond `worth` elements wakes more threads.
    """

    worth: int = 1 << 13
    target = CPP

    def body(self) -> list[str]:
        """The lines inside the function."""
        with self.rows():
            self.work()
        return self.lines

    def rows(self):
        """The loops over rows; threads share the outermost one."""
        return self.nest(*(
            self.loop(variable, "" if place else self.threads(1))
            for place, variable in enumerate(self.kernel.ranges)))

    def threads(self, loops: int) -> str:
        """The pragma that shares loops among threads, if it is worth it."""
        work = self.kernel.rows * self.kernel.row_length
        if most_of(work) <= self.worth:
            return ""
        clause = f" collapse({loops})" * (loops > 1)
        if work.constant is None:
            clause += f" if({CPP.index(work)} >= {self.worth})"
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

    def elements(self, stage: Stage) -> None:
        """A pass: accumulators, loops over the elements, and results."""
        made = [each for fold in stage.folds
                for each in self.variables(fold)]
        self.add(*(f"{kind} {name} = {start};"
                   for kind, name, start, _ in made))
        *outer, last = self.kernel.reduced
        with self.nest(*map(self.loop, outer), self.loop(
                last, "simd" + "".join(f" reduction({sign}:{name})"
                                       for _, name, _, sign in made))):
            self.element(stage)
        for fold in stage.folds:
            self.name(fold, self.result(fold))

    def element(self, stage: Stage) -> None:
        """Write one element's part of a pass: values, and each
        reduction's next step."""
        self.compute(stage.body)
        for fold in stage.folds:
            value = self.read(fold.operands[0])
            into, flag = self.accumulator(fold), self.flag(fold)
            better = "<>"[fold.reduction == "max"]
            self.add(f"{into} = " + (
                f"{value} {better} {into} ? {value} : {into};" if flag
                else f"{CPP.combined(fold, into, value)};"))
            self.add(*[f"{flag} |= {value} != {value};"] * bool(flag))

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
        dtype = CPP.accumulator(fold)
        return torch.float64 if self.long and dtype == torch.float32 and (
            fold.reduction == "sum") else dtype

    @property
    def long(self) -> bool:
        """Whether a float would lose digits of a row's sum."""
        return most_of(self.kernel.row_length) > LONG

    def flag(self, fold: Fold) -> str:
        """The name of what notes NaN, which OpenMP's maximum loses."""
        lost = (fold.reduction in ("max", "min")
                and fold.dtype.is_floating_point)
        return self.numbered("nan", fold) if lost else ""

    def result(self, fold: Fold) -> str:
        """The finished reduction, in the type that holds it."""
        text, flag = self.accumulator(fold), self.flag(fold)
        text = f"{flag} ? not_a_number : {text}" if flag else text
        return CPP.convert(text, self.accumulated(fold), fold.dtype)


#: The writers of a kernel's parts, one after the other: the last decides.
WRITERS: list[Callable[[Kernel], list[CppWriter]]] = [
    lambda kernel: [CppWriter(kernel, stages(kernel), depth=1)]]


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
    bodies = [writer.body() for writer in WRITERS[-1](kernel)]
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

    prelude = "from minicompile.emit.cpp import built, entry"
    begin, prepare = "", None  # no stream; g++ compiles as it loads

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The C++ text, and a Python function for each kernel."""
        text = "\n\n".join(map(text_of, kernels))
        counts = {kernel.name: len((*kernel.read, *kernel.written,
                                    *kernel.symbols)) for kernel in kernels}
        return "\n".join([
            f'library = built(r"""\n{text}\n""")',
            *(f'{name} = entry(library, "{name}", {count})'
              for name, count in counts.items())])

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call, with the addresses of the tensors, and numbers."""
        given = [f"{name}.data_ptr()" for name in tensors]
        return f"{kernel.name}({', '.join([*given, *numbers])})"
