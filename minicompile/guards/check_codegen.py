"""The text of a check function.

In: guards, and the sources of the graph's inputs. Out: the function's
source. Arguments are asked about first, then torch's switches, then level
by level what the arguments lead to, each place once and after what it is
read through. Tensors are asked about together. Above a question stands the
user's line it is for.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from textwrap import wrap
from typing import Protocol

from ..core.extension import TENSORS
from ..core.guard import GlobalState, Guard
from ..core.source import Source
from .constants import single
from .guard_namespace import Names
from .predicates import conditions_of, on_tensors

#: Which kinds are asked first: cheap ones that often differ.
RANK = {kind: rank for rank, kind in enumerate(
    ("tensor", "equal", "length", "type", "keys", "contains", "lacks",
     "has", "is", "same", "different", "apart", "relation", "state"))}

WIDTH = 76
HEAD = "def check(L, F):\n    try:\n"
TAIL = "    except Exception:\n        return None\n"

#: So many tensors are told in summary.
MANY = 4


class Block(Protocol):
    """Guards on all that is below a place, asked about in another way."""

    guards: list[Guard]

    def write(self, text: Text, root: Source) -> None:
        """Write the lines that ask them."""


#: What finds blocks among the places, each with its root.
BLOCKS: list[Callable[[Places], Iterable[tuple[Source, Block]]]] = []


def write(names: Names, guards: list[Guard], inputs: Sequence[Source]
          ) -> str:
    """The source of `check(L, F)`: asks, then hands over the inputs."""
    places = Places(guards, inputs)
    blocks = {root: block for find in BLOCKS
              for root, block in find(places)}
    if blocks:
        apart = {id(guard) for block in blocks.values()
                 for guard in block.guards}
        places = Places([guard for guard in guards if id(guard)
                         not in apart], [*inputs, *blocks, *blocks])
    text, roots = Text(names, places, blocks), places.below[None]
    text.visit(roots)
    text.ask(guard for guard in guards if guard.kind == "state")
    text.descend(roots)
    text.ask(guard for guard in guards if others(guard))
    text.write(f"return {text.listed('inputs', inputs)}")
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
        case "relation":
            return guard.expected.sources
    return ()


class Places:
    """The sources as a tree.

    `at` has a source's own guards, in asking order, `below` what is read
    through it, `mentions` how often the function will mention it, `order`
    which place each of the inputs has among them.
    """

    def __init__(self, guards: list[Guard], inputs: Sequence[Source]):
        self.at: dict[Source, list[Guard]] = defaultdict(list)
        self.below: dict[Source | None, list[Source]] = defaultdict(list)
        self.mentions: Counter[Source] = Counter()
        self.order = {source: at for at, source in enumerate(inputs)}
        for source in inputs:
            self.mention(source)
        for guard in sorted(guards, key=rank):
            for source in (guard.source, *others(guard)):
                self.mention(source)
            if guard.source is not None and not others(guard):
                self.at[guard.source].append(guard)
                self.mentions[guard.source] += (
                    guard.kind == "equal" and not single(guard.expected))

    def mention(self, source: Source | None) -> None:
        """Count a mention; the first is one of what it is read through."""
        if source is None:
            return
        self.mentions[source] += 1
        if self.mentions[source] == 1:
            self.mention(source.base)
            self.below[source.base].append(source)


@dataclass
class Text:
    """The lines written so far, and the variable that holds each place.

    Conditions wait until something else is to be written, so that one
    `if` asks all it can. Tensors wait for each other, to be asked about
    in one go. `lists` has the places whose values a variable lists.
    """

    names: Names
    places: Places
    blocks: dict[Source, Block] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    tensors: dict[Source, Guard] = field(default_factory=dict)
    comment: str = ""
    variables: dict[Source, str] = field(default_factory=dict)
    lists: dict[str, list[Source]] = field(default_factory=dict)

    def write(self, *lines: str) -> None:
        """Add lines, after the conditions that wait."""
        self.lines += unless(self.waiting)
        self.waiting = []
        self.lines += lines

    def ask(self, guards: Iterable[Guard]) -> None:
        """Return None unless all of these guards hold."""
        for guard in guards:
            if guard.kind == "tensor" and guard.source not in self.tensors:
                self.tensors[guard.source] = guard
                continue
            self.remark(guard)
            if guard.kind == "state":
                self.write(*state_in_words(guard.expected))
            x = self.read(guard.source) if guard.source is not None else ""
            ys = tuple(map(self.read, others(guard)))
            self.waiting += conditions_of(self.names, guard, x, ys)

    def settle(self) -> None:
        """Ask about the tensors that wait, those of a subclass apart."""
        kinds: dict[bool, list[Guard]] = defaultdict(list)
        for guard in self.tensors.values():
            kinds[guard.expected.type in TENSORS].append(guard)
        self.tensors = {}
        for guards in kinds.values():
            each = self.listed("these", [guard.source for guard in guards])
            self.write(*facts_in_words(guards))
            self.waiting.append(on_tensors(self.names, guards, each))

    def remark(self, guard: Guard) -> None:
        """Write down the user's line, unless it is the last one's."""
        where = guard.where
        if where is None:
            return
        line = comment(f"{os.path.basename(where.file)}:{where.line}  "
                       f"{where.text}")
        if line != self.comment:
            self.write(line)
            self.comment = line

    def descend(self, level: Sequence[Source]) -> None:
        """Ask about all that is read through these places."""
        below = self.places.below
        while level := [child for place in level for child in below[place]]:
            self.visit(level)

    def visit(self, level: Sequence[Source]) -> None:
        """Ask about these places, and what blocks have below them."""
        for place in level:
            self.ask(self.places.at[place])
        self.settle()
        for place in level:
            if place in self.blocks:
                self.blocks[place].write(self, place)

    def listed(self, wish: str, sources: Sequence[Source]) -> str:
        """The expression for a list of the values at these places."""
        values = [*sources]
        for name, items in self.lists.items():
            at = values.index(items[0]) if items[0] in values else 0
            if values[at:at + len(items)] == items:
                values[at:at + len(items)] = [f"*{name}"]
        values = [each if type(each) is str else self.read(each)
                  for each in values]
        each = f"[{', '.join(values)}]"
        if len(each) <= WIDTH // 2:
            return each
        name = self.names.fresh(wish)
        self.write(f"{name} = [", *(f"    {each}," for each in values), "]")
        return name

    def read(self, source: Source) -> str:
        """The variable or expression for the value at `source`."""
        if source not in self.variables:
            code = source.form(self.read)
            if self.places.mentions[source] < 2:
                return code
            self.variables[source] = self.names.fresh(
                getattr(source, "symbol", str(source)))
            self.write(f"{self.variables[source]} = {code}")
        return self.variables[source]


def facts_in_words(guards: Sequence[Guard]) -> list[str]:
    """Comments that say what is expected of tensors."""
    words = [f"{str(facts.dtype).removeprefix('torch.')} "
             f"{known(facts.shape)}, strides {known(facts.stride)}, "
             f"{facts.device}{', requires grad' * facts.requires_grad}"
             for facts in (guard.expected for guard in guards)]
    if len(guards) < MANY:
        return [comment(f"{guard.source}: {each}")
                for guard, each in zip(guards, words)]
    return [comment(f"{count} of {each}") for each, count
            in Counter(words).most_common(MANY)]


def known(sizes: tuple) -> str:
    """The sizes as a tuple prints, with ? for those that may vary."""
    return str(tuple(sizes)).replace("None", "?")


def state_in_words(state: GlobalState) -> list[str]:
    """A comment that says how the switches must stand."""
    switches = (f"{switch.name} is {getattr(state, switch.name)}"
                for switch in fields(state))
    return [*map(comment, wrap(", ".join(switches), WIDTH - 10))]


def comment(text: str) -> str:
    """The text as one line of comment, whatever is in it."""
    line = "".join(filter(str.isprintable, text))
    return f"# {line[:WIDTH - 10].rstrip()}"


def unless(conditions: list[str]) -> list[str]:
    """Lines that return None unless every condition holds."""
    if not conditions:
        return []
    together = f"if not ({' and '.join(conditions)}):"
    if len(together) + 8 <= WIDTH:
        return [together, "    return None"]
    first, *rest = conditions
    lines = [f"if not ({first}", *(f"        and {line}" for line in rest)]
    return [*lines[:-1], f"{lines[-1]}):", "    return None"]
