"""Nested loops, which need no division.

A processor divides slowly, and two nested loops know the quotient and the
remainder for nothing. The divisions of a variable, such as `x[i0 // 16]`,
tell after how many points its quotients grow: 16. Sorted, each of these
steps must divide the one before it: then they are the steps of nested
loops. A step that does not divide stays a division. Inductor's is
`simplify_and_reorder` of torch/_inductor/ir.py.
"""

from dataclasses import replace
from functools import lru_cache

from ...core.index import Division, Index, Variable, guess, index
from ...core.loops import Kernel, flatten, row_major
from .. import KERNELS
from ..lowerings import axes


@lru_cache(maxsize=100_000)
def growth_of(where: Index, flat: Variable) -> set[Index]:
    """After how many points of a variable its quotients grow in an index,
    and its remainders start again; 1 is one of them."""
    found = {index(1)}
    for atom in (atom for atoms, _ in where.terms for atom in atoms):
        if isinstance(atom, Division):
            inner = growth_of(atom.dividend, flat)
            found |= inner | {step * atom.divisor for step in inner
                              if index(flat) // step == atom.dividend}
    return found


def nested(kernel: Kernel) -> Kernel:
    """The kernel with nested loops in place of the divisions of a variable,
    if each step divides the next."""
    used = {where for loop in kernel.loops for where in loop.indices}
    made: dict[Variable, tuple[Variable, ...]] = {}
    change: dict[Variable, Index] = {}
    for flat in dict.fromkeys(v for each in (kernel, *kernel.loops)
                              for v in each.ranges + each.reduced):
        sizes, inner = [], flat.size
        for step in sorted(set().union(*(growth_of(i, flat) for i in used)),
                           key=guess, reverse=True):
            if inner != step and inner % step == 0:
                sizes.append(inner // step)
                inner = step
        made[flat] = axes(tuple(sizes), flat.name[0])
        if made[flat] != (flat,):
            change[flat] = flatten(map(index, made[flat]),
                                   row_major(tuple(sizes)))

    def over(variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        return tuple(v for flat in variables for v in made[flat])
    return replace(kernel, ranges=over(kernel.ranges),
                   reduced=over(kernel.reduced), loops=tuple(
        loop.over(change, over(loop.ranges), over(loop.reduced))
        for loop in kernel.loops))


KERNELS.append(nested)
