"""Siblings that look alike: one text for all, and a table of the rest.

In: the text of each sibling's guards, with slots where values stand. Out:
the text with what all siblings share filled in, and a column for each
slot in which they differ. A hundred layers become a loop over a hundred
rows, which CPython runs faster than a hundred copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .held import Names


@dataclass
class Slots:
    """Stands in for Names: notes each request, and gives a slot for it."""

    place: str
    asked: list[tuple[str, str, object]] = field(default_factory=list)

    def fresh(self, wish: str) -> str:
        return self._slot("fresh", wish)

    def constant(self, wish: str, value: object) -> str:
        return self._slot("constant", wish, value)

    def identity(self, wish: str, value: object) -> str:
        return self._slot("identity", wish, value)

    def literal(self, wish: str, value: object) -> str:
        return self._slot("literal", wish, value)

    def _slot(self, request: str, wish: str, value: object = None) -> str:
        """A new slot; a wish for one sibling is a wish for each."""
        wish = re.sub(rf"(?<!\w){re.escape(self.place)}", "each_", wish)
        self.asked.append((request, wish, value))
        return slot(len(self.asked) - 1)


def slot(number: int) -> str:
    """The marker of a slot; no program text contains a NUL."""
    return f"\0{number:9}\0"


def fill(names: Names, text: str, siblings: Iterable[Slots]
         ) -> tuple[str, dict[str, list]]:
    """The text without slots, and the columns that its names vary over."""
    columns: dict[str, list] = {}
    for number, requests in enumerate(zip(*(s.asked for s in siblings))):
        request, wish, value = requests[0]
        if request == "fresh":
            word = names.fresh(wish)
        elif all(same(value, other) for _, _, other in requests):
            word = getattr(names, request)(wish, value)
        else:
            word = names.fresh(wish)
            columns[word] = [names.hold(each) if request == "identity"
                             else each for _, _, each in requests]
        text = text.replace(slot(number), word)
    return text, columns


def same(value: object, other: object) -> bool:
    """Whether one word can stand for both."""
    return value is other or (
        type(value) is type(other) and type(value) in (int, str, tuple)
        and repr(value) == repr(other))
