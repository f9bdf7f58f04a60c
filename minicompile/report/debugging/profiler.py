"""Kernels by name under torch.profiler, and by any other watch.

In: a loaded program. Out: the same; while a profiler runs, each launch of
a CPU kernel is a row of its trace. A GPU names its kernels by itself.
PyTorch's is cpp.enable_kernel_profile in torch/_inductor/config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import unwrap

from torch.autograd import profiler

from ...emit.program import RUNS, Text, device_of


class Watched:
    """A kernel of a program, whose launches `launch(name, call)` makes."""

    def __init__(self, name: str, kernel: Callable, launch: Callable):
        self.watched, self.name, self.launch = kernel, name, launch

    def __call__(self, *given):
        return self.launch(self.name, partial(self.watched, *given))

    def run(self, *given):
        return self.launch(self.name, partial(self.watched.run, *given))


@contextmanager
def launched_by(run: Callable, kernels: Collection[str],
                launch: Callable[[str, Callable], object]
                ) -> Iterator[None]:
    """Let `launch(name, call)` make the launches of a program's kernels.
    """
    names = unwrap(run).__globals__
    plain = {name: getattr(names[name], "watched", names[name])
             for name in kernels}
    names.update({name: Watched(name, kernel, launch)
                  for name, kernel in plain.items()})
    try:
        yield
    finally:
        names.update(plain)


def profiled(run: Callable, text: Text) -> Callable:
    """The program; under a profiler its CPU kernels are rows."""
    kernels = [name for name, kernel in text.different.items()
               if device_of(kernel).type == "cpu"]

    def record(name: str, launch: Callable) -> None:
        with profiler.record_function(name):
            launch()

    @wraps(run)
    def call(inputs: list) -> tuple:
        if not profiler._is_profiler_enabled:
            return run(inputs)
        with launched_by(run, kernels, record):
            return run(inputs)
    return call if kernels else run


RUNS.append(profiled)
