"""Iteration spaces: how two loops can run as one.

A Space is rows, and elements within a row. Two spaces fit if they count
the same points in the same order; then both can be rewritten over their
common refinement: 64 and (4, 16) over (4, 16), (4, 6) and (8, 3) over
(4, 2, 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..core.index import Index, Variable, index, product, substitute
from ..core.layout import flatten, row_major, unflatten
from ..core.loops import Loop
from .values import axes

Sizes = tuple[Index, ...]


@dataclass(frozen=True)
class Space:
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

    @property
    def all(self) -> Sizes:
        """The sizes of all loops, outermost first."""
        return self.rows + self.row


def space_of(loop: Loop) -> Space:
    """The space that a loop needs by itself."""
    return Space(sizes_of(loop.ranges), sizes_of(loop.reduced))


def sizes_of(variables: tuple[Variable, ...]) -> Sizes:
    """How often each loop runs."""
    return tuple(v.size for v in variables)


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
def unite(a: Space, b: Space) -> Space | None:
    """A space in which loops over either can run; None if there is none.

    Loops over rows alone can join a space whose rows have elements.
    """
    if b.row and not a.row:
        a, b = b, a
    if product(a.rows) == product(b.rows):
        rows, row = refine(a.rows, b.rows), refine(a.row, b.row or a.row)
        return None if None in (rows, row) else Space(rows, row)
    if b.row:
        return None
    both = refine(a.all, b.rows)
    if both is None:
        return None
    cut = len(both)
    while product(both[cut:]) != product(a.row):
        cut -= 1
    return Space(both[:cut], both[cut:])


def runs_over(old: Space, new: Space) -> tuple[tuple, tuple]:
    """The variables of a space over which loops of one that fits in it
    run: rows, and what they reduce."""
    if old.row or product(old.rows) == product(new.rows):
        return new.ranges, new.reduced if old.row else ()
    return new.ranges + new.reduced, ()


@lru_cache(maxsize=10_000)
def change(old: Space, new: Space) -> dict[Variable, Index]:
    """What the variables of a space become in a space that it fits in."""
    found: dict[Variable, Index] = {}
    for mine, theirs in zip((old.ranges, old.reduced), runs_over(old, new)):
        place = flatten(map(index, theirs), row_major(sizes_of(theirs)))
        found |= zip(mine, unflatten(place, sizes_of(mine)), strict=True)
    return found


@lru_cache(maxsize=100_000)
def seen_from(where: Index, old: Space, new: Space) -> Index:
    """An index of one space in terms of another's variables."""
    return substitute(where, change(old, new))


def over(loop: Loop, space: Space) -> Loop:
    """The loop rewritten over a space that its own fits in."""
    own = space_of(loop)
    if own == space:
        return loop
    return loop.over(change(own, space), *runs_over(own, space))
