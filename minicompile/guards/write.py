"""The text of a check function.

In: guards. Out: the function's source. Arguments are asked about first,
then torch's switches, then what the arguments lead to, each place once
and after what it is read through; siblings that look alike are asked
about in one loop. Above a question stands the user's line it is for.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..core.guard import Guard
from ..core.source import Constant, Item, Source
from ..core.where import Where
from .alike import Slots, fill, slot
from .conditions import conditions_of
from .held import Names

#: Which kinds are asked first: cheap ones that often differ.
RANK = {kind: rank for rank, kind in enumerate(
    ("tensor", "equal", "length", "type", "keys", "contains", "has", "is",
     "same", "different", "apart", "state"))}

WIDTH = 76
HEAD = "def check(L, F):\n    try:\n"
TAIL = "        return True\n    except Exception:\n        return False\n"

#: So many siblings that look alike are worth a loop.
MANY = 4


def write(names: Names, guards: list[Guard]) -> str:
    """The source of `check(L, F)` that asks these guards."""
    places = Places(guards)
    text = Text(names, places)
    text.ask(sorted((guard for root in places.below[None]
                     for guard in places.at[root]), key=rank))
    text.ask(guard for guard in guards if guard.kind == "state")
    for root in places.below[None]:
        text.reach(root)
    text.ask(guard for guard in guards if others(guard))
    text.write()
    lines = [f"        {line}\n" for line in text.lines]
    return HEAD + "".join(lines) + TAIL


def rank(guard: Guard) -> int:
    """When to ask: the lower, the earlier."""
    return RANK[guard.kind]


def others(guard: Guard) -> tuple[Source, ...]:
    """The places whose values the guard compares with its own."""
    match guard.kind:
        case "same" | "different":
            return (guard.expected,)
        case "apart":
            return guard.expected
    return ()


class Places:
    """The sources as a tree.

    `at` has a source's own guards, `below` what is read through it,
    `mentions` how often the function will mention it.
    """

    def __init__(self, guards: list[Guard]):
        self.at: dict[Source, list[Guard]] = defaultdict(list)
        self.below: dict[Source | None, list[Source]] = defaultdict(list)
        self.mentions: Counter[Source] = Counter()
        self.known: set[Source] = set()
        for guard in guards:
            for source in (guard.source, *others(guard)):
                if source is not None:
                    self.add(source)
                    self.mentions[source] += 1
            if guard.source is not None and not others(guard):
                self.at[guard.source].append(guard)
                self.mentions[guard.source] += len(
                    conditions_of(Slots(""), guard, "", ())) - 1

    def add(self, source: Source) -> None:
        """Make room for a source, below what it is read through."""
        if source in self.known:
            return
        self.known.add(source)
        if source.base is not None:
            self.add(source.base)
            self.mentions[source.base] += 1
        self.below[source.base].append(source)


@dataclass
class Text:
    """The lines written so far, and the variable that holds each place.

    Conditions wait until something else is to be written, so that one
    `if` asks all it can.
    """

    names: Names | Slots
    places: Places
    lines: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    comment: str = ""
    variables: dict[Source, str] = field(default_factory=dict)

    def write(self, *lines: str) -> None:
        """Add lines, after the conditions that wait."""
        self.lines += unless(self.waiting)
        self.waiting = []
        self.lines += lines

    def ask(self, guards: Iterable[Guard]) -> None:
        """Return False unless all of these guards hold."""
        for guard in guards:
            self.remark(guard.where)
            x = self.read(guard.source) if guard.source is not None else ""
            ys = tuple(map(self.read, others(guard)))
            self.waiting += conditions_of(self.names, guard, x, ys)

    def remark(self, where: Where | None) -> None:
        """Write down the user's line, unless it is the last one's."""
        if where is None or isinstance(self.names, Slots):
            return
        comment = f"# {os.path.basename(where.file)}:{where.line}  "
        comment = f"{comment}{where.text}"[:WIDTH - 8].rstrip()
        if comment != self.comment:
            self.write(comment)
            self.comment = comment

    def reach(self, source: Source) -> None:
        """Ask about all that is read through `source`."""
        for siblings in self.families(source):
            if len(siblings) >= MANY:
                self.loop(source, siblings)
                continue
            for child in siblings:
                self.ask(sorted(self.places.at[child], key=rank))
                self.reach(child)

    def families(self, source: Source) -> Iterable[dict[Source, Text]]:
        """What is read through `source`, grouped by looking alike."""
        below = self.places.below[source]
        if len(below) < MANY or not isinstance(self.names, Names):
            return [{child: self} for child in below]
        families: dict[object, dict[Source, Text]] = defaultdict(dict)
        for child in below:
            text = self.of_one(child)
            looks = "\n".join(text.lines) if type(child) is Item else child
            families[looks][child] = text
        return families.values()

    def of_one(self, child: Source) -> Text:
        """The text about `child` alone, with slots for every value."""
        slots = Slots(str(child))
        text = Text(slots, self.places)
        text.variables[child] = slots.fresh(str(child))
        text.ask(sorted(self.places.at[child], key=rank))
        text.reach(child)
        text.write()
        return text

    def loop(self, source: Source, siblings: dict[Source, Text]) -> None:
        """Ask about siblings row by row."""
        first = next(iter(siblings.values()))
        key = self.names.fresh("key")
        each = f"{slot(0)} = {self.read(source)}[{key}]"
        body, columns = fill(self.names, "\n".join([each, *first.lines]),
                             [text.names for text in siblings.values()])
        columns = {key: [child.key for child in siblings], **columns}
        table = self.names.fresh(f"rows_of_{source}")
        self.names.values[table] = columns[key] if len(columns) == 1 else (
            list(zip(*columns.values())))
        self.write(f"for {', '.join(columns)} in {table}:",
                   *(f"    {line}" for line in body.split("\n")))

    def read(self, source: Source) -> str:
        """The variable or expression for the value at `source`."""
        if source in self.variables:
            return self.variables[source]
        code = source.code()
        if source.base is not None:
            base = Constant(self.read(source.base), None)
            code = replace(source, owner=base).code()
        if self.places.mentions[source] < 2:
            return code
        name = self.names.fresh(str(source))
        self.write(f"{name} = {code}")
        self.variables[source] = name
        return name


def unless(conditions: list[str]) -> list[str]:
    """Lines that return False unless every condition holds."""
    if not conditions:
        return []
    together = f"if not ({' and '.join(conditions)}):"
    if len(together) + 8 <= WIDTH:
        return [together, "    return False"]
    first, *rest = conditions
    lines = [f"if not ({first}", *(f"        and {line}" for line in rest)]
    return [*lines[:-1], f"{lines[-1]}):", "    return False"]
