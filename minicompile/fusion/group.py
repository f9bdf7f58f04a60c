"""Groups of loops that run together, which become kernels.

In: loops and operator calls, in an order in which they could run. Out:
Groups, in an order in which these can. Every loop joins the groups that
it reads from, where that is legal: a consumer joins its producers. The
idea: two integers for each group, a bit for each step in it and for each
step before it, say whether something has to run between two groups.

A loop has one variable for its rows and one for a row's elements, however
many dimensions its tensors have: an index takes the coordinates out of
them by division. So two loops fit if their numbers of rows and elements
do. Inductor's is torch/_inductor/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from ..core.graph import has_effect
from ..core.index import Index, Variable, guess, index, product
from ..core.loops import (Buffer, Kernel, Loop, flatten, picked,
                          row_major, unflatten, walk)
from ..core.schedule import Extern, made_by, reads_of
from .lowerings import Value, axes, points

#: Where the elements of rows may lie, other than one after the other, for
#: loops that join two bodies: the last of these.
PLACES: list[Callable[[Body, Body], Iterable[Index]]] = [lambda a, b: ()]

#: A kernel with more buffers than this is slow to launch and to compile.
MOST_BUFFERS = 48


@dataclass(frozen=True)
class IterationDomain:
    """How many rows there are, and how many elements in each."""

    rows: Index
    row: Index = index(1)

    @cached_property
    def variables(self) -> tuple[Variable, Variable]:
        """The variable that counts rows, and the one for their elements."""
        return *axes((self.rows,), "i"), *axes((self.row,), "r")

    @classmethod
    def of(cls, loop: Loop | Kernel) -> IterationDomain:
        """The domain that a loop or a kernel needs by itself."""
        return cls(*(product(v.size for v in variables)
                     for variables in (loop.ranges, loop.reduced)))


def loop_of(buffer: Buffer, value: Value, reduced: tuple[int, ...] = (),
            kind: str | None = None, **notes) -> Loop:
    """The loop that stores every element of `value`, or their reduction
    over some dimensions. It counts rows with one variable, in the order in
    which the result lies in memory, and a row's elements with another.

    The buffer has the other dimensions, or all with size 1 for the reduced.
    """
    variables = axes(value.shape)
    kept = [k for k in range(len(variables)) if k not in reduced]
    slim = len(buffer.shape) == len(kept)
    stride = buffer.stride if slim else [buffer.stride[k] for k in kept]
    rows = tuple(variables[k] for k in kept)
    steps = dict(zip(rows, map(guess, stride), strict=True))
    columns = reduced and kept and kept[-1] > reduced[-1]
    return counted(Loop(
        buffer, flatten(points(rows), stride),
        tuple(sorted(rows, key=lambda v: -steps[v])), value.element,
        tuple(variables[k] for k in reduced), kind, turned=flatten(
            points(variables), row_major(value.shape)) if columns else None,
        **notes))


def counted(loop: Loop) -> Loop:
    """The loop with one variable for its rows, one for their elements. A
    row of one element is not reduced: the result is the element."""
    domain = IterationDomain.of(loop)
    flat, reduces = domain.variables, domain.row != 1
    change = dict(chain(*(
        zip(old, unflatten(place, tuple(v.size for v in old)), strict=True)
        for old, place in zip((loop.ranges, loop.reduced), points(flat)))))
    made = loop.over(change, flat[:1], flat[1:] * reduces)
    return made if reduces else replace(made, reduction=None, turned=None)


def unite(a: IterationDomain, b: IterationDomain) -> IterationDomain | None:
    """A domain in which loops over either can run; None if there is none.

    Loops over rows alone can join a domain whose rows have elements, and
    so can loops over the elements of all rows.
    """
    if a.row == 1:
        a, b = b, a
    fits = a == b or b.row == 1 and b.rows in (a.rows, a.rows * a.row)
    return a if fits else None


@dataclass(frozen=True)
class Body:
    """Loops over the variables of one domain.

    `stores` and `reads` say where each buffer is stored and read.
    """

    domain: IterationDomain
    loops: tuple[Loop, ...]

    @cached_property
    def stores(self) -> dict[str, Index]:
        """An index for each buffer."""
        return {loop.buffer.name: loop.index for loop in self.loops}

    @cached_property
    def reads(self) -> dict[tuple[str, Index], None]:
        """A buffer and an index for each place, in order."""
        return {(load.buffer, load.index): None
                for loop in self.loops for load in loop.loads}

    def over(self, domain: IterationDomain, place: Index | None = None
             ) -> Body:
        """The loops over the variables of a domain that they fit. One that
        counts the elements of all rows counts rows and their elements,
        which lie at a `place` if not one after the other."""
        if domain == self.domain:
            return self
        flat = axes((domain.rows * domain.row,), "i")
        place = place or flatten(points(domain.variables), (domain.row, 1))
        return Body(domain, tuple(
            loop.over(dict.fromkeys(flat, place), domain.variables, ())
            if loop.ranges == flat else loop for loop in self.loops))


def fits(first: Body, second: Body) -> bool:
    """Whether each reads what the other stores only at the same point, and
    one kernel can have the buffers of both."""
    both, reads = (first, second), first.reads | second.reads
    return len({*first.stores, *second.stores, *(
        name for name, _ in reads)}) <= MOST_BUFFERS and all(
            body.stores.get(name, where) == where
            for body in both for name, where in reads)


class Group:
    """Loops that run together, or one operator call; grows by merging.

    `steps` are by position, in the order of the loops in `body`, if it has
    one. `own` has a bit for each of them: of two groups, the one with the
    later last step has the greater number. `before` has one or more for
    each group that must run earlier, and none for any other. Once it is
    merged, it is part of `into`.
    """

    def __init__(self, step: Loop | Extern, position: int,
                 deps: set[Group]):
        self.steps: dict[int, Loop | Extern] = {position: step}
        self.number = position
        self.body = self.into = None
        if isinstance(step, Loop):
            self.body = Body(IterationDomain.of(step), (step,))
        self.own, self.before = 1 << position, 0
        self.deps, self.users = deps, set()
        for dep in deps:
            dep.users.add(self)
            self.before |= dep.before | dep.own

    def __hash__(self) -> int:
        """Sets of groups have the same order in every run."""
        return self.number

    def is_apart(self, other: Group) -> bool:
        """Whether something must run after this and before the other."""
        return any(dep.before & self.own
                   for dep in other.deps if dep is not self)

    def absorb(self, other: Group, body: Body) -> None:
        """Become the union with `other`, which is then part of this; `body`
        has the loops of this one, then those of the other. All that wait
        for it now wait for what either waits for."""
        self.steps = dict(zip((*self.steps, *other.steps), body.loops))
        self.body = body
        for near in other.deps:
            near.users = near.users - {other} | {self}
        for near in other.users:
            near.deps = near.deps - {other} | {self}
        self.deps = (self.deps | other.deps) - {self, other}
        self.users = (self.users | other.users) - {self, other}
        self.own |= other.own
        other.into = self
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
            for dep in sorted(deps, key=lambda dep: -dep.own):
                self.join(dep, group)

    def find(self, group: Group) -> Group:
        """The group that this group is now part of."""
        while group.into:
            group = group.into
        return group

    def join(self, a: Group, b: Group, wanted: Callable[
            [Body, Body], bool] = lambda first, second: True) -> None:
        """Make two groups one, if that is legal and wanted."""
        a, b = self.find(a), self.find(b)
        if a is b or None in (a.body, b.body):
            return
        loops = a.body.loops + b.body.loops
        devices = {loop.buffer.device for loop in loops}
        domain = unite(a.body.domain, b.body.domain)
        if len(devices) > 1 or domain is None or any(
                picked(loop.index) for loop in loops) or (
                    a.is_apart(b) or b.is_apart(a)):
            return
        for place in (None, *PLACES[-1](a.body, b.body)):
            first, second = (each.body.over(domain, place)
                             for each in (a, b))
            if fits(first, second) and wanted(first, second):
                a.absorb(b, Body(domain, first.loops + second.loops))
                return

    def ordered(self) -> list[Group]:
        """The groups, as near to the graph's order as they can run."""
        def in_order(groups: Iterable[Group]) -> list[Group]:
            return sorted(groups, key=lambda group: group.own)
        return walk(*in_order({*map(self.find, self.all)}),
                    parts=lambda group: in_order(group.deps))
