"""Dicts, sets and sequences: their items, and the methods that write.

In: a container of the program's or from outside, and a key. Out: what
Python finds there, guarded; a write to a dict from outside waits for the
end of the call. The rules are those of the methods of `dict` and `list`,
so `d[key]` and `super().__getitem__(key)` come to one. The other methods
of a dict from outside are polyfills made of these. PyTorch's are
torch/_dynamo/variables/dicts.py and lists.py.
"""

import operator
from collections import OrderedDict, _count_elements, defaultdict, deque
from collections.abc import Sequence
from itertools import chain

import torch

from ...core.guard import ABSENT, CONSTANTS, is_a
from ...core.sizes import SYMBOLIC
from .. import attributes
from ..reasons import WAYS, Raised, refusing, unsupported
from ..rules import means, rule, whole
from ..side_effects import UNREAD
from .callbacks import in_python, polyfill
from .objects import same

# Items of dicts


@rule(dict.__getitem__)
def item(tracer, mapping: dict, key):
    """`dict.__getitem__`, which asks for a missing key."""
    value = tracer.stored(mapping, key)
    if value is not ABSENT:
        return value
    missing = attributes.bound(tracer, mapping, "__missing__")
    if missing is ABSENT:
        raise Raised(KeyError(key))
    return tracer.call(missing, (key,))


@rule(dict.__contains__)
def has_item(tracer, mapping: dict, key) -> bool:
    """Whether a dict has `key` now."""
    key, outside = tracer.key(key, mapping), tracer.outside
    if not outside.is_dict(mapping):
        return tracer.native(dict.__contains__, (mapping, key))
    space, key = outside.space("items", mapping), outside.real(key)
    if is_a(key, (torch.Tensor, torch.SymInt)) or (
            space.now.get(key) is not UNREAD):
        return outside.read(space, key) is not ABSENT
    if not space.trusted:
        outside.guard(space.names, "contains", key)
    return True


@rule(dict.__setitem__, OrderedDict.__setitem__)
def set_item(tracer, mapping: dict, key, value) -> None:
    """`mapping[key] = value`, or `del`; outside, the write waits."""
    key, outside = tracer.key(key, mapping), tracer.outside
    if not outside.is_dict(mapping):
        kind = OrderedDict if is_a(mapping, OrderedDict) else dict
        method, given = (kind.__delitem__, ()) if value is ABSENT else (
            kind.__setitem__, (value,))
        return tracer.native(method, (mapping, key, *given))
    if value is ABSENT and not has_item(tracer, mapping, key):
        raise Raised(KeyError(key))
    WAYS["write"](outside, outside.space("items", mapping), key, value)


rule(dict.__delitem__, OrderedDict.__delitem__)(
    lambda tracer, mapping, key: set_item(tracer, mapping, key, ABSENT))


rule(*(vars(kind)[name] for kind in (defaultdict, OrderedDict)
       for name in ("__or__", "__ror__")))(
    refusing("builtin", "| of a defaultdict or an OrderedDict"))


@rule(dict.__len__)
def dict_length(tracer, mapping: dict) -> int:
    """How many items a dict has."""
    outside = tracer.outside
    return len(outside.keys(outside.space("items", mapping)) if (
        outside.is_dict(mapping)) else mapping)


# Methods of dicts

means(whole, dict.copy, dict.__reversed__, *(
    vars(OrderedDict)[name] for name in (
        "keys", "values", "items", "__iter__", "__reversed__")))


@polyfill(OrderedDict.copy)
def copy(self, /):
    made = type(self)()
    for key in self:
        made[key] = self[key]
    return made


@polyfill(_count_elements)
def count_elements(mapping, iterable, /):
    for each in iterable:
        mapping[each] = mapping.get(each, 0) + 1


@polyfill(vars(dict)["fromkeys"])
def fromkeys(iterable, value=None, /):
    return {key: value for key in iterable}


@rule(dict.get)
def get(tracer, mapping: dict, key, default=None, /):
    value = tracer.stored(mapping, key)
    return default if value is ABSENT else value


@rule(dict.setdefault, OrderedDict.setdefault)
def setdefault(tracer, mapping: dict, key, default=None):
    value = tracer.stored(mapping, key)
    if value is ABSENT:
        set_item(tracer, mapping, key, default)
    return default if value is ABSENT else value


@rule(dict.pop, OrderedDict.pop)
def pop(tracer, mapping: dict, key, *default):
    value = tracer.stored(mapping, key)
    if value is not ABSENT:
        set_item(tracer, mapping, key, ABSENT)
    elif not default:
        raise Raised(KeyError(key))
    return value if value is not ABSENT else default[0]


@polyfill(dict.popitem)
def popitem(self, /):
    if not dict.__len__(self):
        raise KeyError("popitem(): dictionary is empty")
    key = [*dict.keys(self)][-1]
    return key, dict.pop(self, key)


@polyfill(dict.clear, OrderedDict.clear)
def clear(self, /):
    for key in [*dict.keys(self)]:
        dict.__delitem__(self, key)


@polyfill(dict.update, OrderedDict.update)
def update(self, /, *others, **more):
    for other in (*others, more):
        for key, value in dict(other).items():
            dict.__setitem__(self, key, value)


@polyfill(dict.__ior__, OrderedDict.__ior__)
def ior(self, other, /):
    update(self, other)
    return self


@polyfill(defaultdict.__missing__)
def missing(self, key, /):
    if self.default_factory is None:
        raise KeyError(key)
    value = self.default_factory()
    dict.__setitem__(self, key, value)
    return value


# Sequences and sets

polyfill(torch.Tensor.__iter__)(torch.Tensor.__iter__)  # is followed


@rule(operator.contains)
def contains(tracer, container, key) -> bool:
    """`key in container`."""
    found = tracer.asked("__contains__", container, key)
    if found is ABSENT:
        names = ("__contains__", "__iter__", "__getitem__")
        first = next((name for name in names if attributes.lookup(
            tracer, type(container), name)[0] is not ABSENT), None)
        found = tracer.call(Sequence.__contains__, (container, key)) if (
            first not in ("__contains__", None)) else tracer.natively(
                operator.contains, (container, tracer.key(key)))
    return tracer.truth(found)


def in_sequence(tracer, function, values, key) -> bool:
    """Whether an element is `key`, or equal to it."""
    values = [*function.__objclass__.__iter__(values)]
    if {type(key), *map(type, values)} <= CONSTANTS:
        return key in values
    return tracer.call(Sequence.__contains__, (values, key))


means(in_sequence, *(kind.__contains__ for kind in (list, tuple, deque)))


def in_turn(tracer, function, left, right):
    """Two sequences, compared where they first differ.

    Lists of different lengths are unequal, whatever is in them; lists may
    change as their elements are compared.
    """
    kind, op = function.__objclass__, getattr(operator, function.__name__)
    if not is_a(right, kind):
        return NotImplemented
    both = left, right
    if {*map(type, chain(*map(kind.__iter__, both)))} <= (
            CONSTANTS.union(SYMBOLIC)):
        return tracer.natively(function, both)
    if kind is list and op in (operator.eq, operator.ne) and (
            list.__len__(left) != list.__len__(right)):
        return op is operator.ne
    for k, pair in enumerate(zip(*map(kind.__iter__, both))):
        if not same(tracer, *pair) and not tracer.truth(
                tracer.binary(operator.eq, *pair)) and (
                k < min(map(kind.__len__, both))):
            return op is operator.ne or op is not operator.eq and (
                tracer.binary(op, *pair))
    return op(*map(kind.__len__, both))


means(in_turn, *(vars(kind)[f"__{name}__"] for kind in (list, tuple)
                  for name in ("eq", "ne", "lt", "le", "gt", "ge")))


@rule(list.__setitem__)
def set_element(tracer, values: list, key, value) -> None:
    """`values[key] = value`, where a slice takes any iterable."""
    if is_a(key, slice):
        value = tracer.iterate(value)
    tracer.natively(list.__setitem__, (values, tracer.key(key), value))


rule(list.__iadd__)(lambda tracer, values, more: NotImplemented if (
    in_python(tracer, more, "__radd__")) else tracer.natively(
        list.__iadd__, (values, more)))


@rule(set.pop)
def pop_element(tracer, values: set):
    if tracer.outside.source(values) is not None:
        raise unsupported("builtin", "pop of a set from outside")
    return tracer.native(set.pop, (values,))


def collection(tracer, kind: type, values=(), /, **more):
    """A new set or dict, whose keys C code may look up."""
    if not issubclass(kind, dict):
        values = map(tracer.key, tracer.unpacked(values))
    elif type(values) not in (tuple, list) and tracer.call(
            hasattr, (values, "keys")):  # as CPython tells
        values = tracer.mapping(values)
    else:
        values = [(tracer.key(key), value) for key, value in map(
            tracer.unpacked, tracer.unpacked(values))]
    return tracer.native(kind, (values,), more)


means(collection, set, frozenset, dict, OrderedDict)
rule(defaultdict)(lambda tracer, factory=None, values=(), /, **more: (
    tracer.native(defaultdict, (
        factory, collection(tracer, dict, values)), more)))
