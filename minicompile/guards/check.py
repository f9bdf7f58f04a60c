"""All guards of a graph as one generated function.

In: guards, the named constants their sources mention, and the sources of
the graph's inputs. Out: a Check, whose function gives those inputs if the
graph may be reused. Each place is read once, after what it is read through
has been settled; what differs most often between calls is asked first; an
exception means no.
PyTorch builds a tree in C++ instead: torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..core.guard import Guard
from ..core.source import Source
from .predicates import conditions_of
from .explain import Failure, Question, costs, failures, losses
from .guard_namespace import Names, kept
from .check_codegen import others, write

#: Names that generated code uses for something else.
RESERVED = ("L", "F", "check", "type", "id", "len", "map", "str", "all",
            "hasattr", "math", "torch", "min", "max", "abs", "float",
            "pow", "round", "sum", "key")


@dataclass(frozen=True)
class Check:
    """Whether a graph may be reused, as a function of a call.

    `function(L, F)` lists the graph's inputs in this call, or gives None
    if a guard fails; `explain` says which. `source` is its text.
    """

    source: str
    function: Callable[[tuple, object], list | None] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)
    names: Names = field(repr=False)

    def __call__(self, L: tuple, F: object) -> bool:
        return self.function(L, F) is not None

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What is asked; objects are held no longer than they live."""
        return tuple(question.guard for question in self.questions)

    def when_dead(self, forget: Callable[[], None]) -> None:
        """Have `forget()` called once an object has died."""
        self.names.mourners.append(forget)

    @property
    def alive(self) -> bool:
        """False once an object has died that some guard expects."""
        return bool(self.names.values)

    def costs(self, L: tuple, F: object) -> tuple[float, ...]:
        """Microseconds of each guard in this call, asked by itself."""
        return tuple(costs(self.questions, self.names.values, L, F))

    def explain(self, L: tuple, F: object) -> list[Failure]:
        """Every guard that does not hold, with its old and new value."""
        if not self.alive:
            return list(losses(self.questions))
        return list(failures(self.questions, self.names.values, L, F))

    def __str__(self) -> str:
        return self.source


def build_check(guards: Iterable[Guard], constants: dict[str, object],
                inputs: Sequence[Source] = ()) -> Check:
    """The check of `guards`, whose sources may read `constants`."""
    names = Names(dict(constants), set(RESERVED))
    guards = unique(guards)
    source = write(names, guards, inputs)
    exec(compile(source, "<guards>", "exec"), names.values)
    function = names.values.pop("check")
    questions = tuple(question(names, guard) for guard in guards)
    return Check(source, function, questions, names)


def unique(guards: Iterable[Guard]) -> list[Guard]:
    """The first of each group of guards that say the same."""
    found: dict[tuple, Guard] = {}
    for guard in guards:
        found.setdefault(guard.key(), guard)
    return list(found.values())


def question(names: Names, guard: Guard) -> Question:
    """The guard by itself, as conditions on x, and on y0, y1, …"""
    ys = tuple(f"y{number}" for number, _ in enumerate(others(guard)))
    conditions = " and ".join(conditions_of(names, guard, "x", ys))
    if guard.kind == "is":
        guard = replace(guard, expected=kept(guard.expected))
    return Question(guard, others(guard), conditions)
