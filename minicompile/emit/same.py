"""Which kernels are equal but for the names of their buffers."""

from __future__ import annotations

from ..core.index import Index, index
from ..core.loops import (
    Const,
    Expression,
    Kernel,
    Load,
    Op,
    Position,
    parts,
    walk,
)


def merge(kernels: tuple[Kernel, ...]) -> dict[str, Kernel]:
    """For each kernel's name the first kernel that does the same.

    A model's layers are alike: one kernel, printed and compiled once,
    serves them all with other arguments.
    """
    first: dict[object, Kernel] = {}
    return {kernel.name: first.setdefault(form(kernel), kernel)
            for kernel in kernels}


def form(kernel: Kernel) -> object:
    """All that decides what a kernel does, its arguments numbered."""
    names = [*kernel.read, *kernel.written, *sorted(kernel.internal)]
    names += [index(s) for s in kernel.symbols if s.formula and not s.of]
    numbers = {name: place for place, name in enumerate(names)}
    return (kernel.ranges, kernel.reduced, len(kernel.internal), *(
        (numbers[loop.buffer.name], loop.buffer.dtype, loop.buffer.device,
         loop.index, loop.ranges, loop.reduced, loop.reduction,
         _nodes(loop.value, numbers)) for loop in kernel.loops))


def _nodes(value: Expression, numbers: dict[str | Index, int]) -> tuple:
    """The expression as a list of nodes that name others by number."""
    made: dict[int, int] = {}
    nodes = []
    for node in walk(value):
        made[id(node)] = len(nodes)
        operands = tuple(made[id(part)] for part in parts(node))
        nodes.append((_described(node, numbers), operands))
    return tuple(nodes)


def _described(node: Expression, numbers: dict[str | Index, int]) -> object:
    """What a node is, but for its operands."""
    match node:
        case Load(buffer, index, dtype, mask, other):
            return (numbers[buffer], index, dtype, mask is None,
                    repr(other))
        case Op(name, _, dtype):
            return name, dtype
        case Const(value, dtype):
            return repr(value), dtype
        case Position(at, dtype):
            return numbers.get(at, at), dtype
