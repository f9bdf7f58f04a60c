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
from ..core.loops import Buffer, Expression, Loop
from .values import Value, axes, points


def pointwise_loop(buffer: Buffer, value: Value, **notes) -> Loop:
    """The loop that stores every element of `value`."""
    variables = axes(value.shape)
    point = points(variables)
    return nest(buffer, flatten(point, buffer.stride), value.at(point),
                in_memory_order(variables, buffer.stride), **notes)


def reduction_loop(buffer: Buffer, kind: str, value: Value,
                   reduced: tuple[int, ...], **notes) -> Loop:
    """The loop that stores `value` reduced over some dimensions.

    The buffer has the remaining ones, or all with size 1 in their place.
    """
    variables = axes(value.shape)
    point = points(variables)
    kept = tuple(k for k in range(len(point)) if k not in reduced)
    slim = len(buffer.shape) == len(kept)
    stride = buffer.stride if slim else [buffer.stride[k] for k in kept]
    rows = tuple(variables[k] for k in kept)
    return nest(buffer, flatten(points(rows), stride), value.at(point),
                in_memory_order(rows, stride),
                tuple(variables[k] for k in reduced), kind, **notes)


def in_memory_order(variables: tuple[Variable, ...],
                    stride: Iterable[Index]) -> tuple[Variable, ...]:
    """The variables, those that step furthest through memory first."""
    pairs = list(zip(variables, stride, strict=True))
    return tuple(v for v, _ in sorted(pairs, key=lambda p: -guess(p[1])))


def nest(buffer: Buffer, place: Index, value: Expression,
         ranges: tuple[Variable, ...], reduced: tuple[Variable, ...] = (),
         kind: str | None = None, **notes) -> Loop:
    """A Loop with merged, renamed variables."""
    loop = Loop(buffer, place, ranges, value, reduced, kind, **notes)
    rows, change = merge(ranges, loop.indices, "i")
    row, inner = merge(reduced, loop.indices, "r")
    return loop.over(change | inner, rows, row)


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
