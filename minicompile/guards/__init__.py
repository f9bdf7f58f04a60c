"""Stage 2, guards: all facts a graph relies on, as one function.

In: guards, the named constants their sources mention, and the sources of
the graph's inputs. Out: a Check, whose function gives those inputs if the
graph may be reused. Each kind of guard is a Python condition on `{0}`, the
value at its place. A condition calls no method of a value before its type
is settled. It never trusts __eq__: 1, 1.0 and True differ, 0.0 and -0.0
differ, a NaN is itself. A graph must not keep a dead model's memory, so
objects are held weakly and compared by id. When such an object dies, all
names are cleared, and the graph is never used again: no later object can
pass for it at its address.
PyTorch has GuardBuilder in torch/_dynamo/guards.py, and builds a tree in
C++: torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import enum
import math
import os
import struct
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import is_

import torch

from ..core import load
from ..core.errors import Unsupported
from ..core.guard import (CONSTANTS, IDENTITIES, Guard, Identifiers,
                          Source, TensorFacts, chain, is_plain, printable)
from ..core.sizes import SCALARS
from ..core.state import NEVER_ACTIVE, SWITCHES

# The condition of one guard

#: Classes and modules live as long as the program; hold them as they are.
LASTING = (type, types.ModuleType, types.BuiltinFunctionType)

#: A constant with a longer text gets a name.
LONGEST_TEXT = 300


class Held(weakref.ref):
    """An object that a guard expects, and that may die."""


class Names(Identifiers):
    """The namespace of one check, and functions that it calls."""

    def __init__(self, values: dict[str, object]):
        super().__init__(values, ("L", "F", "check", "key", "None"))
        self.functions: list[str] = []
        self.mourners: list[Callable[[], None]] = []

    def literal(self, wish: str, value: object) -> str:
        """The value as Python text, in a format; else a name for it."""
        if printable(value) and len(text := repr(value)) <= LONGEST_TEXT:
            return text.replace("{", "{{").replace("}", "}}")
        return self.name(value.__name__ if issubclass(
            type(value), type) else wish, value)

    def hold(self, value: object) -> object:
        """`value`, or a reference to it; all is cleared when it dies."""
        if type(value) is Held:  # by another check
            value = value()
        if isinstance(value, LASTING) or not type(value).__weakrefoffset__:
            return value
        return Held(value, self.forget)

    def forget(self, _: weakref.ref) -> None:
        """Clear the namespace, and call the functions in `mourners`."""
        self.values.clear()
        for tell in self.mourners:
            tell()


#: There is one object of each value of these, so that `is` tells.
SINGLETONS = (bool, type(None), type(...), torch.dtype, torch.layout,
          torch.memory_format, enum.Enum)

bits = struct.Struct("d").pack

#: The value that is compared for a constant, by its class: most often
#: itself, where equality tells all there is to tell.
PARTS: dict[type, Callable] = {
    **dict.fromkeys(CONSTANTS, lambda value: value),
    **dict.fromkeys(SCALARS, lambda value: value.tobytes()),
    float: bits, complex: lambda z: (bits(z.real), bits(z.imag)),
    **dict.fromkeys((slice, range), lambda s: fingerprint(
        (s.start, s.stop, s.step)))}


def fingerprint(value: object) -> object:
    """Something hashable, equal only for indistinguishable values."""
    kind = type(value)
    if kind in PARTS:
        return kind, PARTS[kind](value)
    if issubclass(kind, tuple) or kind in (frozenset, set):
        return kind, tuple(map(fingerprint, value))
    if issubclass(kind, IDENTITIES):
        return kind, id(value)
    raise Unsupported("guard", f"a {kind.__name__} is not a constant that "
                      "a guard can compare by value")


def on_identity(names: Names, guard: Guard) -> str:
    """The very object, compared by id where it is held weakly."""
    value, wish = guard.expected, str(guard.source)
    if type(value) is Held:
        return f"id({{0}}) == {names.name(f'id_{wish}', id(value()))}"
    if isinstance(value, SINGLETONS):
        return f"{{0}} is {names.literal(wish, value)}"
    return f"{{0}} is {names.name(f'the_{wish}', value)}"


def on_constant(names: Names, guard: Guard) -> str:
    """A constant that nothing can tell from the expected one."""
    value, kind = guard.expected, type(guard.expected)
    if isinstance(value, SINGLETONS):
        return on_identity(names, guard)
    if kind in (int, str, bytes, torch.device) or (
            kind is float and math.isfinite(value) and value):
        return (f"type({{0}}) is {names.literal('', kind)} and "
                f"{{0}} == {names.literal('value', value)}")
    return (f"{names.name('fingerprint', fingerprint)}({{0}}) == "
            f"{names.name(f'is_{guard.source}', fingerprint(value))}")


def on_keys(names: Names, guard: Guard) -> str:
    """Iterating over it gives these constants in this order."""
    keys = guard.expected
    if not keys:
        return "(*{0},) == ()"
    if all(type(key) is str for key in keys):
        return ("[type(key) is str and key for key in {0}] == "
                f"{names.literal('keys', [*keys])}")
    objects = names.name("objects", keys)
    return (f"(len({{0}}) == {len(keys)} and all(map("
            f"{names.name('is_', is_)}, {{0}}, {objects})) or "
            f"{names.name('fingerprint', fingerprint)}((*{{0}},)) == "
            f"{names.name('keys', fingerprint(keys))})")


def agrees(x: object, facts: TensorFacts) -> bool:
    """Whether x is a tensor of these facts, and plain."""
    if type(x) is not facts.type or not is_plain(x):
        return False
    sizes = zip((*x.shape, *x.stride()), (*facts.shape, *facts.stride))
    return (x.dtype, x.device, x.requires_grad, x.dim()) == (
        facts.dtype, facts.device, facts.requires_grad, len(facts.shape)
        ) and all(wanted in (size, None) for size, wanted in sizes)


def disjoint_memory(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors share memory."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    spans = sorted((storage.data_ptr(), storage.nbytes())
                   for storage in storages if storage.nbytes())
    return all(start + size <= following for (start, size), (following, _)
               in pairwise(spans))


def on_state(names: Names, guard: Guard) -> str:
    """Torch's switches stand as they did, and no mode is active."""
    asked = [*zip(SWITCHES.values(), guard.expected)]
    asked += [(active, False) for active in NEVER_ACTIVE.values()]
    return f" and\n{' ' * 12}".join(
        f"{names.name(read.__name__, read)}() == "
        f"{names.literal('setting', setting)}" for read, setting in asked)


#: How each kind is asked about, in the order in which kinds are asked:
#: `{0}` is what is expected, and `{{0}}` the value at the place.
KINDS: dict[str, str | Callable[[Names, Guard], str]] = {
    "tensor": lambda names, guard: f"{names.name('agrees', agrees)}("
              f"{{0}}, {names.name(str(guard.expected), guard.expected)})",
    "equal": on_constant,
    "type": "type({{0}}) is {0}",
    "length": "len({{0}}) == {0}",
    "keys": on_keys,
    "contains": "{0} in {{0}}",
    "lacks": "{{0}}.keys().isdisjoint({0})",
    "is": on_identity, "state": on_state,
    "relation": lambda names, guard: guard.expected}

#: The names that relations use.
SAID = {"math": math, "torch": torch, "disjoint_memory": disjoint_memory}


def condition(names: Names, guard: Guard) -> str:
    """The condition of any guard on {0}, {1}, … at its places."""
    write = KINDS[guard.kind]
    return write(names, guard) if callable(write) else write.format(
        names.literal(guard.kind, guard.expected))

# One function

#: Functions that put one guard in place of many: new guards and inputs.
MERGED: list[Callable[[Names, list[Guard], list[Source]],
                      tuple[list[Guard], list[Source]]]] = []


@dataclass(frozen=True)
class Check:
    """Whether a graph may be reused, as a function of a call.

    `function(L, F)` lists the graph's inputs in this call, or gives None
    if a guard fails. `source` is its text.
    """

    source: str
    function: Callable[[tuple, object], list | None] = field(repr=False)
    guards: tuple[Guard, ...] = field(repr=False)
    names: Names = field(repr=False)

    def __call__(self, L: tuple, F: object) -> bool:
        return self.function(L, F) is not None

    @property
    def alive(self) -> bool:
        """False once an object has died that some guard expects."""
        return bool(self.names.values)

    def __str__(self) -> str:
        return self.source


def build_check(guards: Iterable[Guard], constants: dict[str, object],
                inputs: Sequence[Source] = ()) -> Check:
    """The check of `guards`, whose sources may read `constants`."""
    names = Names({**SAID, **constants})
    unique = {guard.key(): guard for guard in guards}.values()
    guards = [replace(guard, expected=names.hold(guard.expected))
              if guard.kind == "is" else guard for guard in unique]
    asked = guards
    for merge in MERGED:
        asked, inputs = merge(names, asked, [*inputs])
    lines = body(names, asked, inputs, {})
    source = "".join([*names.functions, "def check(L, F):\n    try:\n",
                      *(f"        {line}\n" for line in lines),
                      "    except Exception:\n        return None\n"])
    exec(compile(source, "<guards>", "exec"), names.values)
    return Check(source, names.values.pop("check"), tuple(guards), names)


def body(names: Names, guards: Iterable[Guard], inputs: Sequence[Source],
         variables: dict[Source, str]) -> list[str]:
    """Lines that return None unless all guards hold, then the inputs.

    A place that is mentioned again is held by one of the `variables`.
    """
    asked = [(guard, condition(names, guard))
             for guard in sorted(guards, key=asking_order)]
    mentions: Counter[Source] = Counter()
    for source in (*inputs, *(
            place for guard, text in asked
            for at, place in enumerate(guard.places)
            for _ in range(text.count(f"{{{at}}}")))):
        for place in chain(source):
            mentions[place] += 1
            if mentions[place] > 1:
                break
    lines, said = [], None

    def read(source: Source) -> str:
        if source not in variables:
            code = source.form(read)
            if mentions[source] < 2 or code.isidentifier():
                return code
            variables[source] = names.fresh(
                getattr(source, "symbol", str(source)))
            lines.append(f"{variables[source]} = {code}")
        return variables[source]

    for guard, text in asked:
        if guard.where not in (None, said):
            said = guard.where
            remark = (f"# {os.path.basename(said.file)}:{said.line}  "
                      f"{said.text}")
            lines.append("".join(filter(str.isprintable, remark))[:68])
        text = text.format(*map(read, guard.places))
        lines.append(f"if not ({text}): return None")
    each = ", ".join(map(read, inputs))  # this may add lines
    return [*lines, f"return [{each}]"]


def asking_order(guard: Guard) -> tuple[float, int]:
    """When to ask: level by level, then by kind; comparisons last."""
    depth = max([len([*chain(place)]) for place in guard.places],
                default=1.5)
    return (math.inf if guard.kind == "relation" else depth,
            [*KINDS].index(guard.kind))


load(__name__, __path__)
