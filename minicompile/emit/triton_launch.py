"""How a program launches its Triton kernels: with little in between.

`kernel[grid](...)` binds arguments, looks the compiled kernel up and asks
for stream and device: several microseconds, each call. So after a first
call of that kind we call the compiled kernel's own launcher, with plain
addresses. It was compiled for addresses that are multiples of 16: a call
with another goes Triton's way. Inductor has CachingAutotuner in
torch/_inductor/runtime/triton_heuristics.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..core.errors import BackendError
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
             computes: tuple[str, ...] = (), sizes: int = 0,
             wide: Callable | None = None):
    """Decorates a @triton.jit function: its `run` launches it.

    `computes` says what the kernel is for, should it not compile. If its
    last arguments are `sizes`, these decide how many programs `grid` has,
    and whether positions are `wide`.
    """
    if not sizes:
        return lambda kernel: Launch(kernel, lambda: grid, warps, computes)
    after = -1 if wide else None
    places = slice(-sizes + (after or 0), after)
    return lambda kernel: Sized(lambda: Launch(
        kernel, grid, warps, computes, places), sizes, wide)


class Launch:
    """A kernel and how it is launched; `run(stream, *tensors)` does it.

    Of the arguments those in the slice `sizes` say how large the grid is.
    """

    def __init__(self, kernel, grid: Callable, warps: int,
                 computes: tuple[str, ...], sizes: slice = slice(0, 0)):
        self.kernel, self.grid, self.warps = kernel, grid, warps
        self.computes, self.sizes = computes, sizes
        self.run = self.interpret if INTERPRETED else self.first

    def interpret(self, stream: None, *given: torch.Tensor | int) -> None:
        """Run the kernel in Triton's interpreter."""
        sizes, given = given[self.sizes], list(given)
        given[self.sizes] = map(scalar, sizes)
        self.kernel[(self.grid(*sizes),)](*given)

    def plainly(self, stream: int | None, *given: torch.Tensor | int):
        """Launch as Triton does; the compiled kernel is returned."""
        with torch.cuda.device(given[0].device):
            return self.kernel[(self.grid(*given[self.sizes]),)](
                *given, num_warps=self.warps, enable_fp_fusion=False)

    def first(self, stream: int, *given: torch.Tensor | int) -> None:
        """Compile for these arguments and launch; remember if aligned."""
        try:
            compiled = self.plainly(stream, *given)
        except Exception as error:
            raise self.failure(error) from error
        aligned = all(tensor.data_ptr() % 16 == 0 for tensor in given
                      if isinstance(tensor, torch.Tensor))
        if aligned and stream is not None:
            self.run = _bound(self, compiled, given)

    def failure(self, error: Exception) -> BackendError:
        """The error, with what the kernel computes and where it is."""
        code = self.kernel.fn.__code__
        return BackendError("\n  ".join([
            f"kernel {self.kernel.fn.__name__} does not compile: {error}",
            *(f"it computes {what}" for what in self.computes),
            f"it stands in {code.co_filename}:{code.co_firstlineno}"]))


class Sized:
    """A kernel that serves all sizes: a Launch for each way in which
    Triton compiles it."""

    def __init__(self, make: Callable[[], Launch], count: int,
                 wide: Callable | None):
        self.make, self.count, self.wide = make, count, wide
        self.launches: dict[tuple, Launch] = {}

    def run(self, stream: int | None, *given: torch.Tensor | int) -> None:
        """Launch for these tensors and sizes."""
        sizes = given[-self.count:]
        if self.wide is not None:
            given = *given, self.wide(*sizes)
        key = (*map(_kind, sizes), given[-1] is True)
        if key not in self.launches:
            self.launches[key] = self.make()
        self.launches[key].run(stream, *given)


def _kind(size: int) -> tuple[bool, bool, bool]:
    """What about a size makes Triton compile anew."""
    return size == 1, size % 16 == 0, size >= 1 << 31


def _bound(launch: Launch, compiled, given: tuple) -> Callable:
    """`run` that calls the compiled kernel's launcher directly."""
    names = [f"t{k}" for k in range(len(given))]
    pointers = [f"p{k}" for k, value in enumerate(given)
                if isinstance(value, torch.Tensor)]
    passed = [*pointers, *names[len(pointers):]]
    sizes = names[launch.sizes]
    grid = f"grid({', '.join(sizes)})" if sizes else launch.grid()
    text = "\n    ".join([
        f"def run(stream, {', '.join(names)}):",
        *(f"{p} = {t}.data_ptr()" for p, t in zip(pointers, names)),
        f"if stream is None or ({' | '.join(pointers)}) % 16:",
        f"    plainly(stream, {', '.join(names)})",
        "else:",
        f"    launch({grid}, 1, 1, stream, function, packed,",
        f"           None, None, None, {', '.join(passed)})"])
    namespace = {"launch": compiled.run, "function": compiled.function,
                 "packed": compiled.packed_metadata, "grid": launch.grid,
                 "plainly": launch.plainly}
    exec(text, namespace)
    return namespace["run"]
