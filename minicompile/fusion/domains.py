"""Iteration domains: as few loops as will do, and how two run as one.

In: values and buffers. Out: Loops over variables i0, i1, … (and r0, r1, …
reduced), in which neighbouring dimensions are one wherever every index
treats them as one. An IterationDomain is rows, and elements within a row.
Two domains fit if they count the same points in the same order: 64 and
(4, 16) meet in (4, 16), and (4, 6) and (8, 3) in (4, 2, 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..core.index import (Index, Variable, coefficient, guess, index,
                          product, substitute)
from ..core.layout import flatten, row_major, unflatten
from ..core.loops import Buffer, Loop
from .values import Value, axes, points

Sizes = tuple[Index, ...]


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
    ranges, change = coalesced(loop.ranges, loop.indices, "i")
    row, inner = coalesced(loop.reduced, loop.indices, "r")
    return loop.over(change | inner, ranges, row)


def coalesced(variables: tuple[Variable, ...], used: Iterable[Index],
              letter: str) -> tuple[tuple[Variable, ...], dict]:
    """Fewer variables, and what each old one becomes.

    Two neighbours become one if no index tells a step of the first from
    `size` steps of the second.
    """
    found: list[Variable] = []
    last: list[Variable] = []
    used = set(used)
    for variable in variables:
        if variable.size == 1:
            continue
        joined = variable
        if found and all(joins(i, found[-1], variable) for i in used):
            outer, _ = found.pop(), last.pop()
            joined = Variable(variable.name, outer.size * variable.size)
            step = {outer: index(0), variable: index(joined)}
            used = {substitute(i, step) for i in used}
        found.append(joined)
        last.append(variable)
    new = axes(tuple(v.size for v in found), letter)
    return new, dict.fromkeys(variables, index(0)) | dict(
        zip(last, map(index, new), strict=True))


def joins(where: Index, outer: Variable, inner: Variable) -> bool:
    """Whether `where` depends on outer * inner.size + inner only."""
    steps = coefficient(where, outer), coefficient(where, inner)
    if None not in steps:
        return steps[0] == steps[1] * inner.size
    both = {outer: index(0), inner: index(outer) * inner.size + inner}
    return substitute(where, both) == where


@dataclass(frozen=True)
class IterationDomain:
    """The sizes of the rows' loops, and of the loops within a row."""

    rows: Sizes
    row: Sizes = ()

    @cached_property
    def ranges(self) -> tuple[Variable, ...]:
        """The variables that count rows."""
        return axes(self.rows, "i")

    @cached_property
    def reduced(self) -> tuple[Variable, ...]:
        """The variables that count within a row."""
        return axes(self.row, "r")

    @classmethod
    def of(cls, loop: Loop) -> IterationDomain:
        """The domain that a loop needs by itself."""
        return cls(tuple(v.size for v in loop.ranges),
                   tuple(v.size for v in loop.reduced))


def refine(a: Sizes, b: Sizes) -> Sizes | None:
    """The coarsest sizes that both are products of; None if none are."""
    found: list[Index] = []
    left, right = list(a), list(b)
    while left and right:
        m, n = left.pop(), right.pop()
        if m == n:
            found.append(m)
        elif (m // n) * n == m:
            found.append(n)
            left.append(m // n)
        elif (n // m) * m == n:
            found.append(m)
            right.append(n // m)
        else:
            return None
    return None if left or right else tuple(reversed(found))


@lru_cache(maxsize=10_000)
def unite(a: IterationDomain, b: IterationDomain
          ) -> IterationDomain | None:
    """A domain in which loops over either can run; None if there is none.

    Loops over rows alone can join a domain whose rows have elements.
    """
    if b.row and not a.row:
        a, b = b, a
    if product(a.rows) == product(b.rows):
        rows, row = refine(a.rows, b.rows), refine(a.row, b.row or a.row)
        return None if None in (rows, row) else IterationDomain(rows, row)
    both = None if b.row else refine(a.rows + a.row, b.rows)
    for cut in range(len(both or ()) + 1):
        if both and product(both[cut:]) == product(a.row):
            return IterationDomain(both[:cut], both[cut:])
    return None


@lru_cache(maxsize=10_000)
def change(old: IterationDomain, new: IterationDomain) -> tuple:
    """Which variables of `new` take the place of the ranges of a domain
    that fits in it, which that of the reduced ones, and what the old
    variables become."""
    rows, row = new.ranges, new.reduced if old.row else ()
    if not old.row and product(old.rows) != product(new.rows):
        rows += new.reduced
    found: dict[Variable, Index] = {}
    for mine, theirs in ((old.ranges, rows), (old.reduced, row)):
        sizes = [tuple(v.size for v in each) for each in (mine, theirs)]
        place = flatten(map(index, theirs), row_major(sizes[1]))
        found |= zip(mine, unflatten(place, sizes[0]), strict=True)
    return rows, row, found


@lru_cache(maxsize=100_000)
def seen_from(where: Index, old: IterationDomain,
              new: IterationDomain) -> Index:
    """An index of one domain in terms of another's variables."""
    return substitute(where, change(old, new)[2])


def over(loop: Loop, domain: IterationDomain) -> Loop:
    """The loop rewritten over a domain that its own fits in."""
    own = IterationDomain.of(loop)
    if own == domain:
        return loop
    ranges, reduced, found = change(own, domain)
    return loop.over(found, ranges, reduced)
