"""Groups of loops that run together, which become kernels.

In: loops and operator calls, in an order in which they could run. Out:
Groups, in an order in which these can. Every loop joins the groups that
it reads from, where that is legal: a consumer joins its producers. The
idea: two integers for each group, a bit for each step in it and for each
step before it, say whether something has to run between two groups.

An IterationDomain is rows, and elements within a row. Two domains fit if
they count the same points in the same order: 64 and (4, 16) meet in
(4, 16), and (4, 6) and (8, 3) in (4, 2, 3). Inductor's is
torch/_inductor/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

from ..core.graph import has_effect
from ..core.index import (Index, Variable, coefficient, guess, index,
                          product, substitute)
from ..core.layout import flatten, row_major, unflatten
from ..core.loops import Buffer, Loop
from ..core.schedule import Extern, made_by, reads_of
from .values import Value, axes, points

#: A kernel with more buffers than this is slow to launch and to compile.
MOST_BUFFERS = 48

Sizes = tuple[Index, ...]


def loop_of(buffer: Buffer, value: Value, reduced: tuple[int, ...] = (),
            kind: str | None = None, **notes) -> Loop:
    """The loop that stores every element of `value`, or their reduction
    over some dimensions, in as few variables as possible.

    The buffer has the other dimensions, or all with size 1 for the reduced.
    The variables that step furthest through its memory are the outer ones.
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
    """The coarsest sizes that both are products of; None if none are.

    Each step of a loop, counted in points, must divide the next one's.
    """
    steps = sorted({*row_major(a), *row_major(b)}, key=guess)
    pairs = list(pairwise([*steps, product(a)]))
    if product(a) != product(b) or any(
            large % small != 0 for small, large in pairs):
        return None
    return tuple(large // small for small, large in reversed(pairs))


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
    if both is None:
        return None
    cut = next(k for k in range(len(both) + 1)
               if product(both[k:]) == product(a.row))
    return IterationDomain(both[:cut], both[cut:])


@lru_cache(maxsize=10_000)
def change(old: IterationDomain, new: IterationDomain) -> tuple:
    """The variables of `new` that replace the ranges of a domain that fits
    in it, those that replace the reduced ones, and an index for each old
    variable."""
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


@dataclass(frozen=True)
class Body:
    """Loops with the domain of each, and a domain for all of them.

    `stores` and `reads` say where in terms of the latter each buffer is
    stored and read.
    """

    domain: IterationDomain
    loops: tuple[tuple[Loop, IterationDomain], ...]

    @cached_property
    def stores(self) -> dict[str, Index]:
        """An index for each buffer."""
        return {loop.buffer.name: seen_from(loop.index, own, self.domain)
                for loop, own in self.loops}

    @cached_property
    def reads(self) -> dict[tuple[str, Index], None]:
        """A buffer and an index for each place, in order."""
        return {(load.buffer, seen_from(load.index, own, self.domain)): None
                for loop, own in self.loops for load in loop.loads}

    @property
    def buffers(self) -> set[str]:
        """The buffers that the loops store or read."""
        return {*self.stores, *(name for name, _ in self.reads)}

    def within(self, domain: IterationDomain) -> Body:
        """The same loops with a refined domain."""
        return self if domain == self.domain else Body(domain, self.loops)


def fits(first: Body, second: Body) -> bool:
    """Whether `second` reads what `first` stores only at the same point."""
    return all(first.stores.get(name, where) == where
               for name, where in second.reads)


class Group:
    """Loops that run together, or one operator call; grows by merging.

    `own` has a bit for each of its steps. `before` has one or more for
    each group that must run earlier, and none for any other.
    """

    def __init__(self, step: Loop | Extern, position: int,
                 deps: set[Group]):
        self.steps: dict[int, Loop | Extern] = {position: step}
        self.number = position
        self.body = None
        if isinstance(step, Loop):
            domain = IterationDomain.of(step)
            self.body = Body(domain, ((step, domain),))
        self.own, self.before = 1 << position, 0
        self.deps, self.users = deps, set()
        for dep in deps:
            dep.users.add(self)
            self.before |= dep.before | dep.own

    def __hash__(self) -> int:
        """Sets of groups have the same order in every run."""
        return self.number

    @property
    def last(self) -> int:
        """The position of its last step in the order that lowering had."""
        return max(self.steps)

    def is_apart(self, other: Group) -> bool:
        """Whether something must run after this and before the other."""
        return any(dep.before & self.own
                   for dep in other.deps if dep is not self)

    def absorb(self, other: Group, body: Body) -> None:
        """Become the union with `other`, which is then forgotten."""
        self.steps, self.body = self.steps | other.steps, body
        for near in other.deps:
            near.users = near.users - {other} | {self}
        for near in other.users:
            near.deps = near.deps - {other} | {self}
        self.deps = (self.deps | other.deps) - {self, other}
        self.users = (self.users | other.users) - {self, other}
        self.own |= other.own
        self.before = (self.before | other.before) & ~self.own
        waiting = [self]
        while waiting:
            group = waiting.pop()
            for user in group.users:
                if group.before & ~user.before:
                    user.before |= group.before
                    waiting.append(user)


class Groups:
    """The groups so far, and which of them makes and read each buffer."""

    def __init__(self, steps: Iterable[Loop | Extern]):
        self.makers: dict[str, Group] = {}
        self.readers: dict[str, list[Group]] = {}
        self.merged: dict[Group, Group] = {}
        self.all: list[Group] = []
        effects: set[Group] = set()  # the last that has one
        for position, step in enumerate(steps):
            names = reads_of(step)
            deps = {self.find(self.makers[name]) for name in names
                    if name in self.makers}
            effect = isinstance(step, Extern) and has_effect(step)
            deps |= effects if effect else set()
            group = Group(step, position, deps)
            effects = {group} if effect else effects
            self.all.append(group)
            for buffer in made_by(step):
                self.makers[buffer.name] = group
            for name in names:
                self.readers.setdefault(name, []).append(group)
            for dep in sorted(deps, key=lambda dep: -dep.last):
                self.join(dep, group)

    def find(self, group: Group) -> Group:
        """The group that this group is now part of."""
        while group in self.merged:
            group = self.merged[group]
        return group

    def join(self, a: Group, b: Group, wanted: Callable[
            [Body, Body], bool] = lambda first, second: True) -> None:
        """Make two groups one, if that is legal and wanted."""
        a, b = self.find(a), self.find(b)
        if a is b or None in (a.body, b.body):
            return
        devices = {each.body.loops[0][0].buffer.device for each in (a, b)}
        domain = unite(a.body.domain, b.body.domain)
        if len(devices) > 1 or domain is None or (
                a.is_apart(b) or b.is_apart(a)):
            return
        first, second = a.body.within(domain), b.body.within(domain)
        if (fits(first, second) and fits(second, first)
                and wanted(first, second)
                and len(first.buffers | second.buffers) <= MOST_BUFFERS):
            a.absorb(b, Body(domain, first.loops + second.loops))
            self.merged[b] = a

    def ordered(self, *passes: Callable[..., Iterable[Group]]
                ) -> list[Group]:
        """The groups, as near to the graph's order as they can run.

        A pass is asked after each group which others should run early. It
        is given the group, and for how many groups each one still waits.
        """
        waiting = {group: len(group.deps) for group in self.all
                   if group not in self.merged}
        ready = [(True, group.last, group)
                 for group in waiting if not group.deps]
        heapify(ready)
        found: dict[Group, None] = {}
        while ready:
            *_, group = heappop(ready)
            if group in found:
                continue
            found[group] = None
            for user in group.users:
                waiting[user] -= 1
                if not waiting[user]:
                    heappush(ready, (True, user.last, user))
            for urgent in passes:
                for other in urgent(group, waiting):
                    heappush(ready, (False, other.last, other))
        return list(found)
