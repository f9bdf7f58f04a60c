"""How a program launches its Triton kernels: with little in between.

A program's kernels are compiled at the same time, while it is loaded. A
compiled one is launched as Triton does it, `kernel[grid](...)`, unless one
of STARTERS knows a shorter way. Inductor's is in
torch/_inductor/runtime/triton_heuristics.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import torch
import triton

from ..core import log
from ..core.evaluate import evaluate_kernel, flat
from ..core.loops import Kernel
from .printer import STARTERS, failure
from .triton_math import INTERPRETED, scalar

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device = getattr(torch._C, "_cuda_getDevice", None)


def stream_of(index: int) -> int | None:
    """The current stream of a device; None if another device is current.

    Taken from PyTorch's core, it costs 0.1 us and not 3.
    """
    if INTERPRETED or _current_device() != index:
        return None
    return _raw_stream(index)


def launched(grid: int | Callable, warps: int,
             sizes: int = 0, wide: Callable | None = None):
    """Decorates a @triton.jit function: its `run` launches it.

    If its last arguments are `sizes`, these decide how many programs
    `grid` has, and whether positions are `wide`.
    """
    if not sizes:
        return lambda kernel: Launch(kernel, lambda: grid, warps)
    after = -1 if wide else None
    places = slice(-sizes + (after or 0), after)
    return lambda kernel: Sized(lambda of=None: Launch(
        kernel, grid, warps, places, of), sizes, wide)


class Launch:
    """A kernel and how it is launched; `run(stream, *tensors)` does it.

    Of the arguments those in the slice `sizes` say how large the grid is.
    If it does not compile, PyTorch evaluates the Kernel `of` instead.
    """

    def __init__(self, kernel, grid: Callable, warps: int,
                 sizes: slice = slice(0, 0), of: Kernel | None = None):
        self.kernel, self.grid, self.warps = kernel, grid, warps
        self.sizes, self.of = sizes, of
        self.begun: tuple[list | None, Future | None] = None, None
        self.run = self.interpret if INTERPRETED else self.first

    def interpret(self, stream: None, *given: torch.Tensor | int) -> None:
        """Run the kernel in Triton's interpreter."""
        self.kernel[(self.grid(*given[self.sizes]),)](*(
            scalar(each) if type(each) is int else each for each in given))

    def plainly(self, stream: int | None, *given: torch.Tensor | int):
        """Launch as Triton does."""
        with torch.cuda.device(given[0].device):
            self.kernel[(self.grid(*given[self.sizes]),)](
                *given, num_warps=self.warps, enable_fp_fusion=False)

    def prepare(self, of: Kernel, device: int,
                *given: torch.dtype | int) -> Future:
        """Begin to compile for such tensors and numbers."""
        self.of = of
        future = compilers().submit(self.compile, device, given)
        self.begun = _dtypes(given), future
        return future

    def compile(self, device: int | torch.device, given: tuple):
        """The kernel, compiled and on the device, and its address there."""
        with torch.cuda.device(device):
            compiled = self.kernel.warmup(
                *given, grid=(1,), num_warps=self.warps,
                enable_fp_fusion=False)
            loaded = triton.runtime.driver.active.utils.load_binary(
                compiled.name, compiled.kernel, compiled.metadata.shared,
                torch.cuda.current_device())
        return compiled, loaded[1]

    def first(self, stream: int | None, *given: torch.Tensor | int):
        """Launch when it is compiled for such tensors; remember how."""
        kinds = tuple(getattr(each, "dtype", each) for each in given)
        dtypes, begun = self.begun
        try:
            made = (begun.result() if dtypes == _dtypes(kinds) else
                    self.compile(given[0].device, kinds))
        except Exception as error:
            if self.of is None:
                raise
            log.warn_once("minicompile does not fuse: "
                          f"{failure(self.of, error)}")
            self.run = self.evaluate
        else:
            self.run = self.plainly
            for start in STARTERS:
                self.run = start(self, *made)
        self.run(stream, *given)

    def evaluate(self, stream: int | None, *given: torch.Tensor | int):
        """Compute with PyTorch what the kernel would."""
        names = *self.of.read, *self.of.written
        with torch.device(given[0].device):
            evaluate_kernel(
                self.of, dict(zip(names, map(flat, given))),
                dict(zip(self.of.symbols, given[len(names):])))


class Sized:
    """A kernel that serves all sizes: a Launch for each way in which
    Triton compiles it."""

    def __init__(self, make: Callable[[Kernel | None], Launch], count: int,
                 wide: Callable | None):
        self.make, self.count, self.wide = make, count, wide
        self.launches: dict[tuple, Launch] = {}
        self.of: Kernel | None = None  # what is to be computed

    def run(self, stream: int | None, *given: torch.Tensor | int) -> None:
        """Launch for these tensors and sizes."""
        launch, *more = self.variant(given)
        launch.run(stream, *given, *more)

    def prepare(self, of: Kernel, device: int,
                *given: torch.dtype | int) -> Future:
        """Begin to compile for such tensors and sizes."""
        self.of = of
        launch, *more = self.variant(given)
        return launch.prepare(of, device, *given, *more)

    def variant(self, given: tuple) -> tuple[Launch | bool, ...]:
        """The Launch for such sizes, and what else it takes."""
        sizes = given[-self.count:]
        more = () if self.wide is None else (self.wide(*sizes),)
        key = (*map(_kind, sizes), *more)
        if key not in self.launches:
            self.launches[key] = self.make(self.of)
        return self.launches[key], *more


def _kind(size: int) -> tuple[bool, bool, bool]:
    """What about a size makes Triton compile anew."""
    return size == 1, size % 16 == 0, size >= 1 << 31


def _dtypes(given: Sequence) -> list[torch.dtype]:
    """The dtypes among these."""
    return [each for each in given if isinstance(each, torch.dtype)]


@cache
def compilers() -> ThreadPoolExecutor:
    """Threads that compile; Triton lets others run in the meantime."""
    triton.runtime.driver.active.get_current_device()  # makes itself ready
    return ThreadPoolExecutor(os.cpu_count(), "minicompile-triton")
