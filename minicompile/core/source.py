"""Where a Python object came from, written so that it can be reached again.

In: nothing but the call. Out: an expression, valid at the next call, that
reads the same place. `L` is the tuple of the call's local values in the
order of the code's variable names; `F` is the function that was called.
A guard says what must hold at a source; a graph input is fetched from one.
PyTorch keeps the same idea in torch/_dynamo/source.py.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A place an object can be read from. Prints as the user wrote it."""

    def form(self, text: Callable[[Source], str]) -> str:
        """How the place is written; `text` writes what it is read from."""
        raise NotImplementedError

    def code(self) -> str:
        """The Python expression over `L` and `F` that reads this place."""
        return self.form(Source.code)

    def __str__(self) -> str:
        return self.form(str)

    @property
    def base(self) -> Source | None:
        """The place this one is read through, or None for a root."""
        return getattr(self, "owner", None)


def hashed_once(kind: type) -> type:
    """The class as a frozen dataclass whose objects keep their hash.

    The hash of a source is made of its owner's. Without keeping it, each
    look-up would go up to the root.
    """
    kind = dataclass(frozen=True)(kind)
    compute = kind.__hash__

    def __hash__(self) -> int:
        kept = vars(self)
        if "hash" not in kept:
            kept["hash"] = compute(self)
        return kept["hash"]
    kind.__hash__ = __hash__
    return kind


def chain(source: Source | None) -> Iterator[Source]:
    """The source and all that it is read through."""
    while source is not None:
        yield source
        source = source.base


@hashed_once
class Local(Source):
    """A parameter of the called function: `position` in its frame."""

    name: str
    position: int

    def form(self, text: Callable) -> str:
        return self.name if text is str else f"L[{self.position}]"


@hashed_once
class Function(Source):
    """The called function object itself."""

    name: str

    def form(self, text: Callable) -> str:
        return self.name if text is str else "F"


@hashed_once
class Constant(Source):
    """An object the generated code holds by name, such as a class."""

    name: str
    value: object

    def form(self, text: Callable) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and other.value is self.value


@hashed_once
class Computed(Source):
    """A number that Python computes of others: an expression of them."""

    expression: str

    def form(self, text: Callable) -> str:
        return self.expression


@hashed_once
class Attribute(Source):
    """`base.name`."""

    owner: Source
    name: str

    def form(self, text: Callable) -> str:
        if self.name.isascii() and self.name.isidentifier() and (
                not keyword.iskeyword(self.name)):
            return f"{text(self.owner)}.{self.name}"
        return f"getattr({text(self.owner)}, {self.name!r})"


@hashed_once
class Item(Source):
    """`base[key]`, the key a constant that prints as itself.

    `label` is how a person would write the place, where that differs:
    a parameter is read from `m._parameters["weight"]` and called
    `m.weight`.
    """

    owner: Source
    key: object
    label: str | None = None

    def form(self, text: Callable) -> str:
        if text is str and self.label:
            return self.label
        return f"{text(self.owner)}[{self.key!r}]"

    def __hash__(self) -> int:
        return hash((self.owner, str(self.key)))

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Item) and self.owner == other.owner
                and type(self.key) is type(other.key)
                and self.key == other.key)


@dataclass(frozen=True, eq=False)
class Stored(Item):
    """What a dict has at `key`, its class having its own `base[key]`."""

    def form(self, text: Callable) -> str:
        if text is str:
            return super().form(text)
        return f"dict.__getitem__({text(self.owner)}, {self.key!r})"


@hashed_once
class Entry(Source):
    """`base[key]`, the key an object that is read from a place too."""

    owner: Source
    key: Source

    def form(self, text: Callable) -> str:
        return f"{text(self.owner)}[{text(self.key)}]"


@hashed_once
class Call(Source):
    """`function(base)` for a named, pure function such as `type`, `len`."""

    function: str
    owner: Source

    def form(self, text: Callable) -> str:
        return f"{self.function}({text(self.owner)})"


@hashed_once
class Size(Source):
    """`tensor.shape[dim]` or `tensor.stride()[dim]`, and its symbol."""

    owner: Source
    read: str
    dim: int
    symbol: str

    def form(self, text: Callable) -> str:
        return f"{text(self.owner)}.{self.read}[{self.dim}]"
