"""Which guards only a change to a dictionary can make fail.

In: the tree of places, and some that look alike. Out: the guards whose
answers stay as they are until an object's class, its __dict__ or a dict
held there changes. CPython counts such changes, and asking it is quicker.
PyTorch did so, too: use_recursive_dict_tags_for_guards in
torch/_dynamo/config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.guard import Guard
from ..core.source import Attribute, Item, Source

#: Guards whose answer is in the dict, or in the plain value, they are on.
OF_DICTS = ("type", "length", "keys", "contains", "equal", "is")

PLAIN = (bool, int, float, str, type(None))


def steady(places, rows: Sequence[Source]) -> tuple[tuple, set[int]]:
    """The attributes to keep an eye on, and the steady guards, by id."""
    kind = next((guard.expected for guard in places.at[rows[0]]
                 if guard.kind == "type"), None)
    if kind is None or not keeps_to_its_dict(kind):
        return (), set()
    names, found = {}, set()
    for row in rows:
        found.update(id(g) for g in places.at[row] if g.kind == "type")
        for child in own_attributes(places, kind, row):
            if child.name != "__dict__":
                names[child.name] = None
            found.update(id(g) for g in places.at[child]
                         if g.kind in OF_DICTS)
            found.update(id(g) for item in places.below[child]
                         if type(item) is Item and type(item.key) is str
                         for g in places.at[item] if is_plain(g))
    return tuple(names), found


def own_attributes(places, kind: type, row: Source) -> Iterator[Attribute]:
    """What is read from an object's __dict__, and is plain or a dict."""
    for child in places.below[row]:
        if type(child) is not Attribute:
            continue
        shared = any(child.name in vars(each) for each in kind.__mro__)
        if child.name == "__dict__" or not shared and is_pinned(
                places.at[child]):
            yield child


def keeps_to_its_dict(kind: type) -> bool:
    """Whether what objects of the class have is in their __dict__."""
    return (kind.__dictoffset__ != 0
            and kind.__getattribute__ is object.__getattribute__)


def is_pinned(guards: list[Guard]) -> bool:
    """Whether the guards are about a dict, or a plain value."""
    kinds = {guard.kind: guard.expected for guard in guards}
    if "type" in kinds:
        return kinds["type"] is dict
    return {*kinds} == {"length"} or bool(kinds) and all(
        map(is_plain, guards))


def is_plain(guard: Guard) -> bool:
    """Whether the guard is about a value that cannot change."""
    return (guard.kind in ("equal", "is")
            and type(guard.expected) in PLAIN)
