"""Each kind of guard as Python conditions on a name.

In: a guard and the expression that holds the guarded value. Out: the
conditions as text, cheapest first. Conditions never call a method of a
value whose type has not been settled before, and never trust __eq__.
PyTorch's counterpart is GuardBuilder in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import enum
import itertools
import math
import sys
from collections.abc import Callable, Sequence

import torch

from ..core.errors import Unsupported
from ..core.extension import TENSORS
from ..core.guard import GlobalState, Guard
from ..core.state import (NEVER_ACTIVE, SWITCHES, any_autocast, autocast,
                          modes)
from . import bulk
from .constants import fingerprint, plain, single
from .held import Names, held_weakly
from .native import questions


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
    way = questions() if guards[0].expected.type in TENSORS else bulk
    facts = [way.described(guard.expected) for guard in guards]
    return (f"{names.constant('tensors', way.tensors)}({each}, "
            f"{names.listed('facts', facts)})")


def on_length(names: Names, guard: Guard, x: str) -> list[str]:
    """x has that many items."""
    return [f"len({x}) == {names.literal('length', guard.expected)}"]


#: So many keys are compared with those in a list.
LONG = 32


def on_keys(names: Names, guard: Guard, x: str) -> list[str]:
    """Iterating over x gives these constants in this order."""
    keys = guard.expected
    if not keys:
        return [f"(*{x},) == ()"]
    if len(keys) < LONG and all(type(key) is str for key in keys):
        return [ask(names, "exact", f"[*{x}]", "str"),
                f"(*{x},) == {names.literal('keys', keys)}"]
    wish = f"keys_of_{guard.source}"
    if all(map(comparable, keys)):
        return [ask(names, "equal", x, names.listed(wish, [*keys]))]
    like = names.constant("fingerprint", fingerprint)
    expected = names.constant(wish, fingerprint(keys))
    return [f"{like}((*{x},)) == {expected}"]


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
    conditions = [ask(names, "answers",
                      names.listed("switches", list(wanted)),
                      names.listed("settings", list(wanted.values())))]
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


def likeness(guard: Guard) -> tuple:
    """Equal for guards that can be asked about in one go."""
    expected = guard.expected
    match guard.kind:
        case "tensor":
            return "tensor", expected.type in TENSORS
        case "equal" | "is" if comparable(expected) and (
                guard.kind == "equal" or single(expected)):
            return ("equal",)
        case "is" if held_weakly(expected):
            return ("is",)
    try:
        return guard.kind, fingerprint(expected)
    except Unsupported:
        return guard.kind, id(expected)


def comparable(value: object) -> bool:
    """Whether `equal` says whether another value is the same."""
    if isinstance(value, type):
        return type(value).__eq__ is type.__eq__
    return plain(value) or type(value) is float or (
        single(value) and not isinstance(value, enum.Enum))


def in_bulk(names: Names, guards: Sequence[Guard], each: str) -> str:
    """The condition that guards which are alike hold on a list."""
    guard, expected = guards[0], [guard.expected for guard in guards]
    match likeness(guard):
        case ("tensor", _):
            return on_tensors(names, guards, each)
        case ("equal",):
            values = names.listed(f"values_of_{each}", expected)
            return ask(names, "equal", each, values)
        case ("is",):
            addresses = names.listed(f"ids_of_{each}",
                                     [names.hold(x) for x in expected])
            return f"[*map(id, {each})] == {addresses}"
        case ("type", _):
            kind = names.constant(expected[0].__name__, expected[0])
            return ask(names, "exact", each, kind)
        case ("length", _):
            return ask(names, "sized", each, repr(expected[0]))
        case ("lacks", _):
            keys = names.literal("keys", expected[0])
            return ask(names, "lacking", each, keys)
        case ("contains", _):
            key, there = expected[0]
            key = names.literal("key", key)
            return ask(names, "holding", each, key, repr(there))
    conditions = " and ".join(conditions_of(names, guard, "one", ()))
    return f"all([{conditions} for one in {each}])"


def ask(names: Names, question: str, *arguments: str) -> str:
    """The call of one of the questions about lists."""
    function = getattr(questions(), question)
    return f"{names.constant(question, function)}({', '.join(arguments)})"


def counted() -> bool:
    """Whether changes are counted: all are in CPython before 3.13."""
    return questions() is not bulk and sys.version_info < (3, 13)
