"""Writes to objects from outside, which wait until the graph has run.

In: what a trace does to attributes, dicts, lists, deques and sets that
existed before. Out: the statements of `finish` that do it for real, in
eager's order. A dict or an object is compared, key by key, with what was
read from it; a list, a deque or a set is copied when it is first read.
`owner.name = value` follows a `__setattr__` or a descriptor written in
Python; an object that the trace made is written to as it is. Without this
file, a write breaks the graph. PyTorch's is torch/_dynamo/side_effects.py.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...core.guard import Attribute, Item, Source
from .. import attributes
from ..constant_types import ABSENT, CONSTANTS, is_constant
from ..frame import OPCODES
from ..reasons import unsupported
from ..recorder import NUMBERS, settled
from ..reconstruct import Rebuild
from ..rules import rule
from ..side_effects import FIRST, OUTSIDES, READ, UNREAD, Namespace, Outside


#: So many constants in a sequence are compared in one go.
LONG_LIST = 32


@dataclass(frozen=True)
class Copy:
    """A list or deque read from outside: before, and now."""

    source: Source
    before: tuple
    now: object

    def changed(self) -> bool:
        """Whether the copy holds other objects than it began with."""
        return len(self.now) != len(self.before) or any(
            a is not b for a, b in zip(self.now, self.before))

    def statements(self, rebuild: Rebuild, mine: str) -> list[str]:
        """The elements, put in place of those in `mine`."""
        return [f"{mine}.clear()",
                f"{mine}.extend({held(rebuild, self.now)})"]


def held(rebuild: Rebuild, items) -> str:
    """A list of these, made before anything is written."""
    return rebuild.hold(f"[{rebuild.values(items)}]")


@dataclass(frozen=True)
class SetCopy(Copy):
    """A set; its copy may have another order than the set's own."""

    order: tuple

    def changed(self) -> bool:
        """Whether something came or went."""
        return {*self.before} != self.now

    def statements(self, rebuild: Rebuild, mine: str) -> list[str]:
        """New elements, added; lost ones, removed."""
        parts = (("update", self.now.difference(self.before)),
                 ("difference_update", {*self.before} - self.now))
        return [f"{mine}.{change}({held(rebuild, items)})"
                for change, items in parts if items]


class Effects(Outside):
    """The objects that existed before the call, and what became of them."""

    def __init__(self, recorder, where):
        super().__init__(recorder, where)
        self.copies: list[Copy] = []

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

    def write(self, space: Namespace, key, value) -> None:
        """Let `key` be `value` from now on (ABSENT deletes it)."""
        key = self.real(key)
        if key not in space.now:  # it comes last, or last again
            space.written.pop(key, None)
        space.written.setdefault(key, key not in space.now)
        if value is not ABSENT:
            space.now[key] = value
        elif key in space.now:
            del space.now[key]
            self.read(space, key)  # an absence is guarded

    def changes(self, space: Namespace) -> list[tuple]:
        """The items to write back, in order; ABSENT deletes a key.

        A key that was deleted and came back is deleted first.
        """
        found, real = [], space.real
        for key, anew in space.written.items():
            value = space.now.get(key, ABSENT)
            old = space.before.get(key, UNREAD) if key in real else ABSENT
            if anew and key in real and value is not ABSENT:
                found += (key, ABSENT), (key, value)
            elif value is not old:
                found.append((key, value))
        return found

    def changed(self) -> list[Copy]:
        """The copies that hold something else now."""
        return [copy for copy in self.copies if copy.changed()]

    def places(self) -> Iterator[Source]:
        """Yield the places that were written to."""
        for space in self.overlays.values():
            for key, _ in self.changes(space):
                yield self.place(space, key)
        for copy in self.changed():
            for at, (old, new) in enumerate(zip(copy.before, copy.now)):
                if old is not new:
                    yield Item(copy.source, at)

    def confusions(self) -> Iterator[tuple[Source, Source]]:
        """Yield an object written to, and one that may be the same."""
        owners = [each.owner for each in self.overlays.values()
                  if self.changes(each)]
        owners += [copy.now for copy in self.changed()]
        for owner in owners:
            for value in self.kept if id(owner) in self.sources else ():
                if type(value) is type(owner) and value is not owner and (
                        id(value) in self.sources):
                    yield self.sources[id(owner)], self.sources[id(value)]

    def writes(self, rebuild: Rebuild) -> list[str]:
        """Statements that change objects from outside, in eager's order."""
        lines = super().writes(rebuild)
        for space in {id(o): o for o in self.overlays.values()}.values():
            lines += [written(rebuild, space, key, value)
                      for key, value in self.changes(space)]
        for copy in self.changed():
            lines += copy.statements(rebuild, rebuild.hold(
                copy.source.code()))
        return lines


OUTSIDES.append(Effects)


def written(rebuild: Rebuild, space: Namespace, key, value) -> str:
    """One attribute or item of an object from outside, written."""
    owner, outside = space.owner, rebuild.outside
    mine = rebuild.hold((outside.source(owner) or space.names).code())
    kept = "" if value is ABSENT else rebuild.hold(rebuild.value(value))
    if space.kind == "attributes":
        return (f"object.__setattr__({mine}, {key!r}, {kept})" if kept
                else f"object.__delattr__({mine}, {key!r})")
    key = rebuild.value(outside.values.get(id(key), key))
    base = rebuild.known(OrderedDict if isinstance(owner, OrderedDict)
                         else dict)
    return (f"{base}.__setitem__({mine}, {key}, {kept})" if kept
            else f"{base}.pop({mine}, {key}, None)")


# Containers from outside


def copied(outside: Outside, real, source: Source, value):
    """A sequence, copied to `value`: that is the trace's to change."""
    outside.remember(real, value, source)
    value.extend(outside.elements(real, source))
    outside.copies.append(Copy(source, tuple(value), value))
    return value


def queue(outside: Outside, real: deque, source: Source) -> deque:
    """A deque, copied as lists are."""
    outside.guard(Attribute(source, "maxlen"), "equal", real.maxlen)
    return copied(outside, real, source, deque((), real.maxlen))


def constants(outside: Outside, real: set | frozenset, source: Source):
    """A set of constants, copied; its order is guarded, too."""
    if not all(map(is_constant, real)):
        raise unsupported("attribute", f"a set of objects, {source},")
    outside.guard(source, "keys", tuple(real))
    value = outside.remember(real, type(real)([*real]), source)
    outside.copies.append(SetCopy(source, tuple(real), value, tuple(value)))
    return value


def set_in_order(outside: Outside, value: set | frozenset):
    """A set, or its elements if a copy has them in another order."""
    for copy in outside.copies:
        if copy.now is value and copy.order != copy.before:
            if copy.changed():
                raise unsupported("effect", "iterating over a set")
            return [*copy.before]
    return value


FIRST |= {list: lambda outside, real, source: copied(
    outside, real, source, []),
    deque: queue, set: constants, frozenset: constants}
READ |= {set: set_in_order, frozenset: set_in_order}


# Attributes

#: Classes whose objects a program may change only if it made them.
FIXED = torch.Tensor, types.ModuleType, type, types.FunctionType


def store_attr(tracer, owner, name: str, value=ABSENT) -> None:
    """`owner.name = value`, or `del owner.name`; outside, it waits."""
    given, owner = () if value is ABSENT else (value,), settled(owner)
    how = "__setattr__" if given else "__delattr__"
    if isinstance(attributes.method(tracer, type(owner), how),
                  types.WrapperDescriptorType):
        store_plain(tracer, owner, name, value)
    else:
        tracer.call(attributes.bound(tracer, owner, how), (name, *given))


def store_plain(tracer, owner, name: str, value=ABSENT) -> None:
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


for _set, _delete, _store in (
        (setattr, delattr, store_attr),
        (object.__setattr__, object.__delattr__, store_plain)):
    rule(_set)(lambda tracer, owner, name, value, _store=_store: _store(
        tracer, owner, name, value))
    rule(_delete)(lambda tracer, owner, name, _store=_store: _store(
        tracer, owner, name))

OPCODES |= {
    "STORE_ATTR": (2, 0, lambda f, name, value, owner: store_attr(
        f.tracer, owner, name, value)),
    "DELETE_ATTR": (1, 0, lambda f, name, owner: store_attr(
        f.tracer, owner, name))}
