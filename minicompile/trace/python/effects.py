"""Writes to objects from outside, which wait until the graph has run.

In: what a trace does to attributes, dicts, lists, deques and sets that
existed before. Out: the calls by which `finish` does it for real, in
eager's order. A dict or an object is compared, key by key, with what was
read from it; a list, a deque or a set is copied when it is first read.
`owner.name = value` follows a `__setattr__` or a descriptor written in
Python; an object that the trace made is written to as it is. Without this
file, a write breaks the graph. PyTorch's is torch/_dynamo/side_effects.py.
"""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from ...core.guard import (ABSENT, CONSTANTS, Attribute, Constant, Item,
                           Source, Stored, is_constant, printable)
from .. import attributes
from ..attributes import SLOTS
from ..frame import OPCODES
from ..reasons import unsupported
from ..recorder import NUMBERS, settled
from ..rules import rule
from ..side_effects import FIRST, OUTSIDES, READ, UNREAD, Namespace, Outside

#: So many constants in a sequence are compared in one go.
LONG_LIST = 32



@dataclass
class Written(Namespace):
    """A namespace, with the keys that were written, in order.

    `written` says of each whether it was absent then.
    """

    written: dict = field(default_factory=dict)

    def __post_init__(self):
        """Read a dict past what its class makes of `real[key]`."""
        kind = OrderedDict if isinstance(self.real, OrderedDict) else dict
        if self.kind == "items" and (
                type(self.real).__getitem__ is not dict.__getitem__):
            self.real = {key: dict.__getitem__(self.real, key)
                         for key in kind.__iter__(self.real)}
        self.now = kind.fromkeys(self.real if type(self.real) is dict
                                 else kind.__iter__(self.real), UNREAD)


class Effects(Outside):
    """The objects that existed before the call, and what became of them."""

    namespace = Written

    def __init__(self, recorder, where):
        super().__init__(recorder, where)
        self.orders: dict[int, tuple] = {}  # of sets with a copy in another

    def elements(self, real, source: Source) -> list:
        """The elements of a sequence; of a long one, all in one guard."""
        if len(real) < LONG_LIST or not CONSTANTS.issuperset(
                map(type, real)) or any(
                type(item) in NUMBERS and self.recorder.sizes.is_symbol(
                    item, Item(source, index), self)
                for index, item in enumerate(real)):
            return super().elements(real, source)
        self.guard(source, "keys", tuple(real))
        return [*real]

    def place(self, space: Namespace, key) -> Source:
        """Where the value of any key of any dict is."""
        if space.kind == "attributes":
            return super().place(space, key)
        if not printable(key):
            place = self.sources.get(id(self.values.get(id(key))))
            key = place or self.constant(key, getattr(
                key, "__name__", "key"))
        stored = space.real is not space.owner or hasattr(
            type(space.owner), "__missing__")
        return (Stored if stored else Item)(space.names, key)

    def read(self, space: Namespace, key):
        """The value at `key`, or ABSENT; either is guarded."""
        key = self.real(key)
        if isinstance(key, torch.Tensor) and not space.real:
            self.guard(space.names, "length", 0)
        elif space.now.get(key) is UNREAD and space.real[key] is None and (
                type(self.place(space, key)) is Stored):  # as if absent
            self.guard(space.names, "contains", key)
        return super().read(space, key)

    def keys(self, space: Namespace) -> list:
        """All keys, in order."""
        if any(isinstance(key, torch.Tensor) for key in space.real):
            raise unsupported("attribute", "a dict with tensors as keys")
        return super().keys(space)

    def write(self, space: Namespace, key, value) -> None:
        """Let `key` be `value` from now on (ABSENT deletes it)."""
        key = self.real(key)
        if not space.written:
            self.pending.append(partial(changes, space))
        if key not in space.now:  # it comes last, or last again
            space.written.pop(key, None)
        space.written.setdefault(key, key not in space.now)
        if value is not ABSENT:
            space.now[key] = value
        elif key in space.now:
            del space.now[key]
            self.read(space, key)  # an absence is guarded, and a presence
            if key in space.real and not isinstance(
                    space.owner, types.CellType):
                self.guard(space.names, "contains", key)

    def statements(self, rebuild) -> list[str]:
        """The same; what is written to may be a counter."""
        counters, owners = self.recorder.sizes.history.counters, {}
        for _, *given in [call for ask in self.pending for call in ask()]:
            owner, key = (*given, None, None)[:2]
            owners[id(owner)] = owner
            space = self.overlays.get((id(owner), "items"))
            if type(key) is str:
                counters.add(key)
            elif type(key) is int:
                counters.add(self.place(space, key) if space else Item(
                    self.source(owner), key))
        self.keep_apart({*map(type, owners.values())})
        return super().statements(rebuild)

    def keep_apart(self, kinds: set[type]) -> None:
        """Guard that no two objects, of classes written to, are one."""
        places: dict[type, dict[int, Source]] = {}
        for value in self.kept:
            place = self.source(value)
            if type(value) in kinds and type(place) not in (
                    Constant, type(None)):
                places.setdefault(type(value), {})[id(value)] = place
        for same in places.values():
            if len(same) > 1:
                each = ", ".join(f"{{{at}}}" for at in range(len(same)))
                self.relate(f"len(set(map(id, [{each}]))) == {len(same)}",
                            *same.values())


def writers(space: Namespace, key) -> tuple:
    """The object that a key is written to, what sets and what deletes it.

    A property or a descriptor in Python hides an attribute of its name.
    """
    owner = space.owner
    if space.kind == "items":
        base = OrderedDict if isinstance(owner, OrderedDict) else dict
        return owner, base.__setitem__, base.__delitem__
    found = inspect.getattr_static(type(owner), key, None)
    if hasattr(type(found), "__set__") and not isinstance(found, SLOTS):
        return space.real, dict.__setitem__, dict.__delitem__
    return owner, object.__setattr__, object.__delattr__


def changes(space: Namespace) -> Iterator[tuple]:
    """Yield what writes the items or attributes back, in order.

    A key that was deleted and came back is deleted first.
    """
    real = space.real
    for key, anew in space.written.items():
        owner, put, remove = writers(space, key)
        value = space.now.get(key, ABSENT)
        old = space.before.get(key, UNREAD) if key in real else ABSENT
        if value is not old and value is ABSENT or (
                anew and key in real and value is not ABSENT):
            yield remove, owner, key
            old = ABSENT
        if value is not old:
            yield put, owner, key, value


OUTSIDES.append(Effects)

# Containers from outside


def replaced(before: tuple, now) -> Iterator[tuple]:
    """Yield what puts the elements of a copy into the real sequence."""
    kind, changed = type(now), [at for at, (old, new) in enumerate(
        zip(before, now)) if old is not new]
    if len(now) != len(before) or len(changed) > LONG_LIST:
        yield kind.clear, now
        yield kind.extend, now, (*now,)
    else:
        for at in changed:
            yield kind.__setitem__, now, at, now[at]


def copied(outside: Outside, real, source: Source, value):
    """A sequence, copied to `value`: that is the trace's to change."""
    outside.remember(real, value, source)
    value.extend(outside.elements(real, source))
    outside.pending.append(partial(replaced, tuple(value), value))
    return value


def queue(outside: Outside, real: deque, source: Source) -> deque:
    """A deque, copied as lists are."""
    outside.guard(Attribute(source, "maxlen"), "equal", real.maxlen)
    return copied(outside, real, source, deque((), real.maxlen))


def came_and_went(before: tuple, now: set) -> Iterator[tuple]:
    """Yield what adds new elements to the real set, and removes others."""
    for change, elements in (
            (set.update, now.difference(before)),
            (set.difference_update, {*before} - now)):
        if elements:
            yield change, now, (*elements,)


def constants(outside: Outside, real: set | frozenset, source: Source):
    """A set of constants, copied; its order is guarded, too."""
    if not all(map(is_constant, real)):
        raise unsupported("attribute", f"a set of objects, {source},")
    before = tuple(real)
    outside.guard(source, "keys", before)
    value = outside.remember(real, type(real)(before), source)
    outside.pending.append(partial(came_and_went, before, value))
    if tuple(value) != before:
        outside.orders[id(value)] = before
    return value


def set_in_order(outside: Outside, value: set | frozenset):
    """A set, or its elements if the copy has them in another order."""
    order = outside.orders.get(id(value))
    if order and {*order} != value:
        raise unsupported("effect", "iterating over a set")
    return [*order] if order else value


FIRST |= {list: lambda outside, real, source: copied(
    outside, real, source, []),
    deque: queue, set: constants, frozenset: constants}
READ |= {set: set_in_order, frozenset: set_in_order}


# Attributes

#: Classes whose objects a program may change only if it made them.
FIXED = torch.Tensor, types.ModuleType, type, types.FunctionType


def store_attr(tracer, owner, name: str, value) -> None:
    """`owner.name = value`, or `del owner.name`; outside, it waits."""
    given, owner = () if value is ABSENT else (value,), settled(owner)
    how = "__setattr__" if given else "__delattr__"
    if isinstance(attributes.method(tracer, type(owner), how),
                  types.WrapperDescriptorType):
        store_plain(tracer, owner, name, value)
    else:
        tracer.call(attributes.bound(tracer, owner, how), (name, *given))


def store_plain(tracer, owner, name: str, value) -> None:
    """The same as `object.__setattr__` or `object.__delattr__` does it."""
    outside, given = tracer.outside, () if value is ABSENT else (value,)
    if isinstance(owner, torch.Tensor) and name == "grad" and value is None:
        if outside.source(owner) is not None:
            outside.write(outside.space("attributes", owner), name, value)
        return
    if isinstance(owner, FIXED) and not tracer.is_made(owner):
        tracer.recorder.sizes.history.counters.add(name)
        raise unsupported("effect",
                          f"setting {name} of a {type(owner).__name__}")
    found, _ = attributes.lookup(tracer, type(owner), name)
    hook, start = attributes.method(tracer, type(found), "__set__" if given
                                    else "__delete__"), (found, owner)
    is_slot = hook is not ABSENT
    if isinstance(found, property):
        hook, start = found.fset if given else found.fdel, (owner,)
    if type(hook) is types.FunctionType:
        tracer.call(hook, (*start, *given))
    elif attributes.existed(tracer, owner) and (
            found is not ABSENT or type(owner).__dictoffset__) and (
            not isinstance(found, property)):
        if not given and is_slot:
            raise unsupported("effect", f"deleting {name}")
        if not given and attributes.own(tracer, owner, name) is ABSENT:
            raise attributes.no_attribute(type(owner), name)
        outside.write(outside.space("attributes", owner), name, value)
    elif not given:
        tracer.native(delattr, (owner, name))
    else:
        tracer.native(setattr if isinstance(owner, FIXED)
                      else object.__setattr__, (owner, name, value))


rule(setattr)(store_attr)
rule(delattr)(partial(store_attr, value=ABSENT))
rule(object.__setattr__)(store_plain)
rule(object.__delattr__)(partial(store_plain, value=ABSENT))

OPCODES |= {
    "STORE_ATTR": (2, 0, lambda f, name, value, owner: store_attr(
        f.tracer, owner, name, value)),
    "DELETE_ATTR": (1, 0, lambda f, name, owner: store_attr(
        f.tracer, owner, name, ABSENT))}
