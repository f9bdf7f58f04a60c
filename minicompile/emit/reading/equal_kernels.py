"""Equal kernels, printed and compiled once.

The layers of a model are alike, and so are their kernels. Two kernels are
equal if they are the same graph of operations over buffers, whatever the
buffers are called. Inductor compares texts instead: torch/_inductor/
codegen/wrapper.py:PythonWrapperCodegen.define_kernel.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.index import Symbol, index
from ...core.loops import Expression, Kernel, Load, Position, rewrite
from ..program import PLANS, Launches


def merged(launches: Launches) -> Launches:
    """The launches; of equal kernels, each is the first one."""
    first: dict[object, Kernel] = {}
    return [(first.setdefault(form(step), step) if isinstance(step, Kernel)
             else step, done) for step, done in launches]


def form(kernel: Kernel) -> object:
    """All that decides what a kernel does, its arguments numbered."""
    names = [*kernel.read, *kernel.written, *sorted(kernel.internal)]
    numbers = {name: str(place) for place, name in enumerate(names)}
    draws = {index(symbol): index(Symbol(str(place))) for place, symbol
             in enumerate(kernel.symbols) if symbol.is_number}

    def numbered(node: Expression) -> Expression:
        match node:
            case Load():
                return replace(node, buffer=numbers[node.buffer])
            case Position(where, _):
                return replace(node, index=draws.get(where, where))
        return node
    return (kernel.ranges, kernel.reduced, len(kernel.internal), *(
        (numbers[loop.buffer.name], numbers.get(loop.buffer.into),
         loop.buffer.dtype, loop.buffer.device, loop.index,
         loop.ranges, loop.reduced, loop.reduction,
         rewrite(loop.value, numbered)) for loop in kernel.loops))


PLANS.append(lambda text: merged(PLANS[0](text)))
