"""A compiled Triton kernel handed to CUDA's driver by a few lines of C++.

`kernel[grid](...)` binds arguments, looks the compiled kernel up and asks
for stream and device: several microseconds, each call. It was compiled
for addresses that are multiples of 16: a call with another goes Triton's
way. Inductor's is in torch/_inductor/runtime/static_triton_launcher.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache

from ...core import log
from ...core.extension import extension
from ..printer import STARTERS

LAUNCHER = r"""
using Start = int (*)(void *, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, unsigned, void *, void **,
                      void **);

// A kernel as the driver takes it. A letter follows for each argument: '*'
// for a tensor, 'i' for a number, 'c' for what is compiled in. If there are
// 0 programs, a call says how many.
struct Kernel {
    Start start;
    void *function;
    int64_t threads, shared, programs;
};

// Triton's kernels have some last parameters of Triton's own: zeros.
const int SPARE = 4;

// Launch, and true; false if nothing has happened.
bool started(const Kernel &kernel, PyObject *const *given,
             Py_ssize_t passed) try {
    auto letters = (const char *)(&kernel + 1);
    auto count = (Py_ssize_t)strlen(letters), used = (Py_ssize_t)0;
    if (given[0] == Py_None) return false;
    void *stream = PyLong_AsVoidPtr(given[0]);
    auto programs = passed == 1 + count ? kernel.programs
                    : PyLong_AsLongLong(given[1 + count]);
    int64_t slots[count + SPARE] = {}, addresses = 0;
    void *places[count + SPARE];
    for (Py_ssize_t i = 0; i < count; i++)
        if (letters[i] == '*')
            addresses |= slots[used++] =
                (int64_t)((Variable *)given[1 + i])->tensor->data();
        else if (letters[i] == 'i')
            slots[used++] = PyLong_AsLongLong(given[1 + i]);
    for (Py_ssize_t i = 0; i < count + SPARE; i++) places[i] = slots + i;
    if (PyErr_Occurred() || addresses % 16) return false;
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    if (programs)
        failed = kernel.start(
            kernel.function, programs, 1, 1, kernel.threads, 1, 1,
            kernel.shared, stream, places, nullptr);
    Py_END_ALLOW_THREADS
    return !failed;
} catch (...) { return false; }

// run(stream, *arguments), or with the number of programs at the end.
ASK(run) {
    auto kernel = PyBytes_AS_STRING(PyTuple_GET_ITEM(self, 0));
    if (started(*(const Kernel *)kernel, given, passed)) Py_RETURN_NONE;
    PyErr_Clear();
    auto count = 1 + strlen(kernel + sizeof(Kernel));
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 1), given, count,
                               nullptr);
}

// bound(kernel, plainly): the function run() with that kernel.
static PyMethodDef RUN = ENTRY(run);
static PyObject *bound(PyObject *, PyObject *both) {
    return PyCFunction_New(&RUN, both);
}
static PyMethodDef entries[] = {
    ENTRY(address), {"bound", bound, METH_VARARGS}, {}};
MODULE(launcher)
"""


@cache
def driver() -> tuple[Callable, int] | None:
    """bound() of the C++, and where CUDA's driver has cuLaunchKernel."""
    try:
        start = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        address = ctypes.cast(start, ctypes.c_void_p).value
        return extension("launcher", LAUNCHER).bound, address
    except (ImportError, OSError) as error:
        log.warn_once(f"minicompile launches kernels as Triton does, which "
                      f"takes longer: {error}")
        return None


def direct(launch, compiled, function: int) -> Callable:
    """`run` that hands the compiled kernel to the driver.

    Whatever is unusual about a call, even an error, is left to `plainly`.
    """
    about, found = compiled.metadata, driver()
    letters = "".join(kind[0] for kind in compiled.src.signature.values())
    if (not found or set(letters) - set("*ic")
            or about.global_scratch_size or about.profile_scratch_size):
        return launch.plainly
    bound, start = found
    sized = launch.sizes != slice(0, 0)
    run = bound(struct.pack(
        f"5q{len(letters)}s", start, function, 32 * about.num_warps,
        about.shared, 0 if sized else launch.grid(),
        letters.encode()), launch.plainly)
    if not sized:
        return run
    return lambda stream, *given: run(
        stream, *given, launch.grid(*given[launch.sizes]))


STARTERS.append(direct)
