"""Kernels by name under torch.profiler, and by any other watch.

In: a loaded program. Out: the same; while a profiler runs, each launch of
a CPU kernel is a row of its trace. A GPU names its kernels by itself.
PyTorch's is cpp.enable_kernel_profile in torch/_inductor/config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import unwrap
from types import FunctionType

from torch.autograd import profiler

from ...emit.program import RUNS, Text, device_of


def launched_by(launch: Callable[[str, Callable], object], run: Callable,
                kernels: Iterable[str]) -> Callable:
    """A program whose kernels are launched by `launch(name, call)`."""
    program = unwrap(run)
    names = dict(program.__globals__)

    def watched(name: str, kernel: Callable) -> Callable:
        def call(*given):
            return launch(name, partial(
                getattr(kernel, "run", kernel), *given))
        call.run = call  # as Triton's kernels are launched
        return call

    names |= {name: watched(name, names[name]) for name in kernels}
    return FunctionType(program.__code__, names)


def row(name: str, launch: Callable) -> None:
    """A launch that is a row of a profile."""
    with profiler.record_function(name):
        launch()


def profiled(run: Callable, text: Text) -> Callable:
    """The program; under a profiler its CPU kernels are rows."""
    kernels = [name for name, kernel in text.different.items()
               if device_of(kernel).type == "cpu"]
    seen = launched_by(row, run, kernels)

    @wraps(run)
    def call(inputs: list) -> tuple:
        return (seen if profiler._is_profiler_enabled else run)(inputs)
    return call if kernels else run


RUNS.append(profiled)
