"""Kernels as a report shows them: their text, and what they compute.

In: a schedule's kernels. Out: one Kernel each, with the source that its
device's printer gives, the graph nodes it stands for, and the buffers it
reads and writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core.loops import Extern, Loop, Schedule
from ..core.loops import Kernel as Nest
from ..core.options import Options
from ..emit.program import Text, device_of
from ..fusion.traffic import call_traffic, kernel_traffic


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


def described(schedule: Schedule, nest: Nest, options: Options) -> Kernel:
    """A kernel of the loop language, with its printed text."""
    source = printed(schedule, nest, options)
    return Kernel(nest.name, source, origins(nest), nest.read,
                  tuple(nest.written))


def origins(nest: Nest) -> tuple[str, ...]:
    """The graph nodes that a kernel computes, each once."""
    return tuple(dict.fromkeys(
        name for loop in nest.loops for name in loop.origin.split()))


def printed(schedule: Schedule, nest: Nest, options: Options) -> str:
    """The kernel as its device's printer writes it."""
    text = Text(schedule, options)
    source = text.printers[device_of(nest)].define(
        (text.merged[nest.name],))
    inner = re.search(r'r"""\n(.*?)\n"""', source, re.DOTALL)
    return inner[1] if inner else source


def unfused_traffic(steps: tuple[Loop | Extern, ...]) -> int:
    """Elements moved if every loop were a kernel of its own."""
    return sum(call_traffic(step) if isinstance(step, Extern) else
               kernel_traffic(Nest("", step.ranges, step.reduced, (step,)))
               for step in steps)
