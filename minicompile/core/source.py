"""Where a Python object came from, written so that it can be reached again.

In: nothing but the call. Out: an expression, valid at the next call, that
reads the same place. `L` is the tuple of the call's local values in the
order of the code's variable names; `F` is the function that was called.
A guard says what must hold at a source; a graph input is fetched from one.
PyTorch keeps the same idea in torch/_dynamo/source.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from keyword import iskeyword
from weakref import WeakValueDictionary


class Interned(type):
    """A class of which equal parts make one object: compared by `is`."""

    made: WeakValueDictionary = WeakValueDictionary()
    lock = threading.Lock()

    def __call__(cls, *parts):
        key = cls, *map(cls.identity, parts)
        if source := Interned.made.get(key):
            return source
        with Interned.lock:
            return Interned.made.setdefault(key, super().__call__(*parts))


class Source(metaclass=Interned):
    """A place an object can be read from. Prints as the user wrote it.

    `text` is how it is read, `said` how a person writes it where that
    differs; both are formats of the parts.
    """

    text = said = ""

    @staticmethod
    def identity(part: object) -> object:
        """What tells a part of a source from other parts."""
        return part if isinstance(part, Source) else repr(part)

    def form(self, write: Callable[[Source], str], text: str = "") -> str:
        """How the place is read; `write` writes what it is read from."""
        return (text or self.text).format_map({
            name: write(part) if isinstance(part, Source) else part
            for name, part in vars(self).items()})

    def code(self) -> str:
        """The Python expression over `L` and `F` that reads this place."""
        return self.form(Source.code)

    def __str__(self) -> str:
        return self.form(str, self.said)

    @property
    def base(self) -> Source | None:
        """The place this one is read through, or None for a root."""
        return vars(self).get("owner")


def chain(source: Source | None) -> Iterator[Source]:
    """The source and all that it is read through."""
    while source is not None:
        yield source
        source = source.base


def printable(value: object) -> bool:
    """Whether repr(value) is Python for the value."""
    if type(value) in (tuple, list):
        return all(map(printable, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str, bytes)


def source_class(name: str, parts: str, text: str, said: str = ""
                 ) -> type[Source]:
    """A class of sources: the names of its parts, how one is read, said."""
    return make_dataclass(name, parts.split(), bases=(Source,), frozen=True,
                          eq=False, namespace={"text": text, "said": said})


#: A parameter of the called function: `position` in its frame.
Local = source_class("Local", "name position", "L[{position}]", "{name}")

#: The called function object itself.
Function = source_class("Function", "name", "F", "{name}")

#: A number that Python computes of others: an expression of them.
Computed = source_class("Computed", "expression", "{expression}")

#: What a dict has at `key`, its class having its own `owner[key]` or
#: `__missing__`, which is not to run.
Stored = source_class("Stored", "owner key",
                      "dict.get({owner}, {key!r})",
                      "{owner}[{key!r}]")

#: `owner[key]`, the key an object that is read from a place too.
Entry = source_class("Entry", "owner key", "{owner}[{key}]")

#: `function(owner)` for a named, pure function such as `type`.
Call = source_class("Call", "function owner", "{function}({owner})")

#: `tensor.shape[dim]` or `tensor.stride()[dim]`, and its symbol.
Size = source_class("Size", "owner read dim symbol",
                    "{owner}.{read}[{dim}]")


class Constant(source_class("Constant", "name value", "{name}")):
    """An object the generated code holds by name, such as a class."""

    @staticmethod
    def identity(part: object) -> object:
        """A name by its text, the object by which one it is."""
        return part if type(part) is str else id(part)


class Attribute(source_class("Attribute", "owner name", "")):
    """`owner.name`."""

    @property
    def text(self) -> str:
        plain = self.name.isascii() and self.name.isidentifier()
        return ("{owner}.{name}" if plain and not iskeyword(self.name)
                else "getattr({owner}, {name!r})")


class Item(source_class("Item", "owner key", "{owner}[{key!r}]")):
    """`owner[key]`, the key a constant that prints as itself."""

    def __str__(self) -> str:
        """As a person writes a module's part, or a module's global."""
        match self.owner:
            case Attribute(owner, "_parameters" | "_buffers" | "_modules"
                           | "__dict__"):
                return f"{owner}.{self.key}"
            case Constant(name) if "_globals" in name:
                return str(self.key)
        return super().__str__()
