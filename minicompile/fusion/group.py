"""Which loops run together: groups of loops, which become kernels.

In: loops and operator calls, in an order in which they could run. Out:
the same, gathered in Groups. The idea: first every loop joins the groups
it reads from, then groups that read the same elements join. A group has a
level above those of all it reads from, so that only what lies between two
levels can stand between two groups. Inductor's is
torch/_inductor/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.graph import has_effect
from ..core.index import Index, Variable, product
from ..core.loops import Loop
from ..core.schedule import Extern, made_by, reads_of
from .space import Space, seen_from, space_of, unite
from .values import elements, touched

#: A kernel with more buffers than this is slow to launch and to compile.
MOST_BUFFERS = 48

#: A launch takes at least as long as reading so many elements.
LAUNCH = 2 ** 14

#: How many groups are looked at for a path between two.
FARTHEST = 100

#: How many of the groups that read a buffer are tried for a merge.
NEAREST = 8


@dataclass(frozen=True)
class Body:
    """Loops, a space for all of them, and where in terms of that space
    each buffer is stored and read."""

    space: Space
    loops: tuple[Loop, ...]
    stores: dict[str, Index]
    reads: dict[str, frozenset[Index]]

    def within(self, space: Space) -> Body:
        """The same loops with a refined space."""
        if space == self.space:
            return self
        return Body(space, self.loops, {
            name: seen_from(index, self.space, space)
            for name, index in self.stores.items()}, {
            name: frozenset(seen_from(index, self.space, space)
                            for index in indices)
            for name, indices in self.reads.items()})

    def joined(self, other: Body) -> Body:
        """The loops of both; their spaces are one already."""
        reads = {name: self.reads.get(name, frozenset())
                 | other.reads.get(name, frozenset())
                 for name in self.reads | other.reads}
        return Body(self.space, self.loops + other.loops,
                    self.stores | other.stores, reads)


def body_of(loop: Loop) -> Body:
    """One loop by itself."""
    reads: dict[str, frozenset[Index]] = {}
    for load in loop.loads:
        reads[load.buffer] = reads.get(
            load.buffer, frozenset()) | {load.index}
    return Body(space_of(loop), (loop,), {loop.buffer.name: loop.index},
                reads)


def fits(first: Body, second: Body) -> bool:
    """Whether `second` reads what `first` stores only at the same point."""
    return all(second.reads[name] == {first.stores[name]}
               for name in first.stores.keys() & second.reads.keys())


def passes(first: Body, second: Body) -> bool:
    """Whether `second` reads anything that `first` stores."""
    return not first.stores.keys().isdisjoint(second.reads)


def both_read(first: Body, second: Body) -> set[tuple[str, Index]]:
    """The elements that both read: buffers, and where in them."""
    return {(name, index)
            for name in first.reads.keys() & second.reads.keys()
            for index in first.reads[name] & second.reads[name]}


def shares(first: Body, second: Body) -> bool:
    """Whether both read the same elements, and enough of them to be
    worth it that the results of both are there earlier than needed."""
    enough = min(points_in(first), points_in(second)) / 4 - LAUNCH
    return any(touched(index) >= enough
               for _, index in both_read(first, second))


def resemble(first: Body, second: Body) -> bool:
    """Whether the loops of both run over the same points, and read
    different elements: what both read has been judged already."""
    kinds = [{(size_of_all(loop.ranges), size_of_all(loop.reduced))
              for loop in body.loops} for body in (first, second)]
    return kinds[0] == kinds[1] and not both_read(first, second)


def size_of_all(variables: Iterable[Variable]) -> Index:
    """How many points the variables count."""
    return product(variable.size for variable in variables)


def points_in(body: Body) -> int:
    """How many points the loops' space has."""
    return elements(body.space.all)


class Group:
    """Loops that run together, or one operator call; grows by merging."""

    def __init__(self, step: Loop | Extern, position: int):
        self.steps: list[tuple[int, Loop | Extern]] = [(position, step)]
        self.level = 0
        self.deps: set[Group] = set()
        self.users: set[Group] = set()
        self.body = None if isinstance(step, Extern) else body_of(step)

    def __hash__(self) -> int:
        """Sets of groups have the same order in every run."""
        return self.steps[0][0]

    @property
    def device(self):
        """Where its loops run."""
        return self.body.loops[0].buffer.device

    @property
    def last(self) -> int:
        """The position of its last step in the order that lowering had."""
        return max(position for position, _ in self.steps)

    def follow(self, deps: Iterable[Group]) -> None:
        """Stand after the groups that this one reads from."""
        self.deps = set(deps)
        self.level = 1 + max((d.level for d in deps), default=-1)
        for dep in self.deps:
            dep.users.add(self)

    def absorb(self, other: Group, body: Body) -> None:
        """Become the union with `other`, which is then forgotten."""
        self.steps += other.steps
        self.body = body
        for dep in other.deps:
            dep.users.discard(other)
            dep.users.add(self)
        for user in other.users:
            user.deps.discard(other)
            user.deps.add(self)
        self.deps = (self.deps | other.deps) - {self, other}
        self.users = (self.users | other.users) - {self, other}
        self.rise(max(self.level, other.level))

    def rise(self, level: int) -> None:
        """Stand at a level, and all that reads from this above it."""
        rising = [(self, level)]
        while rising:
            group, level = rising.pop()
            group.level = max(group.level, level)
            rising += [(user, level + 1) for user in group.users
                       if user.level <= level]


def kept_apart(a: Group, b: Group) -> bool:
    """Whether something must run after one of them and before the other.

    It would lie on a path from one to the other, and so between their
    levels; after FARTHEST groups without an answer, the answer is yes.
    """
    first, last = sorted((a, b), key=lambda group: group.level)
    seen: set[Group] = set()
    paths = list(first.users - {last})
    while paths:
        group = paths.pop()
        if group is last or len(seen) > FARTHEST:
            return True
        if group.level <= last.level and group not in seen:
            seen.add(group)
            paths += group.users
    return False


def united(a: Group, b: Group, wanted) -> Body | None:
    """The loops of both over one space, if they may and should be one."""
    if a.device != b.device:
        return None
    space = unite(a.body.space, b.body.space)
    if space is None or kept_apart(a, b):
        return None
    first, second = a.body.within(space), b.body.within(space)
    legal = fits(first, second) and fits(second, first)
    if not (legal and wanted(first, second)):
        return None
    both = first.joined(second)
    few = len(both.stores | both.reads) <= MOST_BUFFERS
    return both if few else None


class Grouping:
    """The groups so far, and which of them holds each buffer."""

    def __init__(self, steps: Iterable[Loop | Extern]):
        self.groups: dict[Group, None] = {}
        self.makers: dict[str, Group] = {}
        self.readers: dict[str, list[Group]] = {}
        self.merged: dict[Group, Group] = {}
        self.effects: set[Group] = set()  # the last that has one
        for position, step in enumerate(steps):
            self.add(Group(step, position), step)
        for group in list(self.groups):
            self.join_neighbours(group)

    def find(self, group: Group) -> Group:
        """The group that this one has become part of."""
        while group in self.merged:
            group = self.merged[group]
        return group

    def add(self, group: Group, step: Loop | Extern) -> None:
        """A new step; a loop joins the groups it reads from."""
        names = reads_of(step)
        deps = {self.find(self.makers[name]) for name in names
                if name in self.makers}
        if isinstance(step, Extern) and has_effect(step):
            deps |= self.effects  # they stay in the graph's order
            self.effects = {group}
        group.follow(deps)
        self.groups[group] = None
        for buffer in made_by(step):
            self.makers[buffer.name] = group
        for name in names:
            self.readers.setdefault(name, []).append(group)
        for dep in sorted(group.deps, key=lambda dep: -dep.last):
            self.join(dep, group, passes)

    def join_neighbours(self, group: Group) -> None:
        """Merge with groups that read the same elements, and with those
        that read other results of the same step over the same space."""
        if group in self.merged or group.body is None:
            return
        for name in list(group.body.reads):
            for other in self.readers[name][-NEAREST:]:
                self.join(self.find(other), self.find(group), shares)
        for dep in list(self.find(group).deps):
            if len(dep.users) <= NEAREST:
                for other in list(dep.users):
                    self.join(other, self.find(group), resemble)

    def join(self, first: Group, second: Group, wanted) -> None:
        """Make two groups one, if that is legal and wanted."""
        first, second = self.find(first), self.find(second)
        if first is second or first.body is None or second.body is None:
            return
        body = united(first, second, wanted)
        if body is not None:
            first.absorb(second, body)
            self.merged[second] = first
            del self.groups[second]
