"""The order of the groups: the graph's, but memory is freed early.

A group that frees at least as much as it takes runs as soon as it can:
after it, no more memory is in use than before. In a backward pass that is
a weight's gradient, which is the last to need an activation and may stand
at the graph's end. Inductor's is torch/_inductor/memory.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...core.loops import Buffer
from ...core.schedule import made_by, readers_of, reads_of
from ..group import Group, Groups
from ..schedule import ORDERING
from ..values import elements


class Order:
    """Which groups run early; `readers` are those still to run.

    `kept` are buffers that are never freed, `dying` inputs that are.
    """

    def __init__(self, groups: Groups, kept: Collection[str],
                 dying: Iterable[Buffer]):
        self.kept = kept
        alive = [each for each in groups.all if each not in groups.merged]
        steps = [list(group.steps.values()) for group in alive]
        self.reads = {group: reads_of(own).keys()
                      for group, own in zip(alive, steps)}
        self.readers = {name: {alive[number] for number in numbers}
                        for name, numbers in readers_of(steps).items()}
        self.made = {group: [b for step in own for b in made_by(step)]
                     for group, own in zip(alive, steps)}
        self.sizes = {
            buffer.name: elements(buffer.shape) * buffer.dtype.itemsize
            for made in (dying, *self.made.values()) for buffer in made}

    def urgent(self, group: Group, waiting: dict[Group, int]
               ) -> list[Group]:
        """Who should run now that a group has run."""
        near = set(group.users)
        for name in self.reads[group]:
            self.readers[name].discard(group)
            if len(self.readers[name]) == 1:
                near |= self.readers[name]
        return [other for other in near
                if not waiting[other] and self.takes(other) <= 0]

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


ORDERING.append(lambda *given: Order(*given).urgent)
