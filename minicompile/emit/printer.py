"""What a printer is: kernels as text, for one kind of device.

Program generation knows buffers, operators and the order of things; how
a kernel is written and launched is a printer's matter. There are two:
C++ and Triton. In Inductor these are the backends that
torch/_inductor/codegen/common.py registers for each device.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from ..core.loops import Buffer, Kernel


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
