"""Kernels as a report shows them: their text, and what they compute.

In: a kernel of the loop language. Out: a Kernel with the source that its
device's printer gives, the graph nodes it stands for, and the buffers it
reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.loops import Kernel as Nest
from ..core.options import Options
from ..emit import cpp
from ..emit.program import device_of


@dataclass(frozen=True)
class Kernel:
    """One generated kernel."""

    name: str
    source: str
    ops: tuple[str, ...]  # the graph nodes it computes
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def __str__(self) -> str:
        return (f"{self.name}({', '.join(self.reads)}) -> "
                f"{', '.join(self.writes)}")


def described(nest: Nest, options: Options) -> Kernel:
    """A kernel of the loop language, with its printed text."""
    ops = dict.fromkeys(
        name for loop in nest.loops for name in loop.origin.split())
    return Kernel(nest.name, printed(nest, options), tuple(ops), nest.read,
                  tuple(nest.written))


def printed(nest: Nest, options: Options) -> str:
    """The kernel as its device's printer writes it."""
    if device_of(nest).type == "cpu" and options.cpu_backend == "cpp":
        return cpp.function(nest)
    from ..emit.triton import print_kernel
    return print_kernel(nest)
