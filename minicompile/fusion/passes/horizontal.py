"""Horizontal fusion: groups that do not need each other join as well.

Groups that read the same elements read them once, if these are many
enough: twelve masks drawn from one seed are not worth drawing together,
because eleven would have to be kept. Groups over the same points, which
read other results of the same step, share its launch.
"""

from __future__ import annotations

from ...core.index import product
from ..group import Body, Groups
from ..schedule import MERGING
from ..values import elements, touched

#: A launch takes at least as long as reading so many elements.
LAUNCH = 2 ** 14

#: How many of the groups that read a buffer are tried for a merge.
NEAREST = 8


def shares(first: Body, second: Body) -> bool:
    """Whether both read the same elements, and enough of them to be
    worth it that the results of both are there earlier than needed."""
    enough = min(elements(body.domain.rows + body.domain.row)
                 for body in (first, second)) / 4 - LAUNCH
    return any(touched(where) >= enough
               for _, where in first.reads.keys() & second.reads)


def resembles(first: Body, second: Body) -> bool:
    """Whether the loops of both run over the same points, and read
    different elements: what both read has been judged already."""
    mine, theirs = ({tuple(product(v.size for v in variables)
                           for variables in (loop.ranges, loop.reduced))
                     for loop in body.loops} for body in (first, second))
    return mine == theirs and not first.reads.keys() & second.reads


def horizontal(groups: Groups) -> None:
    """Merge each group with those that read the same elements, and with
    those that read other results of the same step."""
    for group in list(groups.all):
        if group.body is None or groups.find(group) is not group:
            continue
        for name in dict.fromkeys(name for name, _ in group.body.reads):
            for other in groups.readers[name][-NEAREST:]:
                groups.join(other, group, shares)
        for dep in list(groups.find(group).deps):
            if len(dep.users) <= NEAREST:
                for other in list(dep.users):
                    groups.join(other, group, resembles)


MERGING.append(horizontal)
