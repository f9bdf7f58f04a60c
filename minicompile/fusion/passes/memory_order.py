"""The order of the groups: the graph's, but memory is freed early.

A group that frees at least as much as it takes runs as soon as it can:
after it, no more memory is in use than before. In a backward pass that is
a weight's gradient, which is the last to need an activation and may stand
at the graph's end. Inductor's is torch/_inductor/memory.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

from ...core.loops import Buffer
from ...core.schedule import made_by, readers_of, reads_of
from ..group import Group
from ..schedule import ORDERING
from ..values import elements


class Order:
    """Groups taken one by one; `readers` are those still to run.

    `kept` are buffers that are never freed, `dying` inputs that are.
    """

    def __init__(self, groups: list[Group], kept: Collection[str],
                 dying: Iterable[Buffer]):
        self.kept = kept
        steps = [list(group.steps.values()) for group in groups]
        self.reads = {group: reads_of(own).keys()
                      for group, own in zip(groups, steps)}
        self.readers = {name: {groups[number] for number in numbers}
                        for name, numbers in readers_of(steps).items()}
        self.made = {group: [b for step in own for b in made_by(step)]
                     for group, own in zip(groups, steps)}
        self.sizes = {
            buffer.name: elements(buffer.shape) * buffer.dtype.itemsize
            for made in (dying, *self.made.values()) for buffer in made}
        self.waiting = {group: len(group.deps) for group in groups}
        self.ready = [(group.last, group) for group in groups
                      if not group.deps]
        self.early: list[tuple[int, Group]] = []
        heapify(self.ready)

    def run(self) -> list[Group]:
        """All groups in order."""
        done: dict[Group, None] = {}
        while self.early or self.ready:
            _, group = heappop(self.early or self.ready)
            if group not in done:
                done[group] = None
                self.finish(group)
        return list(done)

    def finish(self, group: Group) -> None:
        """Note that a group has run, and who can or should run now."""
        near: set[Group] = set()
        for user in group.users:
            self.waiting[user] -= 1
            if not self.waiting[user]:
                heappush(self.ready, (user.last, user))
                near.add(user)
        for name in self.reads[group]:
            self.readers[name].discard(group)
            if len(self.readers[name]) == 1:
                near |= self.readers[name]
        for other in near:
            if not self.waiting[other] and self.takes(other) <= 0:
                heappush(self.early, (other.last, other))

    def takes(self, group: Group) -> int:
        """Bytes of memory the group needs, less what it sets free."""
        made = {buffer.name for buffer in self.made[group]}
        lasting = [name for name in made if name in self.kept
                   or self.readers.get(name, set()) - {group}]
        freed = [name for name in self.reads[group] - made
                 if name in self.sizes and name not in self.kept
                 and self.readers[name] == {group}]
        return sum(map(self.sizes.get, lasting)) - sum(
            map(self.sizes.get, freed))


ORDERING.append(lambda *given: Order(*given).run())
