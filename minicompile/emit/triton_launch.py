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
from .triton_math import INTERPRETED

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device = getattr(torch._C, "_cuda_getDevice", None)


def stream_of(index: int) -> int | None:
    """The current stream of a device; None if another device is current.

    Taken from PyTorch's core, it costs 0.1 us and not 3.
    """
    if INTERPRETED or _current_device() != index:
        return None
    return _raw_stream(index)


def launched(grid: int, warps: int, computes: tuple[str, ...] = ()):
    """Decorates a @triton.jit function: its `run` launches it.

    `computes` says what the kernel is for, should it not compile.
    """
    return lambda kernel: Launch(kernel, grid, warps, computes)


class Launch:
    """A kernel and how it is launched; `run(stream, *tensors)` does it."""

    def __init__(self, kernel, grid: int, warps: int,
                 computes: tuple[str, ...]):
        self.kernel, self.grid, self.warps = kernel, grid, warps
        self.computes = computes
        self.run = self.interpret if INTERPRETED else self.first

    def interpret(self, stream: None, *tensors: torch.Tensor) -> None:
        """Run the kernel in Triton's interpreter."""
        self.kernel[(self.grid,)](*tensors)

    def plainly(self, stream: int | None, *tensors: torch.Tensor):
        """Launch as Triton does; the compiled kernel is returned."""
        with torch.cuda.device(tensors[0].device):
            return self.kernel[(self.grid,)](
                *tensors, num_warps=self.warps, enable_fp_fusion=False)

    def first(self, stream: int, *tensors: torch.Tensor) -> None:
        """Compile for these tensors and launch; remember if aligned."""
        try:
            compiled = self.plainly(stream, *tensors)
        except Exception as error:
            raise self.failure(error) from error
        aligned = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
        if aligned and stream is not None:
            self.run = _bound(self, compiled, len(tensors))

    def failure(self, error: Exception) -> BackendError:
        """The error, with what the kernel computes and where it is."""
        code = self.kernel.fn.__code__
        return BackendError("\n  ".join([
            f"kernel {self.kernel.fn.__name__} does not compile: {error}",
            *(f"it computes {what}" for what in self.computes),
            f"it stands in {code.co_filename}:{code.co_firstlineno}"]))


def _bound(launch: Launch, compiled, count: int) -> Callable:
    """`run` that calls the compiled kernel's launcher directly."""
    tensors = ", ".join(f"t{k}" for k in range(count))
    pointers = [f"p{k}" for k in range(count)]
    text = "\n    ".join([
        f"def run(stream, {tensors}):",
        *(f"p{k} = t{k}.data_ptr()" for k in range(count)),
        f"if stream is None or ({' | '.join(pointers)}) % 16:",
        f"    plainly(stream, {tensors})",
        "else:",
        f"    launch({launch.grid}, 1, 1, stream, function, packed,",
        f"           None, None, None, {', '.join(pointers)})"])
    namespace = {"launch": compiled.run, "function": compiled.function,
                 "packed": compiled.packed_metadata,
                 "plainly": launch.plainly}
    exec(text, namespace)
    return namespace["run"]
