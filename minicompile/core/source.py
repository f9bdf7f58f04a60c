"""Where a Python object came from, written so that it can be reached again.

In: nothing but the call. Out: an expression, valid at the next call, that
reads the same place. `L` is the tuple of the call's local values in the
order of the code's variable names; `F` is the function that was called.
A guard says what must hold at a source; a graph input is fetched from one.
PyTorch keeps the same idea in torch/_dynamo/source.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


place = dataclass(frozen=True, eq=False)


@place
class Local(Source):
    """A parameter of the called function: `position` in its frame."""

    name: str
    position: int
    text, said = "L[{position}]", "{name}"


@place
class Function(Source):
    """The called function object itself."""

    name: str
    text, said = "F", "{name}"


@place
class Constant(Source):
    """An object the generated code holds by name, such as a class."""

    name: str
    value: object
    text = "{name}"

    @staticmethod
    def identity(part: object) -> object:
        """A name by its text, the object by which one it is."""
        return part if type(part) is str else id(part)


@place
class Computed(Source):
    """A number that Python computes of others: an expression of them."""

    expression: str
    text = "{expression}"


@place
class Attribute(Source):
    """`owner.name`."""

    owner: Source
    name: str

    @property
    def text(self) -> str:
        plain = self.name.isascii() and self.name.isidentifier()
        return ("{owner}.{name}" if plain and not iskeyword(self.name)
                else "getattr({owner}, {name!r})")


@place
class Item(Source):
    """`owner[key]`, the key a constant that prints as itself."""

    owner: Source
    key: object
    text = "{owner}[{key!r}]"

    def __str__(self) -> str:
        """As a person writes a module's part, or a module's global."""
        match self.owner:
            case Attribute(owner, "_parameters" | "_buffers" | "_modules"
                           | "__dict__"):
                return f"{owner}.{self.key}"
            case Constant(name) if "_globals" in name:
                return str(self.key)
        return super().__str__()


@place
class Stored(Item):
    """What a dict has at `key`, its class having its own `owner[key]`."""

    text = "dict.__getitem__({owner}, {key!r})"
    said = Item.text


@place
class Entry(Source):
    """`owner[key]`, the key an object that is read from a place too."""

    owner: Source
    key: Source
    text = "{owner}[{key}]"


@place
class Call(Source):
    """`function(owner)` for a named, pure function such as `type`."""

    function: str
    owner: Source
    text = "{function}({owner})"


@place
class Size(Source):
    """`tensor.shape[dim]` or `tensor.stride()[dim]`, and its symbol."""

    owner: Source
    read: str
    dim: int
    symbol: str
    text = "{owner}.{read}[{dim}]"
