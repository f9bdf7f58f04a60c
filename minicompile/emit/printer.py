"""What a printer is: kernels as text, for one kind of device.

Program generation knows buffers, operators and the order of things; how
a kernel is written and launched is a printer's matter. There are two:
C++ and Triton. In Inductor these are the backends that
torch/_inductor/codegen/common.py registers for each device.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from ..core.errors import CompileError
from ..core.loops import Buffer, Kernel

#: Ways to start a compiled Triton kernel quicker than Triton does: a launch
#: and what it has compiled become the function that runs it.
STARTERS: list[Callable] = []


class Printer(Protocol):
    """How the kernels of one device become part of a program."""

    def prelude(self) -> str:
        """Lines for the head of the program: imports."""

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """Python that defines each kernel under its own name."""

    def prepare(self, kernel: Kernel, defined: object,
                buffers: dict[str, Buffer]) -> Future | None:
        """Begin to compile it; the Future to wait for, if there is one."""

    def begin(self) -> str:
        """Lines that open `call`, before it takes its inputs."""

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """Lines that run the kernel on these tensors: those it reads,
        then those it writes."""


def computes(kernel: Kernel) -> list[str]:
    """What a kernel computes, and which of the user's lines asked."""
    return list(dict.fromkeys(
        (loop.origin or loop.buffer.name)
        + (f", from {loop.where}: {loop.where.text}" if loop.where else "")
        for loop in kernel.loops))


def failure(kernel: Kernel, error: Exception) -> CompileError:
    """The error for a kernel that did not compile, and whose it is."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    why = " … ".join(dict.fromkeys([said[0], said[-1]]))
    return CompileError("\n  it computes ".join([
        f"kernel {kernel.name} does not compile: {why}",
        *computes(kernel)[:3]]))
