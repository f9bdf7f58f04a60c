"""Each kind of guard as a Python condition, and the names it uses.

In: a guard. Out: a condition on `{0}`, the value at its place, as text. A
condition never calls a method of a value whose type has not been settled
before, and never trusts __eq__: 1, 1.0 and True differ, 0.0 and -0.0
differ, a NaN is itself. A graph must not keep a dead model's memory, so
objects are held weakly and compared by id. Once one has died its graph can
never be reused, and all names are cleared: no later object can pass for it
at its address.
PyTorch's counterpart is GuardBuilder in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import builtins
import enum
import itertools
import keyword
import math
import re
import struct
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..core.errors import Unsupported
from ..core.guard import Guard, TensorFacts
from ..core.scalars import SCALARS
from ..core.source import printable
from ..core.state import NEVER_ACTIVE, SWITCHES

#: Classes and modules live as long as the program; hold them as they are.
LASTING = (type, types.ModuleType, types.BuiltinFunctionType)

#: What is longer as text gets a name.
LONGEST_TEXT = 300

#: Names that generated code uses for something else.
RESERVED = {*dir(builtins), "L", "F", "check", "key"}


class Held(weakref.ref):
    """What a guard that is kept expects: an object that may die."""


@dataclass
class Names:
    """The namespace of one check, and functions that it calls."""

    values: dict[str, object]
    functions: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=RESERVED.copy)
    known: dict[int, str] = field(default_factory=dict)
    mourners: list[Callable[[], None]] = field(default_factory=list)

    def fresh(self, wish: str) -> str:
        """An identifier like `wish` that nothing else uses."""
        stem = re.sub(r"[\W_]+", "_", wish).strip("_") or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"_{stem}"
        numbered = (f"{stem}_{count}" for count in itertools.count(2))
        name = next(each for each in itertools.chain([stem], numbered)
                    if each not in self.taken and each not in self.values)
        self.taken.add(name)
        return name

    def name(self, wish: str, value: object) -> str:
        """A name whose value is `value`, which the check keeps alive."""
        if id(value) not in self.known:
            self.known[id(value)] = name = self.fresh(wish)
            self.values[name] = value
        return self.known[id(value)]

    def literal(self, wish: str, value: object) -> str:
        """The value as Python text, in a format; else a name for it."""
        if printable(value) and len(text := repr(value)) <= LONGEST_TEXT:
            return text.replace("{", "{{").replace("}", "}}")
        if issubclass(type(value), type):
            wish = value.__name__
            if vars(builtins).get(wish) is value:
                return wish
        return self.name(wish, value)

    def hold(self, value: object) -> object:
        """`value`, or a reference to it; all is cleared when it dies."""
        if type(value) is Held:  # by another check
            value = value()
        if isinstance(value, LASTING) or not type(value).__weakrefoffset__:
            return value
        return Held(value, self.forget)

    def forget(self, _: weakref.ref) -> None:
        """Clear the namespace, and tell who wants to know."""
        self.values.clear()
        for tell in self.mourners:
            tell()


#: Equality of these tells all there is to tell.
EXACT = (int, bool, str, bytes, type(None), type(...), type(NotImplemented),
         torch.dtype, torch.device, torch.layout, torch.memory_format,
         range)

#: These are compared as objects: there is one of each.
UNIQUE = (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType,
          types.ModuleType, types.CodeType)

#: There is one object of each value of these, so that `is` tells.
SINGLETONS = (bool, type(None), type(...), torch.dtype, torch.layout,
          torch.memory_format, enum.Enum)

bits = struct.Struct("d").pack

#: What to compare of constants.
PARTS: dict[type, Callable] = {
    **dict.fromkeys(EXACT, lambda value: value),
    **dict.fromkeys(SCALARS, lambda value: value.tobytes()),
    float: bits, complex: lambda z: (bits(z.real), bits(z.imag)),
    slice: lambda s: fingerprint((s.start, s.stop, s.step))}


def fingerprint(value: object) -> object:
    """Something hashable, equal only for indistinguishable values."""
    kind = type(value)
    if kind in PARTS:
        return kind, PARTS[kind](value)
    if issubclass(kind, tuple) or kind in (frozenset, set):
        return kind, tuple(map(fingerprint, value))
    if issubclass(kind, UNIQUE):
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
    ids = names.name("ids", [*map(id, keys)])
    return (f"([*map(id, {{0}})] == {ids} or "
            f"{names.name('fingerprint', fingerprint)}((*{{0}},)) == "
            f"{names.name('keys', fingerprint(keys))})")


def agrees(x: object, facts: TensorFacts) -> bool:
    """Whether x is a tensor of these facts, and has no lazy bits."""
    if type(x) is not facts.type or x.layout is not torch.strided or (
            x.is_neg() or x.is_conj()):
        return False
    sizes = zip((*x.shape, *x.stride()), (*facts.shape, *facts.stride))
    return (x.dtype, x.device, x.requires_grad, x.dim()) == (
        facts.dtype, facts.device, facts.requires_grad, len(facts.shape)
        ) and all(wanted in (size, None) for size, wanted in sizes)


def apart(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors share memory."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    spans = sorted((storage.data_ptr(), storage.nbytes())
                   for storage in storages if storage.nbytes())
    return all(start + size <= following for (start, size), (following, _)
               in itertools.pairwise(spans))


def on_apart(names: Names, guard: Guard, ask: Callable = apart) -> str:
    """No two of the tensors at its places share memory."""
    places = (f"{{{at}}}" for at, _ in enumerate(guard.places))
    return f"{names.name('apart', ask)}({', '.join(places)})"


def on_state(names: Names, guard: Guard) -> str:
    """Torch's switches stand as they did, and no mode is active."""
    asked = [(read, getattr(guard.expected, switch))
             for switch, read in SWITCHES.items()]
    asked += [(active, False) for active in NEVER_ACTIVE.values()]
    return " and ".join(f"{names.name(read.__name__, read)}() == "
                        f"{names.literal('setting', setting)}"
                        for read, setting in asked)


#: How each kind is asked about, in the order in which kinds are asked:
#: `{0}` is what is expected, and `{{0}}` the value at the place.
KINDS: dict[str, str | Callable[[Names, Guard], str]] = {
    "tensor": lambda names, guard: f"{names.name('agrees', agrees)}("
              f"{{0}}, {names.name(str(guard.expected), guard.expected)})",
    "equal": on_constant,
    "type": "type({{0}}) is {0}",
    "length": "len({{0}}) == {0}",
    "keys": on_keys,
    "contains": "({0} in {{0}}) is {1}",
    "lacks": "{{0}}.keys().isdisjoint({0})",
    "has": "hasattr({{0}}, {0}) is {1}",
    "is": on_identity, "state": on_state,
    "same": lambda names, guard: "{0} is {1}",
    "different": lambda names, guard: "{0} is not {1}",
    "apart": on_apart,
    "relation": lambda names, guard: guard.expected.text}


def condition(names: Names, guard: Guard) -> str:
    """The condition of any guard on {0}, {1}, … at its places."""
    write, parts = KINDS[guard.kind], [guard.expected]
    if not isinstance(write, str):
        return write(names, guard)
    if guard.kind in ("has", "contains"):
        parts = guard.expected
    return write.format(*(names.literal(guard.kind, part)
                          for part in parts))
