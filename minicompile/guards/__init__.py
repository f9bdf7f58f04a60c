"""Stage 2, guards: all facts a graph relies on, as one function.

In: guards, the named constants their sources mention, and the sources of
the graph's inputs. Out: a Check, whose function gives those inputs if the
graph may be reused. Each place is read once, after what it is read through
has been settled; what differs most often between calls is asked first; an
exception means no.
PyTorch builds a tree in C++ instead: torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..core import load
from ..core.guard import Guard
from ..core.source import Source, chain
from ..core.state import global_state
from .predicates import KINDS, Names, condition

__all__ = ["Check", "build_check", "global_state"]

#: How a check explains itself: its `failures`, and what guards cost.
EXPLAINED: dict[str, Callable[[Check, tuple, object], Iterable]] = {}

#: What puts one guard in the place of many: guards and inputs, anew.
MERGED: list[Callable[[Names, list[Guard], list[Source]],
                      tuple[list[Guard], list[Source]]]] = []


@dataclass(frozen=True)
class Check:
    """Whether a graph may be reused, as a function of a call.

    `function(L, F)` lists the graph's inputs in this call, or gives None
    if a guard fails; `explain` says which. `source` is its text.
    """

    source: str
    function: Callable[[tuple, object], list | None] = field(repr=False)
    guards: tuple[Guard, ...] = field(repr=False)
    names: Names = field(repr=False)

    def __call__(self, L: tuple, F: object) -> bool:
        return self.function(L, F) is not None

    @property
    def alive(self) -> bool:
        """False once an object has died that some guard expects."""
        return bool(self.names.values)

    def explain(self, L: tuple, F: object, how: str = "failures") -> list:
        """Every guard that does not hold, with its old and new value."""
        return [*EXPLAINED.get(how, lambda *_: ())(self, L, F)]

    def __str__(self) -> str:
        return self.source


def build_check(guards: Iterable[Guard], constants: dict[str, object],
                inputs: Sequence[Source] = ()) -> Check:
    """The check of `guards`, whose sources may read `constants`."""
    names = Names({"math": math, "torch": torch, **constants})
    unique = {guard.key(): guard for guard in guards}.values()
    guards = [replace(guard, expected=names.hold(guard.expected))
              if guard.kind == "is" else guard for guard in unique]
    asked = guards
    for merge in MERGED:
        asked, inputs = merge(names, asked, [*inputs])
    lines = body(names, asked, inputs, {})
    source = "".join([*names.functions, "def check(L, F):\n    try:\n",
                      *(f"        {line}\n" for line in lines),
                      "    except Exception:\n        return None\n"])
    exec(compile(source, "<guards>", "exec"), names.values)
    return Check(source, names.values.pop("check"), tuple(guards), names)


def body(names: Names, guards: Iterable[Guard], inputs: Sequence[Source],
         variables: dict[Source, str]) -> list[str]:
    """Lines that return None unless all guards hold, then the inputs.

    A place that is mentioned again is held by one of the `variables`.
    """
    asked = [(guard, condition(names, guard))
             for guard in sorted(guards, key=asking_order)]
    mentions: Counter[Source] = Counter()
    for source in (*inputs, *(
            place for guard, text in asked
            for at, place in enumerate(guard.places)
            for _ in range(text.count(f"{{{at}}}")))):
        for place in chain(source):
            mentions[place] += 1
            if mentions[place] > 1:
                break
    lines, said = [], None

    def read(source: Source) -> str:
        if source not in variables:
            code = source.form(read)
            if mentions[source] < 2:
                return code
            variables[source] = names.fresh(
                getattr(source, "symbol", str(source)))
            lines.append(f"{variables[source]} = {code}")
        return variables[source]

    for guard, text in asked:
        if guard.where not in (None, said):
            said = guard.where
            remark = (f"# {os.path.basename(said.file)}:{said.line}  "
                      f"{said.text}")
            lines.append("".join(filter(str.isprintable, remark))[:68])
        text = text.format(*map(read, guard.places))
        lines.append(f"if not ({text}): return None")
    each = ", ".join(map(read, inputs))  # this may add lines
    return [*lines, f"return [{each}]"]


def asking_order(guard: Guard) -> tuple[float, int]:
    """When to ask: level by level, then by kind; comparisons last."""
    depth = max([len([*chain(place)]) for place in guard.places],
                default=1.5)
    last = guard.kind in ("same", "different", "apart", "relation")
    return math.inf if last else depth, [*KINDS].index(guard.kind)


load(__name__, __path__)
