"""Why a check failed, in words.

In: the guards, each as its own question, and the call that failed. Out:
for each guard that does not hold: what it was about, the old value, the
new value, and the user's line the guard comes from. Slow, and run only
when a graph could not be reused.
PyTorch's counterpart is get_guard_fail_reason in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

import torch

from ..core.guard import Guard, TensorFacts
from ..core.source import Source, chain
from ..core.state import NEVER_ACTIVE, global_state
from .guard_namespace import Held, brief


@dataclass(frozen=True)
class Question:
    """A guard as Python conditions on x, its place, and on `others`."""

    guard: Guard
    others: tuple[Source, ...]
    conditions: str


@dataclass(frozen=True)
class Failure:
    """A guard that does not hold: `what` was `old`, is `new`."""

    guard: Guard
    what: str
    old: str
    new: str

    def __str__(self) -> str:
        line = f"{self.what} was {self.old}, is {self.new}"
        if self.guard.where is None:
            return line
        where = self.guard.where
        return f"{line}\n  relied on at {where}  {where.text}".rstrip()


@dataclass(frozen=True)
class Unreadable:
    """What reading a place gave when it raised `error`."""

    source: Source
    error: Exception

    def __str__(self) -> str:
        return f"gone ({type(self.error).__name__}: {self.error})"


def failures(questions: Iterable[Question], values: dict[str, object],
             L: tuple, F: object) -> Iterator[Failure]:
    """The failures, in order; nothing about what a failed place holds."""
    reader = Reader(values, L, F)
    told: set[Source | None] = set()
    for question in questions:
        guard = question.guard
        x, *ys = map(reader.read, (guard.source, *question.others))
        lost = next((v for v in (x, *ys) if type(v) is Unreadable), None)
        if lost is None:
            if not holds(question, values, x, ys):
                told.add(guard.source)
                yield from in_words(guard, x, ys)
        elif told.isdisjoint(chain(lost.source)):
            told.add(lost.source)
            yield Failure(guard, f"`{lost.source}`", "there", str(lost))


def losses(questions: Iterable[Question]) -> Iterator[Failure]:
    """The guards whose expected object has died."""
    for question in questions:
        held = question.guard.expected
        if isinstance(held, Held) and held.reference() is None:
            yield Failure(question.guard, f"`{question.guard.source}`",
                          repr(held), "deleted")


def holds(question: Question, values: dict[str, object], x: object,
          ys: list) -> bool:
    """Whether the guard holds, asked by itself; an exception means no."""
    named = {"x": x} | {f"y{number}": y for number, y in enumerate(ys)}
    try:
        return bool(eval(question.conditions, values, named))
    except Exception:
        return False


def costs(questions: Iterable[Question], values: dict[str, object],
          L: tuple, F: object) -> Iterator[float]:
    """Microseconds of each question, with its place read already."""
    reader = Reader(values, L, F)
    for question in questions:
        places = (question.guard.source, *question.others)
        x, *ys = map(reader.read, places)
        named = {"x": x} | {f"y{number}": y for number, y in enumerate(ys)}
        timer = timeit.Timer(question.conditions, globals=values | named)
        yield min(timer.repeat(repeat=5, number=20)) / 20 * 1e6


class Reader:
    """The values at sources in one call, each read once."""

    def __init__(self, values: dict[str, object], L: tuple, F: object):
        self.values, self.call = values, {"L": L, "F": F}
        self.known: dict[Source, object] = {}

    def read(self, source: Source | None) -> object:
        """The value, or Unreadable: of the deepest base that raised."""
        if source is None:
            return None
        if source not in self.known:
            base = self.read(source.base)
            if type(base) is Unreadable:
                return base
            try:
                value = eval(source.code(), self.values, self.call)
            except Exception as error:
                value = Unreadable(source, error)
            self.known[source] = value
        return self.known[source]


def in_words(guard: Guard, x: object, ys: list) -> Iterator[Failure]:
    """The failing guard in words: one Failure, or one for each fact."""
    match guard.kind:
        case "state":
            yield from state_changes(guard)
        case "tensor":
            yield from tensor_changes(guard, x)
        case kind:
            words = WORDS.get(kind, of_value)
            yield Failure(guard, *words(f"`{guard.source}`",
                                        guard.expected, x, ys))


def of_value(name: str, expected: object, x: object, _: list) -> tuple:
    """What was one thing and is another, which may look like the first."""
    old, new = brief(expected), brief(x)
    return name, old, f"another: {new}" if new == old else new


#: How each other kind is told: what it is about, the old, the new.
WORDS: dict[str, Callable[[str, object, object, list], tuple]] = {
    "type": lambda name, kind, x, _: (
        f"type of {name}", kind.__qualname__, "another " * (
            kind.__qualname__ == type(x).__qualname__)
        + type(x).__qualname__),
    "length": lambda name, length, x, _: (
        f"length of {name}", str(length), brief(attempt(len, x))),
    "keys": lambda name, keys, x, _: (
        f"keys of {name}", brief(keys), brief(attempt(tuple, x))),
    "has": lambda name, wanted, *_: (
        f"attribute {wanted[0]!r} of {name}", *presence(wanted[1])),
    "contains": lambda name, wanted, *_: (
        f"key {wanted[0]!r} in {name}", *presence(wanted[1])),
    "lacks": lambda name, keys, x, _: (
        f"keys of {name}", "without " + brief(found := tuple(
            key for key in keys if key in x)), f"with {brief(found)}"),
    "same": lambda name, other, *_: (
        name, f"the object at `{other}`", f"another object than `{other}`"),
    "different": lambda name, other, *_: (
        name, f"another object than `{other}`", f"the object at `{other}`"),
    "relation": lambda _, relation, x, ys: (
        f"`{relation}`", "true", "false: " + ", ".join(
            f"{source} is {y}" for source, y
            in zip(relation.sources, ys))),
    "apart": lambda _, places, *more: (
        f"memory of {', '.join(f'`{place}`' for place in places)}",
        "separate", "shared")}


def presence(there: bool) -> tuple[str, str]:
    """Old and new of what was there and is gone, or the reverse."""
    return ("there", "gone") if there else ("absent", "there")


def attempt(read: Callable[[object], object], x: object) -> object:
    """read(x), or the exception it raises."""
    try:
        return read(x)
    except Exception as error:
        return error


def tensor_changes(guard: Guard, x: object) -> Iterator[Failure]:
    """One Failure for each fact about the tensor that has changed."""
    for saying, old, new in tensor_facts(guard.expected, x):
        if repr(old) != repr(new):
            yield Failure(guard, f"{saying} `{guard.source}`", str(old),
                          str(new))


def tensor_facts(facts: TensorFacts, x: object) -> Iterator[tuple]:
    """How each fact is said, its old value, and its value in x."""
    kind = type(x)
    yield "type of", facts.type.__qualname__, kind.__qualname__
    if kind is not facts.type:
        return
    yield "dtype of", facts.dtype, x.dtype
    yield "device of", facts.device, x.device
    yield "requires_grad of", facts.requires_grad, x.requires_grad
    yield "layout of", torch.strided, x.layout
    yield "negative bit of", False, x.is_neg()
    yield "conjugate bit of", False, x.is_conj()
    old, new = tuple(facts.shape), tuple(x.shape)
    if len(old) != len(new):
        yield "shape of", old, new
    for dim, sizes in enumerate(zip(old, new)):
        if sizes[0] is not None:
            yield f"size of dimension {dim} of", *sizes
    if old == new:
        yield "strides of", facts.stride, attempt(torch.Tensor.stride, x)


def state_changes(guard: Guard) -> Iterator[Failure]:
    """One Failure for each global switch that stands elsewhere now."""
    now = global_state()
    for switch in fields(now):
        old, new = (getattr(state, switch.name)
                    for state in (guard.expected, now))
        if old != new:
            yield Failure(guard, SAYINGS[switch.name], shown(old),
                          shown(new))
    for mode, active in NEVER_ACTIVE.items():
        if active():
            yield Failure(guard, mode, "inactive", "active")


#: How a person calls the switches of GlobalState.
SAYINGS = {
    "grad_enabled": "gradient mode", "inference": "inference mode",
    "autocast": "autocast", "default_dtype": "the default dtype",
    "deterministic": "use_deterministic_algorithms"}


def shown(setting: object) -> str:
    """A switch as `on` or `off`, autocast by device, a dtype as it is."""
    match setting:
        case bool():
            return "on" if setting else "off"
        case tuple():
            return ", ".join(f"{kind} to {dtype}" for kind, dtype in setting
                             ) or "off"
    return str(setting)
