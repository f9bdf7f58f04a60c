"""Which guards only a change to a dictionary can make fail.

In: the tree of places. Out: dicts below which nothing has to be asked for
as long as no class, __dict__ or dict there has changed, but of tensors.
CPython counts such changes, and comparing counts is quicker.
PyTorch did so, too: use_recursive_dict_tags_for_guards in
torch/_dynamo/config.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..core.extension import TENSORS
from ..core.guard import Guard
from ..core.source import Attribute, Source
from .conditions import counted

#: Guards whose answer is in the dict, or in the plain value, they are on.
OF_DICTS = ("type", "length", "keys", "contains", "lacks", "equal", "is")

PLAIN = (bool, int, float, str, type(None))

#: So many guards below a dict are worth watching it.
ENOUGH = 8


@dataclass
class Watch:
    """What to watch below a dict, and the guards that it speaks for.

    A node is a class, or None for any dict, with its parts: None for a
    tensor, else names, each with the node of what is there, or with None.
    """

    node: tuple = ()
    guards: list[Guard] = field(default_factory=list)
    tensors: list[Guard] = field(default_factory=list)

    def look(self, places, source: Source) -> tuple | None:
        """The node of a place; None if it can change without a trace."""
        at = {guard.kind: guard for guard in places.at[source]}
        kind = at["type"].expected if "type" in at else None
        if {*at} == {"tensor"} and at["tensor"].expected.type in TENSORS:
            self.tensors.append(at["tensor"])
            return at["tensor"].expected.type, None
        if kind is None and {*at} != {"length"} or kind and not (
                kind is dict or keeps_to_its_dict(kind)):
            return None
        self.guards += [guard for guard in places.at[source]
                        if guard.kind in OF_DICTS]
        return kind, tuple(self.parts(places, kind, source))

    def parts(self, places, kind: type | None, source: Source
              ) -> Iterator[tuple[object, tuple | None]]:
        """What is read from a dict or an object's __dict__, by name."""
        for child in places.below[source] if kind else ():
            guards = places.at[child]
            key = getattr(child, "key" if kind is dict else "name", None)
            if type(key) not in (str, int):
                continue
            if type(child) is Attribute and key == "__dict__":
                self.guards += [guard for guard in guards
                                if guard.kind in OF_DICTS]
            if kind is not dict and any(key in vars(each)
                                        for each in kind.__mro__):
                continue
            if all(map(is_plain, guards)) and guards:
                self.guards += guards
                yield key, None
            elif node := self.look(places, child):
                yield key, node


def watched(places, source: Source | None = None
            ) -> Iterator[tuple[Source, Watch]]:
    """The topmost dicts that are worth watching, with what to watch."""
    if not counted():
        return
    for child in places.below[source]:
        watch = Watch()
        if any(guard.kind == "type" and guard.expected is dict
               for guard in places.at[child]):
            watch.node = watch.look(places, child)
        if len(watch.guards) + len(watch.tensors) >= ENOUGH:
            yield child, watch
        else:
            yield from watched(places, child)


def gathered(objects: Iterable, nodes: Iterable[tuple]) -> list:
    """The tensors to be watched below each object, in order."""
    found = []
    for x, (_, parts) in zip(objects, nodes):
        for key, child in parts or ():
            if child is not None:
                value = x[key] if type(x) is dict else getattr(x, key)
                found += gathered([value], [child])
        found += [x] if parts is None else []
    return found


def keeps_to_its_dict(kind: type) -> bool:
    """Whether what objects of the class have is in their __dict__."""
    return (kind.__dictoffset__ != 0
            and kind.__getattribute__ is object.__getattribute__)


def is_plain(guard: Guard) -> bool:
    """Whether the guard is about which object it is, or a plain value."""
    return guard.kind == "is" or (
        guard.kind == "equal" and type(guard.expected) in PLAIN)
