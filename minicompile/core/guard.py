"""A guard: one fact about the outside world that a graph relies on.

Tracing produces guards, chapter 2 turns them into one check function.
PyTorch's are in torch/_guards.py and torch/_dynamo/guards.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source
from .where import Where

#: Every kind of guard, and what `expected` holds for it.
KINDS = {
    "type": "the class: type(x) is expected",
    "is": "the object: x is expected (held for as long as the guard)",
    "equal": "a constant: type(x) is type(expected) and x == expected",
    "tensor": "the TensorFacts that x must have",
    "length": "an int: len(x) == expected",
    "keys": "a tuple: tuple(x) == expected, in order",
    "has": "a bool: hasattr(x, name) is expected[1]; expected = name, bool",
    "contains": "(key, bool): (key in x) is the bool",
    "lacks": "a tuple of keys: none is in the dict x",
    "same": "a Source: x is the object found there",
    "different": "a Source: x is not the object found there",
    "apart": "a tuple of Sources: tensors, no two of which share storage",
    "relation": "a Relation: what must hold between sizes",
    "state": "a GlobalState: what torch's global switches must be",
}


@dataclass(frozen=True)
class TensorFacts:
    """What a graph assumes about one input tensor.

    A size or stride that is symbolic is None.
    """

    type: type
    dtype: object
    device: object
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    requires_grad: bool


@dataclass(frozen=True)
class Relation:
    """A condition on the values at some sources, `{0}` being the first."""

    text: str
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        return self.text.format(*self.sources)


@dataclass(frozen=True)
class GlobalState:
    """Torch's global switches that change what an operator does."""

    grad_enabled: bool
    inference: bool
    autocast: tuple[tuple[str, object], ...]
    default_dtype: object
    deterministic: bool


@dataclass(frozen=True)
class Guard:
    """`source` must satisfy `kind` with `expected`; `where` is why."""

    source: Source | None
    kind: str
    expected: object
    where: Where | None = None

    def key(self) -> tuple:
        """Two guards with one key say the same; tracing keeps the first."""
        try:
            hash(self.expected)
            expected = (type(self.expected), self.expected)
        except TypeError:
            expected = (type(self.expected), id(self.expected))
        return (self.source, self.kind, expected)

    def __str__(self) -> str:
        place = "torch" if self.source is None else str(self.source)
        return f"{place}: {self.kind} {named(self.expected)}"


def named(expected: object) -> str:
    """A class, function, module or code by its name; else the repr."""
    name = getattr(expected, "__name__", None)
    return name or getattr(expected, "co_name", None) or repr(expected)
