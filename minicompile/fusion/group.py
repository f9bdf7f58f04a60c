"""Which loops run together: groups of loops, which become kernels.

In: loops and operator calls, in an order in which they could run. Out:
Groups, in an order in which these can. Every loop joins the groups that
it reads from, where that is legal: a consumer joins its producers. The
idea: two integers for each group, a bit for each step in it and for each
step before it, say whether something has to run between two groups.
Inductor's is torch/_inductor/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from ..core.graph import has_effect
from ..core.index import Index
from ..core.loops import Loop
from ..core.schedule import Extern, made_by, reads_of
from .domains import IterationDomain, seen_from, unite

#: A kernel with more buffers than this is slow to launch and to compile.
MOST_BUFFERS = 48


@dataclass(frozen=True)
class Body:
    """Loops, a domain for all of them, and where in terms of that domain
    each buffer is stored and read: a buffer and an index for each place,
    in order."""

    domain: IterationDomain
    loops: tuple[Loop, ...]
    stores: dict[str, Index]
    reads: dict[tuple[str, Index], None]

    @classmethod
    def of(cls, loop: Loop) -> Body:
        """One loop by itself."""
        return cls(IterationDomain.of(loop), (loop,),
                   {loop.buffer.name: loop.index}, dict.fromkeys(
                       (load.buffer, load.index) for load in loop.loads))

    @property
    def buffers(self) -> set[str]:
        """The buffers that it stores or reads."""
        return {*self.stores, *(name for name, _ in self.reads)}

    def within(self, domain: IterationDomain) -> Body:
        """The same loops with a refined domain."""
        def seen(where: Index) -> Index:
            return seen_from(where, self.domain, domain)
        return self if domain == self.domain else Body(
            domain, self.loops,
            {name: seen(where) for name, where in self.stores.items()},
            {(name, seen(where)): None for name, where in self.reads})

    def joined(self, other: Body) -> Body:
        """The loops of both; their domains are one already."""
        return Body(self.domain, self.loops + other.loops,
                    self.stores | other.stores, self.reads | other.reads)


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
        self.body = None if isinstance(step, Extern) else Body.of(step)
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
        """The group that this one has become part of."""
        while group in self.merged:
            group = self.merged[group]
        return group

    def join(self, a: Group, b: Group, wanted: Callable[
            [Body, Body], bool] = lambda first, second: True) -> None:
        """Make two groups one, if that is legal and wanted."""
        a, b = self.find(a), self.find(b)
        if a is b or None in (a.body, b.body) or (
                a.body.loops[0].buffer.device
                != b.body.loops[0].buffer.device):
            return
        domain = unite(a.body.domain, b.body.domain)
        if domain is None or a.is_apart(b) or b.is_apart(a):
            return
        first, second = a.body.within(domain), b.body.within(domain)
        if fits(first, second) and fits(second, first) and (
                wanted(first, second)):
            both = first.joined(second)
            if len(both.buffers) <= MOST_BUFFERS:
                a.absorb(b, both)
                self.merged[b] = a

    def ordered(self) -> list[Group]:
        """The groups, as near to the graph's order as they can run."""
        sorter = TopologicalSorter({
            group: group.deps for group in self.all
            if group not in self.merged})
        sorter.prepare()
        ready: list[tuple[int, Group]] = []
        found: list[Group] = []
        while sorter.is_active():
            for group in sorter.get_ready():
                heappush(ready, (group.last, group))
            found.append(heappop(ready)[1])
            sorter.done(found[-1])
        return found
