"""Nested loops, which need no division.

A processor divides slowly, and two nested loops know the quotient and the
remainder for nothing. The divisions of a variable, such as `x[i0 // 16]`,
tell after how many points its quotients grow: 16. Sorted, each of these
steps must divide the one before it: then they are the steps of nested
loops. A step that does not divide stays a division. Inductor's is
`simplify_and_reorder` of torch/_inductor/ir.py.
"""

from __future__ import annotations

from functools import lru_cache

from ...core.index import (Division, Index, Variable, guess, index,
                           substitute)
from ...core.loops import Kernel, Loop, flatten, row_major
from ..group import KERNELS, IterationDomain, seen_from
from ..lowerings import axes


@lru_cache(maxsize=100_000)
def steps_of(where: Index, flat: Variable) -> set[Index]:
    """After how many points of a variable its quotients grow in an index,
    and its remainders start again; 1 is one of them."""
    found = {index(1)}
    for atom in (atom for atoms, _ in where.terms for atom in atoms):
        if isinstance(atom, Division):
            inner = steps_of(atom.dividend, flat)
            found |= inner | {step * atom.divisor for step in inner
                              if index(flat) // step == atom.dividend}
    return found


def nested(loops: list[Loop], domain: IterationDomain) -> Kernel:
    """A nameless kernel of loops that fit the domain. Nested loops take the
    place of the divisions of a variable, if each step divides the next.
    """
    used = {seen_from(i, domain) for loop in loops for i in loop.indices}
    made: dict[Variable, tuple[Variable, ...]] = {}
    change = dict(domain.whole)
    for flat in domain.variables:
        sizes, inner = [], flat.size
        for step in sorted(set().union(*(steps_of(i, flat) for i in used)),
                           key=guess, reverse=True):
            if inner != step and inner % step == 0:
                sizes.append(inner // step)
                inner = step
        made[flat] = axes(tuple(sizes), flat.name[0])
        if made[flat] != (flat,):
            change[flat] = flatten(map(index, made[flat]),
                                   row_major(tuple(sizes)))
    rows, row = made.values()
    for flat, place in domain.whole.items():
        made[flat], change[flat] = rows + row, substitute(place, change)
    return Kernel("", rows, row, tuple(
        loop if change.keys().isdisjoint(loop.ranges + loop.reduced) else
        loop.over(change, *(
            tuple(v for flat in old for v in made.get(flat, (flat,)))
            for old in (loop.ranges, loop.reduced)))
        for loop in loops))


KERNELS.append(nested)
