"""Equal kernels, printed and compiled once.

The layers of a model are alike, and so are their kernels. Two kernels are
equal if they are the same graph of operations over buffers, whatever the
buffers are called. Inductor compares texts instead: torch/_inductor/
codegen/wrapper.py:PythonWrapperCodegen.define_kernel.
"""

from __future__ import annotations

from ...core.index import Index, index
from ...core.loops import Expression, Kernel, described, parts, walk
from ..program import MERGES


def merge(kernels: tuple[Kernel, ...]) -> dict[str, Kernel]:
    """For each kernel's name the first kernel that does the same."""
    first: dict[object, Kernel] = {}
    return {kernel.name: first.setdefault(form(kernel), kernel)
            for kernel in kernels}


def form(kernel: Kernel) -> object:
    """All that decides what a kernel does, its arguments numbered."""
    names = [*kernel.read, *kernel.written, *sorted(kernel.internal)]
    names += [index(s) for s in kernel.symbols if s.is_number]
    numbers = {name: place for place, name in enumerate(names)}
    return (kernel.ranges, kernel.reduced, len(kernel.internal), *(
        (numbers[loop.buffer.name], numbers.get(loop.buffer.into),
         loop.buffer.dtype, loop.buffer.device, loop.index,
         loop.ranges, loop.reduced, loop.reduction,
         _nodes(loop.value, numbers)) for loop in kernel.loops))


def _nodes(value: Expression, numbers: dict[str | Index, int]) -> tuple:
    """The expression as a list of nodes that name others by number."""
    made: dict[int, int] = {}
    nodes = []
    for node in walk(value):
        made[id(node)] = len(nodes)
        operands = tuple(made[id(part)] for part in parts(node))
        what = (numbers.get(part, part) for part in described(node))
        nodes.append((*what, operands))
    return tuple(nodes)


MERGES.append(merge)
