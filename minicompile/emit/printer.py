"""What a printer is: kernels as text, for one kind of device.

Program generation knows buffers, operators and the order of things; how
a kernel is written and launched is a printer's matter. There are two:
C++ and Triton. In Inductor these are the backends that
torch/_inductor/codegen/common.py registers for each device.
"""

from __future__ import annotations

from typing import Protocol

from ..core.errors import BackendError
from ..core.loops import Kernel


class Printer(Protocol):
    """How the kernels of one device become part of a program."""

    def prelude(self) -> str:
        """Lines for the head of the program: imports."""

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """Python that defines each kernel under its own name."""

    def begin(self) -> str:
        """Lines that open `call`, before it takes its inputs."""

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """Lines that run the kernel on these tensors: those it reads,
        then those it writes."""


def sizes_of(kernel: Kernel) -> list[str]:
    """The sizes that the kernel takes behind the tensors."""
    return list(map(str, kernel.symbols))


def failure(kernel: Kernel, message: str) -> BackendError:
    """The error for a kernel that did not compile, and whose it is."""
    lines = [f"kernel {kernel.name} does not compile: {message}"]
    for loop in kernel.loops:
        line = f"  it computes {loop.origin or loop.buffer.name}"
        if loop.where is not None:
            line += f", from {loop.where}: {loop.where.text}"
        lines.append(line)
    return BackendError("\n".join(dict.fromkeys(lines)))
