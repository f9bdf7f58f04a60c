"""What generated code compares with: names for values, held lightly.

In: an object that a guard expects. Out: a name for generated code. A graph
must not keep a dead model's memory, so objects are held weakly and
compared by id. Once one has died its graph can never be reused, and the
namespace is cleared: no later object can pass for it at its address.
PyTorch's counterpart is ID_MATCH in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import keyword
import math
import re
import reprlib
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..core.graph import describe

#: Classes and modules live as long as the program; hold them as they are.
LASTING = (type, types.ModuleType, types.BuiltinFunctionType)

#: How values are shown: of a huge one, only the beginning.
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 80

#: What is longer as text gets a name.
LONG = 300

#: What is written by its name in torch.
TORCH_NAMES = (torch.dtype, torch.device, torch.layout)


@dataclass
class Names:
    """The namespace of one generated function."""

    values: dict[str, object]
    taken: set[str] = field(default_factory=set)
    references: dict[int, weakref.ref] = field(default_factory=dict)
    known: dict[tuple, str] = field(default_factory=dict)
    mourners: list[Callable[[], None]] = field(default_factory=list)

    def fresh(self, wish: str) -> str:
        """An identifier like `wish` that nothing else uses."""
        stem = re.sub(r"[\W_]+", "_", wish).strip("_") or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"_{stem}"
        name, count = stem, 1
        while name in self.taken or name in self.values:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def constant(self, wish: str, value: object) -> str:
        """A name whose value is `value`, which the check keeps alive."""
        return self._named(("constant", id(value)), wish, value)

    def identity(self, wish: str, value: object) -> str:
        """A name whose value is id(value), for as long as that lives."""
        number = self.hold(value)
        return self._named(("id", number), f"id_{wish}", number)

    def literal(self, wish: str, value: object) -> str:
        """The value as Python text, or a name for it."""
        if printable(value) and len(repr(value)) <= LONG:
            return repr(value)
        if isinstance(value, TORCH_NAMES):
            wish = str(value).removeprefix("torch.")
        return self.constant(wish, value)

    def listed(self, wish: str, values: list) -> str:
        """A name for a list of values."""
        self.values[name := self.fresh(wish)] = values
        return name

    def hold(self, value: object) -> int:
        """id(value); the namespace is cleared when `value` dies."""
        if id(value) not in self.references:
            self.references[id(value)] = weakref.ref(value, self.forget)
        return id(value)

    def forget(self, _: weakref.ref) -> None:
        """Clear the namespace, and tell who wants to know."""
        self.values.clear()
        for tell in self.mourners:
            tell()

    def _named(self, key: tuple, wish: str, value: object) -> str:
        """The name of `key`, made at the first request."""
        if key not in self.known:
            self.known[key] = name = self.fresh(wish)
            self.values[name] = value
        return self.known[key]


@dataclass(frozen=True)
class Held:
    """What stands for an object in a kept guard: a weak reference."""

    reference: weakref.ref
    text: str

    def __repr__(self) -> str:
        return self.text


def printable(value: object) -> bool:
    """Whether repr(value) is Python for the value."""
    if type(value) in (tuple, list):
        return all(map(printable, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str, bytes)


def held_weakly(value: object) -> bool:
    """Whether a guard on the object `value` refers to it weakly."""
    return (not isinstance(value, LASTING)
            and type(value).__weakrefoffset__ != 0)


def kept(expected: object) -> object:
    """`expected`, or what is shown for it once it may have died."""
    if not held_weakly(expected):
        return expected
    return Held(weakref.ref(expected), brief(expected))


def brief(value: object) -> str:
    """The value in at most 60 characters, whatever its __repr__ does."""
    kind = type(value).__name__
    try:
        if issubclass(type(value), torch.Tensor):
            text = f"a {kind} {describe(value)}"
        elif type(value) in (types.FunctionType, type):
            text = f"{kind} {value.__qualname__}"
        elif type(value) is types.ModuleType:
            text = f"{kind} {value.__name__}"
        else:
            text = SHORT.repr(value)
    except Exception:
        text = f"a {kind}"
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
