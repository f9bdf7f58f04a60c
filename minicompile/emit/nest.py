"""A kernel's loop nest, made simple before it is printed.

In: a Kernel. Out: an equal Kernel whose indices hold as few divisions as
its loops can spare: a variable that is divided is split in two. `fastest`
says which variable to run innermost, where the vectors are. Inductor has
this in torch/_inductor/sizevars.py and torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import gcd

from ..core.index import (Division, Index, Variable, coefficient, guess,
                          index)
from ..core.loops import Kernel

#: What a variable becomes: other variables, and its value from them.
Pieces = dict[Variable, tuple[tuple[Variable, ...], Index]]


def simplify(kernel: Kernel) -> Kernel:
    """The same kernel with fewer divisions, and no loops of one step.

    Reduced variables keep their order: argmax counts positions in it.
    """
    ones = {v: ((), index(0)) for v in variables(kernel) if v.size == 1}
    return _split(_replace(kernel, ones))


def variables(kernel: Kernel) -> tuple[Variable, ...]:
    """The loop variables, those of a row before those of an element."""
    return kernel.ranges + kernel.reduced


def indices(kernel: Kernel) -> list[Index]:
    """Every different index of the kernel."""
    return list(dict.fromkeys(
        where for loop in kernel.loops for where in loop.indices))


def _replace(kernel: Kernel, pieces: Pieces) -> Kernel:
    """The kernel with some of its variables replaced."""
    if not pieces:
        return kernel
    values = {variable: value for variable, (_, value) in pieces.items()}

    def over(old: tuple[Variable, ...]) -> tuple[Variable, ...]:
        return tuple(new for v in old
                     for new in pieces.get(v, ((v,), None))[0])

    return replace(kernel, ranges=over(kernel.ranges),
                   reduced=over(kernel.reduced),
                   loops=tuple(loop.over(values, over(loop.ranges),
                                         over(loop.reduced))
                               for loop in kernel.loops))


def _split(kernel: Kernel) -> Kernel:
    """The kernel with variables split while that saves divisions."""
    for variable, inner in _cuts(kernel):
        high = Variable(f"{variable}h", variable.size // inner)
        low = Variable(f"{variable}l", index(inner))
        value = index(high) * inner + index(low)
        new = _replace(kernel, {variable: ((high, low), value)})
        if len(_divisions(new)) < len(_divisions(kernel)):
            return _split(new)
    return kernel


def _cuts(kernel: Kernel) -> Iterator[tuple[Variable, int]]:
    """Where a variable could be cut, so that a division comes out."""
    for atom in _divisions(kernel):
        divisor = atom.divisor.constant
        for variable in variables(kernel):
            step = coefficient(atom.dividend, variable)
            size = variable.size.constant
            if None in (divisor, step, size) or not step.constant:
                continue
            inner = divisor // gcd(divisor, step.constant)
            if 1 < inner < size and size % inner == 0:
                yield variable, inner


def _divisions(kernel: Kernel) -> list[Division]:
    """Every different division in the kernel's indices."""
    found: dict[Division, None] = {}
    waiting = indices(kernel)
    while waiting:
        for atoms, _ in waiting.pop().terms:
            for atom in atoms:
                if isinstance(atom, Division):
                    found[atom] = None
                    waiting += [atom.dividend, atom.divisor]
    return list(found)


def fastest(kernel: Kernel) -> Variable | None:
    """The variable whose neighbours lie side by side in memory."""
    return min(variables(kernel)[::-1], default=None,
               key=lambda variable: _cost(kernel, variable))


def _cost(kernel: Kernel, variable: Variable) -> float:
    """Cache lines touched a point, about, if this one runs innermost."""
    steps = [coefficient(where, variable) for where in accesses(kernel)]
    cost = sum(_STEP_COST.get(step.constant, 1.0) if step is not None
               else 1.0 for step in steps)
    return (cost + 0.01) * max(
        1.0, 16 / (guess(variable.size) or 64))


#: What an access costs if neighbours read the same element, or the next.
_STEP_COST = {0: 0.02, 1: 0.1, -1: 0.1}


def turned(kernel: Kernel, first: Variable,
           fits: Callable[[Variable], bool]) -> Variable | None:
    """A variable that fits, and is side by side where `first` is not."""
    strided = [where for where in accesses(kernel)
               if coefficient(where, first) not in (0, 1)]
    return next((v for v in kernel.ranges if v is not first and fits(v)
                 and any(coefficient(where, v) == 1 for where in strided)),
                None)


def accesses(kernel: Kernel) -> list[Index]:
    """The index of every load and store of memory."""
    found = [(loop.buffer.name, loop.index) for loop in kernel.loops]
    found += [(load.buffer, load.index) for loop in kernel.loops
              for load in loop.loads]
    return [where for name, where in dict.fromkeys(found)
            if name not in kernel.internal]
