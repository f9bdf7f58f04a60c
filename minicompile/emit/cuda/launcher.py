"""Triton kernels compiled in parallel and handed to CUDA's driver.

`kernel[grid](...)` binds arguments, looks the compiled kernel up and asks
for stream and device: several microseconds a call. Here a few lines of C++
start what Triton has compiled. It was compiled for addresses that are
multiples of 16: a call with another one goes Triton's way. Inductor's is
in torch/_inductor/runtime/static_triton_launcher.py.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial

import torch

from ...core import log
from ...core.semantics.evaluate import evaluate_kernel, flat
from ...core.torch.extension import extension
from ...core.loops import Kernel
from ..launch import TRITON_PRINTERS, Launch, TritonPrinter
from ..program import STARTS, Text, device_of
from ..writer import failure

LAUNCHER = r"""
using Start = int (*)(void *, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, unsigned, void *, void **,
                      void **);

// A kernel as the driver takes it. A letter follows for each argument: '*'
// for a tensor, 'i' or 'f' for a number, 'c' for what is compiled in. If
// there are 0 programs, a call says how many.
struct Kernel {
    Start start;
    void *function;
    int64_t threads, shared, members, programs;
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
        else if (letters[i] == 'f')
            *(float *)&slots[used++] = PyFloat_AsDouble(given[1 + i]);
    for (Py_ssize_t i = 0; i < count + SPARE; i++) places[i] = slots + i;
    if (PyErr_Occurred() || addresses % 16) return false;
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    if (programs)
        failed = kernel.start(
            kernel.function, programs, kernel.members, 1,
            kernel.threads, 1, 1, kernel.shared, stream, places,
            nullptr);
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


def direct(launch: Launch, compiled, function: int) -> Callable:
    """`run` that hands the compiled kernel to the driver.

    An unusual call, even one that raises, is left to `plainly`.
    """
    about, found = compiled.metadata, driver()
    letters = "".join(kind[0] for kind in compiled.src.signature.values())
    if (not found or set(letters) - set("*icf")
            or about.global_scratch_size or about.profile_scratch_size):
        return launch.plainly
    bound, start = found
    more = (None,) * bool(launch.wide)  # no argument, but a constant
    count = len(letters) - len(more)
    run = bound(struct.pack(
        f"6q{len(letters)}s", start, function, 32 * about.num_warps,
        about.shared, launch.members, 0 if launch.sizes else launch.grid(),
        letters.encode()),
        lambda stream, *given: launch.plainly(stream, *given[:count]))
    if not launch.sizes:
        return run
    return lambda stream, *given: run(
        stream, *given, *more, launch.grid(*given[-launch.sizes:]))


class Compiled(Launch):
    """A Launch that compiles ahead, and starts kernels directly.

    Triton compiles again for other kinds of sizes: each has its start. If
    a kernel does not compile, PyTorch evaluates it instead.
    """

    def __init__(self, *given: object, **more: object):
        super().__init__(*given, **more)
        self.of: Kernel | None = None  # the kernel computed
        self.begun: dict[tuple, tuple[list, Future]] = {}
        self.starts: dict[tuple, Callable] = {}
        self.plainly = super().run

    def run(self, stream: int | None, *given: torch.Tensor | int) -> None:
        """Launch, once it is compiled for such arguments."""
        key = self.kind(given)
        if key not in self.starts:
            self.starts[key] = self.first(key, given)
            if not self.sizes:  # no other kind will come
                self.run = self.starts[key]
        self.starts[key](stream, *given)

    def kind(self, given: tuple) -> tuple:
        """All about the sizes for which Triton compiles again."""
        sizes, more = self.more(given)
        return *((size == 1, size % 16 == 0, size >= 1 << 31)
                 for size in sizes), *more

    def prepare(self, of: Kernel, device: int,
                *given: torch.dtype | int) -> Future:
        """Begin to compile for such tensors and numbers."""
        self.of = of
        future = compilers().submit(self.compile, device, given)
        self.begun[self.kind(given)] = _dtypes(given), future
        return future

    def compile(self, device: int | torch.device, given: tuple):
        """The kernel, compiled and on the device, and its address there."""
        import triton
        with torch.cuda.device(device):
            compiled = self.kernel.warmup(
                *given, *self.more(given)[1], grid=(1,), **self.options)
            loaded = triton.runtime.driver.active.utils.load_binary(
                compiled.name, compiled.kernel, compiled.metadata.shared,
                torch.cuda.current_device())
        return compiled, loaded[1]

    def first(self, key: tuple, given: tuple) -> Callable:
        """How to launch with such arguments from now on."""
        kinds = tuple(getattr(each, "dtype", each) for each in given)
        dtypes, begun = self.begun.get(key, (None, None))
        try:
            return direct(self, *(
                begun.result() if dtypes == _dtypes(kinds) else
                self.compile(device_in(given), kinds)))
        except Exception as error:
            if self.of is None:
                raise
            log.warn_once("minicompile does not fuse: "
                          f"{failure(self.of, error)}")
            return self.evaluate

    def evaluate(self, stream: int | None, *given: torch.Tensor | int):
        """Evaluate the kernel's loops with PyTorch."""
        names = *self.of.read, *self.of.written
        with torch.device(device_in(given)):
            evaluate_kernel(
                self.of, {name: flat(torch.as_tensor(each))
                          for name, each in zip(names, given)}
                | dict(zip(self.of.symbols, given[len(names):])))


def device_in(given: tuple) -> torch.device:
    """Where the tensors among the arguments are."""
    return next(filter(torch.is_tensor, given)).device


def _dtypes(given: Sequence) -> list[torch.dtype]:
    """The dtypes among these."""
    return [each for each in given if isinstance(each, torch.dtype)]


@cache
def compilers() -> ThreadPoolExecutor:
    """Threads that compile; Triton lets others run in the meantime."""
    import triton
    triton.runtime.driver.active.get_current_device()  # makes itself ready
    return ThreadPoolExecutor(os.cpu_count(), "minicompile-triton")


#: Decorates a @triton.jit function.
ahead = partial(partial, Compiled)


def stream_of(index: int) -> int | None:
    """The current stream of a device; None if another device is current.

    Taken from PyTorch's core, it costs 0.1 us and not 3.
    """
    if torch._C._cuda_getDevice() != index:
        return None
    return torch._C._cuda_getCurrentRawStream(index)


class CudaPrinter(TritonPrinter):
    """Prints kernels that a Compiled launches on the current stream."""

    prelude = TritonPrinter.prelude.replace(
        "emit.launch import launched",
        "emit.cuda.launcher import ahead as launched, stream_of")

    def __init__(self, device: torch.device, numerics: str = "eager"):
        super().__init__(device, numerics)
        self.compiles = torch.cuda.is_available()
        self.begin = f"stream = stream_of({self.device})"


def begin_kernels(text: Text, names: dict) -> Callable[[], None]:
    """Begin to compile a program's kernels; the result waits for them."""
    begun = [
        (kernel, names[name].prepare(kernel, printer.device, *(
            0.0 if each in kernel.numbers else text.buffers[each].dtype
            for each in (*kernel.read, *kernel.written)), *(
            symbol.hint for symbol in kernel.symbols)))
        for name, kernel in text.different.items()
        for printer in [text.printers[device_of(kernel)]]
        if getattr(printer, "compiles", False)]

    def wait() -> None:
        for kernel, future in begun:
            try:
                future.result()
            except Exception as error:
                raise failure(kernel, error) from error
    return wait


TRITON_PRINTERS.append(CudaPrinter)
STARTS.append(begin_kernels)
