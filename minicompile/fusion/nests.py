"""Loop nests: a value, a buffer to fill, and as few loops as will do.

In: values. Out: Loops with variables i0, i1, … (and r0, r1, … reduced),
neighbouring dimensions merged into one wherever every index treats them
as one, so that work on a contiguous tensor is a single loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.index import (Index, Variable, coefficient, guess, index,
                          substitute)
from ..core.layout import flatten
from ..core.loops import Buffer, Loop
from .values import Value, axes, points


def loop_of(buffer: Buffer, value: Value, reduced: tuple[int, ...] = (),
            kind: str | None = None, **notes) -> Loop:
    """The loop that stores every element of `value`, or what they are
    reduced to over some dimensions, as few variables as will do.

    The buffer has the remaining ones, or all with size 1 in their place.
    Those that step furthest through its memory are the outer ones.
    """
    variables = axes(value.shape)
    kept = [k for k in range(len(variables)) if k not in reduced]
    slim = len(buffer.shape) == len(kept)
    stride = buffer.stride if slim else [buffer.stride[k] for k in kept]
    rows = tuple(variables[k] for k in kept)
    steps = dict(zip(rows, map(guess, stride), strict=True))
    loop = Loop(buffer, flatten(points(rows), stride),
                tuple(sorted(rows, key=lambda v: -steps[v])), value.element,
                tuple(variables[k] for k in reduced), kind, **notes)
    ranges, change = merge(loop.ranges, loop.indices, "i")
    row, inner = merge(loop.reduced, loop.indices, "r")
    return loop.over(change | inner, ranges, row)


def merge(variables: tuple[Variable, ...], used: Iterable[Index],
          letter: str) -> tuple[tuple[Variable, ...], dict]:
    """Fewer variables, and what each old one becomes.

    Two neighbours become one if no index tells a step of the first from
    `size` steps of the second.
    """
    merged: list[Variable] = []
    change: dict[Variable, Index] = {}
    last: list[Variable] = []
    used = set(used)
    for variable in variables:
        if variable.size == 1:
            change[variable] = index(0)
            continue
        if merged and all(joins(i, merged[-1], variable) for i in used):
            first = merged.pop()
            change[last.pop()] = index(0)
            joined = Variable(variable.name, first.size * variable.size)
            step = {first: index(0), variable: index(joined)}
            used = {substitute(i, step) for i in used}
        else:
            joined = variable
        merged.append(joined)
        last.append(variable)
    new = tuple(Variable(f"{letter}{place}", v.size)
                for place, v in enumerate(merged))
    change |= {old: index(v) for old, v in zip(last, new, strict=True)}
    return new, change


def joins(where: Index, outer: Variable, inner: Variable) -> bool:
    """Whether `where` depends on outer * inner.size + inner only."""
    steps = coefficient(where, outer), coefficient(where, inner)
    if None not in steps:
        return steps[0] == steps[1] * inner.size
    both = {outer: index(0), inner: index(outer) * inner.size + inner}
    return substitute(where, both) == where
