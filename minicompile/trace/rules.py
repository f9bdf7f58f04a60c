"""What builtins and torch's switches mean in a trace: a table of rules.

In: a callable. Out: its rule, if it has one: a function of the tracer and
the arguments. `HARMLESS` lists the C functions that may run natively:
they change nothing and look only at their arguments. PyTorch's tables
are torch/_dynamo/trace_rules.py.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import os
import types
from collections import OrderedDict, defaultdict, deque

import torch
from torch import nn

from . import attributes
from .constant_types import ABSENT
from .frame import load_cell
from .operators import DUNDERS, INPLACE
from .reasons import Raised, unsupported
from .recorder import leaves

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes that may run natively.
HARMLESS: set = {getattr(builtins, name) for name in """abs all any
    bin bool bytearray bytes callable chr classmethod complex dict divmod
    enumerate filter float frozenset hex int isinstance issubclass iter len
    list map max min next oct ord pow property range reversed round set
    slice sorted staticmethod sum tuple zip""".split()} | {
    os.fspath, deque, OrderedDict, defaultdict, types.MappingProxyType,
    torch.Size, torch.device, torch.finfo,
    torch.iinfo, torch.is_grad_enabled, torch.get_default_dtype,
    torch._C._get_privateuse1_backend_name,
    torch._C._has_torch_function, torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic}

RULES: dict[int | tuple[str, str], object] = {}
_held: list[object] = []


def rule(*functions):
    """Let the decorated function be what calling `functions` means.

    One that is not to be imported for it is given by the module and the
    qualified name of its code; the rule of a closure gets it first.
    """
    def register(meaning):
        for function in functions:
            RULES[function if type(function) is tuple
                  else id(function)] = meaning
            _held.append(function)
        return meaning
    return register


def registered(function):
    """The rule of a callable, or None."""
    found = RULES.get(id(function))
    if found is None and type(function) is types.FunctionType:
        name = function.__code__.co_qualname
        found = RULES.get((function.__globals__.get("__name__"), name))
        if found is not None and "<locals>" in name:
            return functools.partial(found, function)
    return found


def apply(tracer, rule, args: tuple, kwargs: dict):
    """What a rule gives; wrong arguments are the program's TypeError."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError:
        try:
            inspect.signature(rule).bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise Raised(error) from None
        raise


# Questions about objects


@rule(isinstance)
def _isinstance(tracer, value, kinds):
    if isinstance(value, torch.Tensor):
        kind = attributes.tensor_type(value)
        return any(isinstance(value, k) if k is nn.Parameter
                   else tracer.native(issubclass, (kind, k))
                   for k in leaves((kinds,)))
    if type(value) in KINDS:
        return tracer.native(issubclass, (type_of(value), kinds))
    attributes.rely_on(tracer, type(value))
    return tracer.native(isinstance, (value, kinds))


@rule(issubclass)
def _issubclass(tracer, kind, kinds):
    if isinstance(kind, type):
        attributes.rely_on(tracer, kind)
    return tracer.native(issubclass, (kind, kinds))


@rule(type)
def _type(tracer, value, *more):
    if more:
        raise unsupported("builtin", "type with three arguments")
    if isinstance(value, torch.Tensor):
        return attributes.tensor_type(value)
    return type_of(value)


def type_of(value) -> type:
    """The class of a value, or of what it stands for."""
    return KINDS.get(type(value), type(value))


#: Which class a stand-in's value is of.
KINDS = {torch.SymInt: int, torch.SymFloat: float}


@rule(len)
def _len(tracer, value):
    if isinstance(value, torch.Tensor):
        if not value.dim():
            raise Raised(TypeError("len() of a 0-d tensor"))
        return value.shape[0]
    length = tracer.asked("__len__", value)
    if length is not ABSENT:
        return length
    if tracer.outside.is_dict(value):
        return len(tracer.outside.keys(tracer.outside.items(value)))
    return tracer.natively(len, (value,), depth=0)


def _collection(kind: type):
    def collection(tracer, values=(), **more):
        values = pairs(tracer, values) if issubclass(kind, dict) else map(
            tracer.key, tracer.unpacked(values))
        return tracer.native(kind, (values,), more)
    return collection


def pairs(tracer, values) -> list:
    """The keys and values that `dict(values)` is made of."""
    if isinstance(values, dict) or tracer.python_method(values, "keys"):
        return [*tracer.mapping(values).items()]
    return [(tracer.key(key), value) for key, value in map(
        tracer.unpacked, tracer.unpacked(values))]


for _kind in (set, frozenset, dict, OrderedDict):
    rule(_kind)(_collection(_kind))


@rule(getattr)
def _getattr(tracer, owner, name, *default):
    try:
        return attributes.load(tracer, owner, name)
    except Raised as raised:
        if default and isinstance(raised.exception, AttributeError):
            return default[0]
        raise


@rule(hasattr)
def _hasattr(tracer, owner, name):
    return _getattr(tracer, owner, name, ABSENT) is not ABSENT


@rule(super)
def _super(tracer, *args):
    if not args:
        frame = tracer.frames[-1]
        kind = load_cell(tracer, frame.names["__class__"], "__class__")
        owner = frame.names[frame.code.co_varnames[0]]
        if isinstance(owner, types.CellType):
            owner = load_cell(tracer, owner, "self")
        args = kind, owner
    for owner in args[1:]:
        attributes.rely_on(
            tracer, owner if isinstance(owner, type) else type(owner))
    return tracer.native(super, args)


@rule(iter)
def _iter(tracer, value, *sentinel):
    if sentinel:
        raise unsupported("builtin", "iter with a sentinel")
    return tracer.iterate(value)


@rule(reversed)
def _reversed(tracer, value):
    found = tracer.asked("__reversed__", value)
    return found if found is not ABSENT else tracer.natively(
        reversed, (value,), depth=0)


@rule(next)
def _next(tracer, iterator, *default):
    try:
        value = tracer.asked("__next__", iterator)
        if value is not ABSENT:
            return value
        return tracer.natively(next, (iterator,), depth=0)
    except Raised as raised:
        if default and isinstance(raised.exception, StopIteration):
            return default[0]
        raise


#: Operations of the tracer's, and the functions that mean the same.
OPERATIONS = {
    "truth": (operator.truth,), "same": (operator.is_,),
    "contains": (operator.contains,), "item": (operator.getitem,),
    "set_item": (operator.setitem, operator.delitem)}
_UNARY = (operator.neg, operator.pos, operator.invert, operator.abs, abs)

for _name, _functions in OPERATIONS.items():
    rule(*_functions)(lambda tracer, *values, _name=_name:
                      getattr(tracer, _name)(*values))
for _name, _functions in (("unary", _UNARY),
                          ("binary", (*DUNDERS, *INPLACE))):
    for _op in _functions:
        rule(_op)(lambda tracer, *values, _name=_name, _op=_op:
                  getattr(tracer, _name)(_op, *values))

#: Functions whose meaning takes a line.
SHORT = {
    bool: lambda tracer, value=False: tracer.truth(value),
    callable: lambda tracer, value: attributes.lookup(
        tracer, type_of(value), "__call__")[0] is not ABSENT,
    operator.not_: lambda tracer, value: not tracer.truth(value),
    operator.is_not: lambda tracer, a, b: not tracer.same(a, b),
    setattr: lambda tracer, a, name, value: attributes.store(
        tracer, a, name, value),
    object.__setattr__: lambda tracer, a, name, value:
        attributes.store_plain(tracer, a, name, value),
    delattr: attributes.store, object.__delattr__: attributes.store_plain,
    object.__getattribute__: attributes.generic,
    object.__init__: lambda tracer, owner, *args, **kwargs: None}

for _function, _meaning in SHORT.items():
    rule(_function)(_meaning)


@rule(set.pop)
def _pop(tracer, owner):
    if tracer.outside.source(owner) is not None:
        raise unsupported("builtin", "pop of a set from outside")
    return tracer.native(set.pop, (owner,))


# Methods of dicts from outside

#: Methods that read a dict; a real one that holds the same may run them.
READING = {"keys", "values", "items", "copy", "__iter__", "__len__",
           "__reversed__"}

#: The others, by name.
WRITING: dict[str, object] = {}


def method_rule(tracer, owner, unbound):
    """The rule for a C method of `owner`, or None."""
    outside, name = tracer.outside, unbound.__name__
    if not outside.is_dict(owner):
        return registered(unbound)
    if name in READING and isinstance(outside.resolve(owner),
                                      unbound.__objclass__):
        return None
    if name not in WRITING:
        raise unsupported("builtin", f"{unbound.__qualname__}, called for "
                          "a dict from outside,")
    return WRITING[name]


def _contains(tracer, mapping, key):
    return tracer.has_item(mapping, tracer.key(key))


def _getitem(tracer, mapping, key):
    if not _contains(tracer, mapping, key):
        raise Raised(KeyError(key))
    return tracer.stored(mapping, key)


def _setitem(tracer, mapping, key, value):
    tracer.outside.write(tracer.outside.items(mapping), tracer.key(key),
                         value)


def _delitem(tracer, mapping, key):
    _getitem(tracer, mapping, key)
    _setitem(tracer, mapping, key, ABSENT)


WRITING |= {"__contains__": _contains, "__getitem__": _getitem,
            "__setitem__": _setitem, "__delitem__": _delitem}
