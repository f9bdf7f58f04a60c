"""A guard: one fact about the outside world that a graph relies on.

Tracing produces guards, chapter 2 turns them into one check function.
PyTorch's are in torch/_guards.py and torch/_dynamo/guards.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Where
from .source import Source


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

    def __str__(self) -> str:
        sizes, strides = (str(tuple(numbers)).replace("None", "?")
                          for numbers in (self.shape, self.stride))
        dtype = str(self.dtype).removeprefix("torch.")
        return (f"{dtype} {sizes}, strides {strides}, {self.device}"
                f"{', requires grad' * self.requires_grad}")


@dataclass(frozen=True)
class Relation:
    """A condition on the values at some sources, `{0}` being the first."""

    text: str
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        return self.text.format(*self.sources)


@dataclass(frozen=True)
class Guard:
    """`source` must satisfy `kind` with `expected`; `where` is why.

    Chapter 2 has the table of kinds. `same` and `different` expect the
    source of another object, `apart` the sources of several tensors, a
    `relation` has its own, and the `state` of torch has no source.
    """

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

    @property
    def places(self) -> tuple[Source, ...]:
        """The sources whose values the guard is about."""
        match self.kind:
            case "same" | "different":
                return self.source, self.expected
            case "apart":
                return self.expected
            case "state":
                return ()
        return (self.expected.sources if isinstance(self.expected, Relation)
                else (self.source,))

    def __str__(self) -> str:
        place = "torch" if self.source is None else str(self.source)
        expected = self.expected  # a class, function or code by its name
        name = getattr(expected, "__name__", None) or getattr(
            expected, "co_name", None)
        return f"{place}: {self.kind} {name or repr(expected)}"
