"""The text of a check function.

In: guards, and the sources of the graph's inputs. Out: the function's
source. Arguments are asked about first, then torch's switches, then level
by level what the arguments lead to, each place once and after what it is
read through. Places that look alike become one list, and are asked about
together. Above a question stands the user's line it is for.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from textwrap import wrap

from ..core.guard import GlobalState, Guard
from ..core.source import Constant, Item, Size, Source
from .conditions import (ask, conditions_of, in_bulk, likeness,
                         on_tensors)
from .held import Names
from .native import described
from .steady import Watch, gathered, watched

#: Which kinds are asked first: cheap ones that often differ.
RANK = {kind: rank for rank, kind in enumerate(
    ("tensor", "equal", "length", "type", "keys", "contains", "lacks",
     "has", "is", "same", "different", "apart", "relation", "state"))}

WIDTH = 76
HEAD = "def check(L, F):\n    try:\n"
TAIL = "    except Exception:\n        return None\n"

#: So many places that look alike are worth a list.
MANY = 4


def write(names: Names, guards: list[Guard], inputs: Sequence[Source]
          ) -> str:
    """The source of `check(L, F)`: asks, then hands over the inputs."""
    watches = dict(watched(Places(guards, inputs)))
    settled = {id(guard) for watch in watches.values()
               for guard in (*watch.guards, *watch.tensors)}
    handed = {guard.source for watch in watches.values()
              for guard in watch.tensors}
    places = Places([g for g in guards if id(g) not in settled],
                    [s for s in inputs if s not in handed], watches)
    text, roots = Text(names, places), places.below[None]
    text.ask(sorted((guard for root in roots for guard in places.at[root]),
                    key=rank))
    text.settle()
    text.watch_alone(roots)
    text.ask(guard for guard in guards if guard.kind == "state")
    text.descend(roots)
    text.ask(guard for guard in guards if others(guard))
    text.write(f"return {text.listed(inputs)}")
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
    through it, `mentions` how often the function will mention it. `inputs`
    are those whose values are the result, `watches` are what to watch.
    """

    def __init__(self, guards: list[Guard], inputs: Sequence[Source],
                 watches: dict[Source, Watch] | None = None):
        self.inputs, self.watches = set(inputs), watches or {}
        self.at: dict[Source, list[Guard]] = defaultdict(list)
        self.below: dict[Source | None, list[Source]] = defaultdict(list)
        self.mentions: Counter[Source] = Counter()
        self.known: set[Source] = set()
        for source in (*inputs, *self.watches, *self.watches):
            self.mention(source)
        for guard in sorted(guards, key=rank):
            for source in (guard.source, *others(guard)):
                if source is not None:
                    self.mention(source)
            if guard.source is not None and not others(guard):
                self.at[guard.source].append(guard)
                self.mentions[guard.source] += len(
                    conditions_of(Names({}), guard, "", ())) - 1

    def mention(self, source: Source) -> None:
        """Count one mention of the source, and make room for it."""
        self.add(source)
        self.mentions[source] += 1

    def add(self, source: Source) -> None:
        """Make room for a source, below what it is read through."""
        if source in self.known:
            return
        self.known.add(source)
        if source.base is not None:
            self.add(source.base)
            self.mentions[source.base] += 1
        self.below[source.base].append(source)

    def families(self, sources: list[Source]) -> Iterable[list[Source]]:
        """The sources, grouped by looking alike."""
        families: dict[tuple, list[Source]] = defaultdict(list)
        for source in sources:
            families[self.looks(source)].append(source)
        return families.values()

    def looks(self, source: Source) -> tuple:
        """All that will be asked there and below, but for the values."""
        return (tuple(map(likeness, self.at[source])),
                source in self.watches,
                tuple((step(child), self.looks(child))
                      for child in self.below[source]))


def step(source: Source) -> Source:
    """How the source is read from its base, whatever that is."""
    return source if source.base is None else (
        replace(source, owner=Constant("x", None)))


@dataclass
class Text:
    """The lines written so far, and the variable that holds each place.

    Conditions wait until something else is to be written, so that one
    `if` asks all it can. Tensors wait for each other, to be asked about
    in one go.
    """

    names: Names
    places: Places
    lines: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    tensors: dict[Source, Guard] = field(default_factory=dict)
    comment: str = ""
    variables: dict[Source, str] = field(default_factory=dict)
    lists: dict[str, Sequence[Source]] = field(default_factory=dict)

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
        """Ask about the tensors that wait."""
        kinds: dict[tuple, list[Guard]] = defaultdict(list)
        for guard in self.tensors.values():
            kinds[likeness(guard)].append(guard)
        self.tensors = {}
        for guards in kinds.values():
            values = [self.read(guard.source) for guard in guards]
            self.write(*facts_in_words(guards))
            each = f"[{', '.join(values)}]"
            if len(each) > WIDTH // 2:
                each = self.listing(self.names.fresh("these"), values)
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

    def descend(self, level: list[Source]) -> None:
        """Ask about all that is read through these places."""
        while level:
            level = self.visit([child for place in level
                                for child in self.places.below[place]
                                if type(child) is not Size])

    def visit(self, level: list[Source]) -> list[Source]:
        """Ask about these places; gives those that are not in lists."""
        families = self.places.families(level)
        alone = [child for alike in families if len(alike) < MANY
                 for child in alike]
        for child in alone:
            self.ask(self.places.at[child])
        self.settle()
        self.watch_alone(alone)
        for alike in families:
            if len(alike) >= MANY:
                each = self.gather(alike)
                self.rows(each, each, alike)
        return alone

    def watch_alone(self, places: Iterable[Source]) -> None:
        """Watch those of these places that are worth it, one by one."""
        for place in places:
            if place in self.places.watches:
                self.watch(f"[{self.read(place)}]", [place])

    def watch(self, each: str, roots: Sequence[Source]) -> None:
        """Ask about all below these places, unless nothing has changed."""
        names, found = self.names, self.names.fresh("found")
        watches = [self.places.watches[root] for root in roots]
        guards = [guard for watch in watches for guard in watch.guards]
        tensors = [guard for watch in watches for guard in watch.tensors]
        nodes = names.listed("nodes", [watch.node for watch in watches])
        seen, stamps = names.listed("seen", []), names.fresh("stamps")
        facts = names.listed("facts", [
            described(guard.expected) for guard in tensors])
        text = Text(names, Places(guards, ()), variables=(
            dict(self.variables) if len(roots) == 1 else
            {root: f"{each}[{at}]" for at, root in enumerate(roots)}))
        text.write(f"{stamps} = {ask(names, 'stamped', each, nodes)}")
        text.descend(text.visit(list(roots)))
        reading = names.constant("gathered", gathered)
        text.write(f"{found} = {reading}({each}, {nodes})",
                   *facts_in_words(tensors))
        text.waiting.append(ask(names, "tensors", found, facts))
        text.write(f"{seen}[:] = {stamps}")
        settled = ask(names, "settled", each, seen, facts)
        self.write(f"{found} = {settled}", f"if {found} is None:",
                   *(f"    {line}" for line in text.lines))
        self.lists[found] = [guard.source for guard in tensors]

    def gather(self, alike: list[Source]) -> str:
        """The variable of a list of the values at these places."""
        first, bases = alike[0], {source.base for source in alike}
        kind = next((guard.expected.__name__.lower() for guard
                     in self.places.at[first] if guard.kind == "type"), "")
        name = self.names.fresh(f"{kind}s" if kind else "these")
        if len(bases) > 1 or {*map(type, alike)} != {Item}:
            return self.listing(name, [
                self.variables.get(s) or self.code(s) for s in alike])
        get = self.names.listed(f"{name}_of", itemgetter(
            *(source.key for source in alike)))
        self.write(f"{name} = [*{get}({self.read(first.base)})]")
        return name

    def listing(self, name: str, values: list[str]) -> str:
        """The variable `name`, which holds a list of these values."""
        self.write(f"{name} = [", *(f"    {each}," for each in values), "]")
        return name

    def rows(self, each: str, root: str, rows: Sequence[Source]) -> None:
        """Ask about places that look alike, and about all below them.

        `each` lists their values, and what is below is named for `root`.
        """
        asked = [*zip(*map(self.places.at.__getitem__, rows))]
        below = [*zip(*map(self.places.below.__getitem__, rows))]
        handed = not self.places.inputs.isdisjoint(rows)
        watched = rows[0] in self.places.watches
        if len(asked) + len(below) + handed + watched > 1:
            each = self.named(each, root, rows)
        if handed:
            self.lists[each] = rows
        for guards in asked:
            self.remark(guards[0])
            if guards[0].kind == "tensor":
                self.write(*facts_in_words(guards))
            self.waiting.append(in_bulk(self.names, guards, each))
        if watched:
            self.watch(each, rows)
        for children in below:
            self.rows(self.read_all(children[0], each), root, children)

    def named(self, each: str, root: str, rows: Sequence[Source]) -> str:
        """The variable of a list; `each` itself if it is one."""
        if each.isidentifier():
            return each
        last = str(rows[0]).rsplit(".", 1)[-1]
        name = self.names.fresh(f"{root}_{last}")
        self.write(f"{name} = {each}")
        return name

    def listed(self, inputs: Sequence[Source]) -> str:
        """The expression for a list of the values at these places."""
        lists = {name: sources for name, sources in self.lists.items()
                 if not set(inputs).isdisjoint(sources)}
        known = dict.fromkeys(itertools.chain(*lists.values()))
        alone = [s for s in dict.fromkeys(inputs) if s not in known]
        values = [*map(self.read, alone), *(f"*{name}" for name in lists)]
        each = f"[{', '.join(values)}]"
        if len(each) > WIDTH // 2:
            each = self.listing(self.names.fresh("inputs"), values)
        places = {s: at for at, s in enumerate([*alone, *known])}
        order = [places[source] for source in inputs]
        if order == [*places.values()]:
            return each
        values, order = (self.names.fresh("values"),
                         self.names.listed("order", order))
        self.write(f"{values} = {each}")
        return f"[{values}[at] for at in {order}]"

    def read_all(self, child: Source, each: str) -> str:
        """The list of what is read as `child` is, from each in a list."""
        code = replace(child, owner=Constant("one", None)).code()
        return f"[{code} for one in {each}]"

    def read(self, source: Source) -> str:
        """The variable or expression for the value at `source`."""
        if source not in self.variables:
            code = self.code(source)
            if self.places.mentions[source] < 2:
                return code
            self.variables[source] = self.names.fresh(
                getattr(source, "symbol", str(source)))
            self.write(f"{self.variables[source]} = {code}")
        return self.variables[source]

    def code(self, source: Source) -> str:
        """The expression that reads `source` from its base's variable."""
        if source.base is None:
            return source.code()
        base = Constant(self.read(source.base), None)
        return replace(source, owner=base).code()


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
