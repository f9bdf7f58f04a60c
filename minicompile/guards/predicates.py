"""Each kind of guard as Python conditions on a name.

In: a guard and the expression that holds the guarded value. Out: the
conditions as text, cheapest first. Conditions never call a method of a
value whose type has not been settled before, and never trust __eq__.
PyTorch's counterpart is GuardBuilder in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from ..core.extension import TENSORS
from ..core.guard import GlobalState, Guard, TensorFacts
from ..core.state import (NEVER_ACTIVE, SWITCHES, any_autocast, autocast,
                          modes)
from .constants import fingerprint, plain, single
from .guard_namespace import Names, held_weakly


class Questions(NamedTuple):
    """What a check asks about many objects in one call."""

    answers: Callable[[list[Callable], list], bool]
    same: Callable[[list, list], bool]
    tensors: Callable[[list, list], bool]
    described: Callable[[TensorFacts], object]


#: What gives a faster form of the questions, or None.
FASTER: list[Callable[[], Questions | None]] = []


def questions() -> Questions:
    """The questions as fast as they can be asked on this machine."""
    return next(filter(None, (form() for form in FASTER)), PYTHON)


#: Each object with what is expected of it.
pairs = partial(zip, strict=True)


def answers(functions: list[Callable], expected: list) -> bool:
    """Whether each function returns the very object expected."""
    return all(ask() is y for ask, y in pairs(functions, expected))


def same(objects: list, expected: list) -> bool:
    """Whether a list or tuple holds the very objects expected."""
    return type(objects) in (list, tuple) and (
        len(objects) == len(expected)
        and all(map(operator.is_, objects, expected)))


def tensors(objects: list, expected: list) -> bool:
    """Whether each is a tensor of class and metadata as expected."""
    return all(type(x) is y[0] and metadata(x) == y
               for x, y in pairs(objects, expected))


def metadata(x: torch.Tensor) -> tuple:
    """What decides how a kernel reads the tensor, with its lazy bits."""
    return (type(x), x.dtype, x.device, x.layout, x.is_neg(), x.is_conj(),
            x.requires_grad, x.shape, x.stride())


def described(facts: TensorFacts) -> tuple:
    """The metadata of a tensor of which these are the facts."""
    sizes = (tuple(ANY if n is None else n for n in numbers)
             for numbers in (facts.shape, facts.stride))
    return (facts.type, facts.dtype, facts.device, torch.strided, False,
            False, facts.requires_grad, *sizes)


class Any:
    """What a symbolic size is expected to be: it equals every number."""

    def __eq__(self, other: object) -> bool:
        return True


ANY = Any()
PYTHON = Questions(answers, same, tensors, described)


def on_type(names: Names, guard: Guard, x: str) -> list[str]:
    """The class of x, exactly."""
    kind = guard.expected
    return [f"type({x}) is {names.constant(kind.__name__, kind)}"]


def on_identity(names: Names, guard: Guard, x: str) -> list[str]:
    """x is that very object, compared by id where it is held weakly."""
    value = guard.expected
    if single(value):
        return [f"{x} is {names.literal('value', value)}"]
    wish = str(guard.source)
    if held_weakly(value):
        return [f"id({x}) == {names.identity(wish, value)}"]
    return [f"{x} is {names.constant(f'the_{wish}', value)}"]


def on_constant(names: Names, guard: Guard, x: str) -> list[str]:
    """x is a constant that nothing can tell from the expected one."""
    value = guard.expected
    if single(value):
        return [f"{x} is {names.literal('value', value)}"]
    if plain(value):
        kind = names.constant(type(value).__name__, type(value))
        wanted = names.literal("value", value)
        return [f"type({x}) is {kind}", f"{x} == {wanted}"]
    like = names.constant("fingerprint", fingerprint)
    expected = names.constant("fingerprint_of_" + str(guard.source),
                              fingerprint(value))
    return [f"{like}({x}) == {expected}"]


def on_tensor(names: Names, guard: Guard, x: str) -> list[str]:
    """x has the metadata the graph was made for, and no lazy bits."""
    return [on_tensors(names, [guard], f"[{x}]")]


def on_tensors(names: Names, guards: Sequence[Guard], each: str) -> str:
    """Each has its guard's class and metadata."""
    way = questions() if guards[0].expected.type in TENSORS else PYTHON
    facts = [way.described(guard.expected) for guard in guards]
    return (f"{names.constant('tensors', way.tensors)}({each}, "
            f"{names.listed('facts', facts)})")


def on_length(names: Names, guard: Guard, x: str) -> list[str]:
    """x has that many items."""
    return [f"len({x}) == {names.literal('length', guard.expected)}"]


#: So many keys are first compared as objects.
LONG = 32


def on_keys(names: Names, guard: Guard, x: str) -> list[str]:
    """Iterating over x gives these constants in this order."""
    keys, wish = guard.expected, f"keys_of_{guard.source}"
    if not keys:
        return [f"(*{x},) == ()"]
    if len(keys) < LONG and all(type(key) is str for key in keys):
        found = f"[type(key) is str and key for key in {x}]"
        return [f"{found} == {names.literal(wish, [*keys])}"]
    same = names.constant("same", questions().same)
    objects = names.listed(wish, [*keys])
    if all(isinstance(key, type) for key in keys):
        found = f"[*map(id, {x})]"
        expected = names.listed("ids", [names.hold(key) for key in keys])
    else:
        found = f"{names.constant('fingerprint', fingerprint)}((*{x},))"
        expected = names.listed("fingerprints", fingerprint(keys))
    return [f"({same}({x}, {objects}) or {found} == {expected})"]


def on_attribute(names: Names, guard: Guard, x: str) -> list[str]:
    """x has, or has not, an attribute of that name."""
    attribute, there = guard.expected
    name = names.literal("name", attribute)
    return [f"{'' if there else 'not '}hasattr({x}, {name})"]


def on_member(names: Names, guard: Guard, x: str) -> list[str]:
    """The key is, or is not, in the container."""
    member, there = guard.expected
    key = names.literal("key", member)
    return [f"{key} {'' if there else 'not '}in {x}"]


def on_absence(names: Names, guard: Guard, x: str) -> list[str]:
    """The dict has none of the keys."""
    keys = names.literal("keys", guard.expected)
    return [f"{x}.keys().isdisjoint({keys})"]


def on_alias(names: Names, guard: Guard, x: str, ys: tuple) -> list[str]:
    """Places hold one object, or two, or memory of their own."""
    match guard.kind:
        case "same":
            return [f"{x} is {ys[0]}"]
        case "different":
            return [f"{x} is not {ys[0]}"]
    return [f"{names.constant('apart', apart)}({', '.join(ys)})"]


def apart(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors share memory."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    spans = sorted((storage.data_ptr(), storage.nbytes())
                   for storage in storages if storage.nbytes())
    return all(start + size <= following for (start, size), (following, _)
               in itertools.pairwise(spans))


def on_relation(names: Names, guard: Guard, ys: tuple) -> list[str]:
    """The sizes are to each other as the graph needs them."""
    for module in (math, torch):
        names.values.setdefault(module.__name__, module)
    return [guard.expected.text.format(*ys)]


def on_state(names: Names, guard: Guard) -> list[str]:
    """Torch's switches stand as they did, and no mode is active."""
    state: GlobalState = guard.expected
    wanted = {**{read: getattr(state, switch)
                 for switch, read in SWITCHES.items()},
              **dict.fromkeys(NEVER_ACTIVE.values(), False),
              modes: 0, any_autocast: bool(state.autocast)}
    conditions = [f"{names.constant('answers', questions().answers)}("
                  f"{names.listed('switches', list(wanted))}, "
                  f"{names.listed('settings', list(wanted.values()))})"]
    if state.autocast:
        current = names.constant("autocast", autocast)
        wanted = names.literal("autocast", state.autocast)
        conditions.append(f"{current}() == {wanted}")
    return conditions


#: How each kind of guard is written, on the value x of its source.
CONDITIONS: dict[str, Callable[[Names, Guard, str], list[str]]] = {
    "type": on_type, "is": on_identity, "equal": on_constant,
    "tensor": on_tensor, "length": on_length, "keys": on_keys,
    "has": on_attribute, "contains": on_member, "lacks": on_absence}


def conditions_of(names: Names, guard: Guard, x: str, ys: tuple
                  ) -> list[str]:
    """The conditions of any guard on x, and on ys where it compares."""
    match guard.kind:
        case "state":
            return on_state(names, guard)
        case "same" | "different" | "apart":
            return on_alias(names, guard, x, ys)
        case "relation":
            return on_relation(names, guard, ys)
        case kind:
            return CONDITIONS[kind](names, guard, x)
