"""C++ kernels: loop nests that g++ turns into vector and parallel code.

In: a Kernel. Out: a C++ function, one line a value: loops over rows, and
over a row's elements inside. The reference chooses the order of the loops,
and has vectors and threads. One run of g++ makes a library of all kernels
of a program, named by the hash of source, compiler, flags and processor.
Inductor's are torch/_inductor/codegen/cpp.py and cpp_builder.py.
"""

import ctypes
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from ..core.cache import library
from ..core.index import Variable, atoms_of, coefficient
from ..core.loops import Expression, Kernel, Load, Position, walk
from .target import CPP, FUNCTIONS
from .writer import Fold, Store, Writer, failure


@dataclass
class CppWriter(Writer):
    """One kernel being written in C++: rows outside, elements inside."""

    target = CPP

    def body(self) -> list[str]:
        """The lines inside the function."""
        with self.rows():
            self.work()
        return self.lines

    def rows(self):
        """The loops over rows."""
        return self.nest(*map(self.loop, self.kernel.ranges))

    def loops(self, folds: list[Fold]):
        """The loops over the elements of a row."""
        return map(self.loop, self.kernel.reduced)

    def loop(self, variable: Variable):
        """A loop over a variable."""
        return self.block(f"for (int64 {variable} = 0; {variable} < "
                          f"{CPP.index(variable.size)}; ++{variable})")

    def value(self, node: Expression) -> str:
        """The text of a value whose operands have names."""
        match node:
            case Position(where, dtype):
                return CPP.convert(CPP.index(self.index(where)),
                                   torch.int64, dtype)
            case Load(buffer, where, dtype, mask):
                text = f"{buffer}_ptr[{CPP.index(self.index(where))}]"
                return text if mask is None else (
                    f"{self.read(mask)} ? {text} : {CPP.literal(0, dtype)}")
        return super().value(node)

    def store(self, store: Store) -> str:
        """The line that puts a value into memory."""
        how = "+=" if store.adds else "="
        return (f"{store.buffer}_ptr[{CPP.index(self.index(store.index))}] "
                f"{how} {self.read(store.value)};")

    def finish(self, fold: Fold) -> None:
        """The finished reduction, in the type that holds it."""
        self.name(fold, CPP.convert(self.accumulator(fold),
                                    self.accumulated(fold), fold.dtype))


#: What writes the lines of a kernel's function: the last.
BODIES: list[Callable[[Kernel], list[str]]] = [
    lambda kernel: CppWriter(kernel).body()]


def in_cpp(kernel: Kernel) -> str:
    """The kernel as a C++ function of its buffers' addresses."""
    return "\n".join([head(kernel), *BODIES[-1](kernel), "}"])


def head(kernel: Kernel) -> str:
    """The lines that begin the function."""
    kinds, names = types(kernel), (*kernel.read, *kernel.written)
    shared = {name for b in kernel.written.values() if b.into in names
              for name in (b.name, b.into)}
    given = [f"{'const ' * (name in kernel.read)}{kinds[name]}* "
             f"{'__restrict ' * (name not in shared)}{name}_ptr"
             for name in names]
    given += [f"int64 {symbol}" for symbol in kernel.symbols]
    how = '__attribute__((optimize("no-tree-loop-vectorize"))) ' * mixes(
        kernel)
    return f'extern "C" {how}void {kernel.name}(\n        ' + (
        ",\n        ".join(given) + ") {")


def mixes(kernel: Kernel) -> bool:
    """Whether g++ 12 may mix up the lanes of a vector: it unrolls a loop
    over fewer than 16 neighbours in it, whose loads have masks."""
    short = {v for loop in kernel.loops for v in loop.ranges
             if v.size.constant in range(2, 16)
             and coefficient(loop.index, v) == 1}
    masks = [{atom for node in walk(load.mask)
              if isinstance(node, (Load, Position))
              for atom in atoms_of(node.index)}
             for loop in kernel.loops for load in loop.loads if load.mask]
    return any(mask - {v} for v in short for mask in masks)


#: How kernels are printed, by their class.
CPP_TEXTS: dict[type[Kernel], Callable[[Kernel], str]] = {Kernel: in_cpp}


def types(kernel: Kernel) -> dict[str, str]:
    """C++'s type of every buffer the kernel touches. Bools are read as
    bytes: g++ makes no vectors of a loop that reads `bool`."""
    found = {load.buffer: load.dtype for loop in kernel.loops
             for load in loop.loads}
    found |= {buffer.name: buffer.dtype for buffer in (
        *(loop.buffer for loop in kernel.loops), *kernel.written.values())}
    for dtype in found.values():
        if dtype not in CPP.types:
            raise failure(kernel, f"C++ has no type for {dtype} here")
    return {name: "uint8" if dtype == torch.bool else CPP.types[dtype]
            for name, dtype in found.items()}


#: The first lines of the source. No standard header is read: that would
#: take longer than compiling the kernels. `SIMD` marks the functions that
#: have a vector form, if any.
HEADER = r"""
typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

#ifndef SIMD
#define SIMD
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
// g++ takes (float)(int)x for trunc(x), which differs at -0.5.
int64 nothing = 0;
template <class T, class F> inline_ T cut(F x) {
    return (T)x ^ (T)nothing;
}
// Divisions of whole numbers round to zero. These round down.
inline_ int64 floor_rest(int64 a, int64 b) {
    return a % b < 0 ? a % b + b : a % b;
}
inline_ int64 floor_quotient(int64 a, int64 b) {
    return (a - floor_rest(a, b)) / b;
}
template <class T> inline_ T smaller(T a, T b) { return a < b ? a : b; }
// NaN wins.
template <class T> inline_ T maximum(T a, T b) {
    return a > b | a != a ? a : b;
}
template <class T> inline_ T minimum(T a, T b) {
    return a < b | a != a ? a : b;
}
"""

FUNCTIONS["cpp"].append(HEADER)

#: No -ffast-math: NaN, infinity and -0.0 are what they are in eager, and
#: additions keep their order. -fwrapv: integers wrap around.
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fwrapv",
         "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-plt", "-w", "-shared", "-fPIC", "-lm"]


@cache
def processor() -> str:
    """The features of this processor, on which -march=native depends."""
    found = re.search(r"^(flags|Features)\s*:.*$",
                      Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return platform.machine() + (found.group() if found else "")


def headed(source: str) -> str:
    """The C++ source after what every kernel starts with."""
    return "".join(FUNCTIONS["cpp"]) + source


def built(source: str) -> ctypes.CDLL:
    """The C++ source as a loaded library, compiled if need be."""
    return library(headed(source), *FLAGS, host=processor())


def entry(library: ctypes.CDLL, name: str, count: int):
    """A kernel of the library, called with `count` addresses and sizes."""
    found = library[name]
    found.argtypes, found.restype = (ctypes.c_int64,) * count, None
    return found


class CppPrinter:
    """All kernels of a program as one C++ text, compiled as one library.
    """

    prelude = "from minicompile.emit.cpp import built, entry"
    begin = ""  # no stream

    def text(self, kernel: Kernel) -> str:
        """The kernel as a C++ function."""
        return CPP_TEXTS[type(kernel)](kernel)

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The C++ text, and a Python function for each kernel."""
        text = "\n\n".join(map(self.text, kernels))
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
