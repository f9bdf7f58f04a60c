"""The printer for CPUs: C++ kernels as part of a program."""

from __future__ import annotations

from ..core.loops import Kernel
from .cpp import function


class CppPrinter:
    """All kernels of a program as one C++ text, compiled as one library."""

    def prelude(self) -> str:
        """The import that compiles and loads."""
        return "from minicompile.emit.build import function, load"

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The C++ text, and a Python function for each kernel."""
        text = "\n\n".join(map(function, kernels))
        lines = [f'library = load(r"""\n{text}\n""")']
        for kernel in kernels:
            count = len(kernel.read) + len(kernel.written)
            sizes = f", {len(kernel.symbols)}" * bool(kernel.symbols)
            lines.append(f'{kernel.name} = function(library, '
                         f'"{kernel.name}", {count}{sizes})')
        return "\n".join(lines)

    def prepare(self, kernel: Kernel, *given: object) -> None:
        """Nothing: it is compiled."""

    def begin(self) -> str:
        """Nothing: a call of a C function needs no preparation."""
        return ""

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call, with the addresses of the tensors, and numbers."""
        given = [f"{name}.data_ptr()" for name in tensors]
        return f"{kernel.name}({', '.join([*given, *numbers])})"
