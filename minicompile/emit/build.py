"""From C++ text to functions: one run of g++ for a whole program.

In: the C++ source of all kernels of a program. Out: a library that ctypes
has loaded. It is compiled once: the file's name is the hash of source,
compiler, flags and processor. `CppPrinter` writes this into a program.
Inductor's is torch/_inductor/cpp_builder.py.
"""

from __future__ import annotations

import ctypes
import platform
import re
from functools import cache
from pathlib import Path

from ..core.cache import library
from ..core.loops import Kernel
from .cpp import function as text_of
from .operations import FUNCTIONS
from .writer import Printer

#: What every kernel starts with. `SIMD` tells g++ that the C library has a
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
void* malloc(unsigned long);
void free(void*);
}
#define infinity __builtin_inff()
#define not_a_number __builtin_nanf("")
#define inline_ static inline __attribute__((always_inline))

template <class T> constexpr bool is_float = (T)0.5f == 0.5f;
template <class T> constexpr bool is_signed = (T)-1 < (T)0;
template <class T> constexpr int last_bit = sizeof(T) * 8 - 1;
constexpr int64 least = 1ull << 63, most = ~least;
template <class T> inline_ T smaller(T a, T b) { return a < b ? a : b; }

template <class To, class From> inline_ To same_bits(From value) {
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}
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


def load(source: str) -> ctypes.CDLL:
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


def function(library: ctypes.CDLL, name: str, count: int, sizes: int = 0):
    """A kernel of the library, called with `count` addresses, then sizes.
    """
    found = library[name]
    found.argtypes = (ctypes.c_void_p,) * count + (ctypes.c_int64,) * sizes
    found.restype = None
    return found


class CppPrinter(Printer):
    """All kernels of a program as one C++ text, compiled as one library."""

    def prelude(self) -> str:
        """The import that compiles and loads."""
        return "from minicompile.emit.build import function, load"

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The C++ text, and a Python function for each kernel."""
        text = "\n\n".join(map(text_of, kernels))
        lines = [f'library = load(r"""\n{text}\n""")']
        for kernel in kernels:
            count = len(kernel.read) + len(kernel.written)
            sizes = f", {len(kernel.symbols)}" * bool(kernel.symbols)
            lines.append(f'{kernel.name} = function(library, '
                         f'"{kernel.name}", {count}{sizes})')
        return "\n".join(lines)

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call, with the addresses of the tensors, and numbers."""
        given = [f"{name}.data_ptr()" for name in tensors]
        return f"{kernel.name}({', '.join([*given, *numbers])})"
