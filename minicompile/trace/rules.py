"""What builtins and torch's switches mean in a trace: a table of rules.

In: a callable. Out: its rule, if it has one: a function of the tracer and
the arguments. `HARMLESS` are C functions that may run natively, since
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
from collections.abc import MutableMapping

import torch
from torch import nn

from ..core.sizes import SYMBOLIC
from . import attributes
from .kinds import ABSENT, CONSTANTS
from .names import load_cell
from .operators import DUNDERS, INPLACE
from .reasons import Raised, unsupported
from .recorder import leaves
from .stand_ins import Generator
from .symbolic_shapes import SYMBOLIC_FORMS, settled

#: Builtins with an effect, or that look at more than their arguments.
_IMPURE = {"print", "input", "open", "exec", "eval", "compile", "globals",
           "locals", "vars", "dir", "id", "hash", "breakpoint", "setattr",
           "delattr", "getattr", "hasattr", "__import__", "__build_class__",
           "memoryview", "object", "type", "super", "exit", "quit", "help",
           "copyright", "credits", "license", "aiter", "anext"}

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes that may run natively.
HARMLESS: set = {
    value for name, value in vars(builtins).items()
    if name not in _IMPURE and isinstance(value, (
        type, types.BuiltinFunctionType))
    and not (isinstance(value, type) and issubclass(value, BaseException))
} | {os.fspath, deque, OrderedDict, defaultdict,
     types.MappingProxyType, torch.Size, torch.device, torch.finfo,
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
KINDS = {torch.SymInt: int, torch.SymFloat: float,
         Generator: types.GeneratorType}


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
    return tracer.native(len, (tracer.readable(value, "__len__"),))


def _collection(kind: type):
    def collection(tracer, values=(), **more):
        values = pairs(tracer, values) if kind is dict else map(
            tracer.key, tracer.unpacked(values))
        return tracer.native(kind, (values,), more)
    return collection


def pairs(tracer, values) -> list:
    """The keys and values that `dict(values)` is made of."""
    if isinstance(values, dict) or tracer.python_method(values, "keys"):
        return [*tracer.mapping(values).items()]
    return [(tracer.key(key), value) for key, value in map(
        tracer.unpacked, tracer.unpacked(values))]


for _kind in (set, frozenset, dict):
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
    return found if found is not ABSENT else tracer.native(
        reversed, (tracer.readable(value, "__reversed__"),))


@rule(next)
def _next(tracer, iterator, *default):
    try:
        value = tracer.asked("__next__", iterator)
        if value is not ABSENT:
            return value
        tracer.inside(iterator)
        return tracer.native(next, (iterator,))
    except Raised as raised:
        if default and isinstance(raised.exception, StopIteration):
            return default[0]
        raise


@rule(sum)
def _sum(tracer, values, start=0):
    values = tuple(tracer.iterate(values))
    kinds = {*map(type, values)}
    if not kinds.isdisjoint(REAL) and kinds <= {int, bool, *REAL}:
        return tracer.native(sum, (values, start))
    for value in values:
        start = tracer.binary(operator.add, start, value)
    return start


#: Numbers that sum() adds up with more digits, since Python 3.12.
REAL = {float, torch.SymFloat}


def _asking(kind: type, name: str):
    """The rule of a class or function that asks the method `name`."""
    def asking(tracer, value=kind() if isinstance(kind, type) else "",
               *rest, **more):
        if isinstance(value, torch.Tensor):
            raise unsupported("data-dependent", f"{kind.__name__}(tensor)")
        answer = tracer.asked(name, value, *rest)
        if answer is not ABSENT:
            return answer
        if kind in (int, float, complex):
            tracer.inside(value)
            symbolic = isinstance(
                value, SYMBOLIC) and SYMBOLIC_FORMS.get(kind)
            return tracer.native(symbolic or kind, (value, *rest), more)
        value = settled(value)
        if kind is format and type(value).__format__ is object.__format__:
            return tracer.call(str, (value,))
        tracer.as_text(value)
        return tracer.native(kind, (value, *rest), more)
    return asking


for _kind in (int, float, complex, str, repr, format):
    rule(_kind)(_asking(_kind, f"__{_kind.__name__}__"))
rule(ascii)(_asking(ascii, "__repr__"))


@rule(hash)
def _hash(tracer, value):
    value = settled(value)
    answer = tracer.asked("__hash__", value)
    if answer is not ABSENT:
        return answer
    if type(value) is not tuple and type(value) not in CONSTANTS:
        raise unsupported("builtin", f"hash of a {type(value).__name__}")
    return hash(tuple(_hash(tracer, item) for item in value) if type(
        value) is tuple else value)


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


# Methods of dicts from outside


class Items(MutableMapping):
    """A dict from outside, as the traced program is to see it."""

    def __init__(self, tracer, mapping: dict):
        self.tracer, self.mapping = tracer, mapping
        self.outside = tracer.outside
        self.overlay = self.outside.items(mapping)

    def __contains__(self, key):
        return self.tracer.has_item(self.mapping, key)

    def __getitem__(self, key):
        if key not in self:
            raise KeyError(key)
        return self.outside.read(self.overlay, key)

    def __missing__(self, key):
        make = attributes.load(self.tracer, self.mapping, "default_factory")
        self[key] = self.tracer.call(make)
        return self[key]

    def __setitem__(self, key, value):
        self.outside.write(self.overlay, key, value)

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self[key] = ABSENT

    def __len__(self):
        return len(self.outside.keys(self.overlay))

    def __iter__(self):
        return iter(self.outside.resolve(self.mapping))

    def __ior__(self, other):
        self.update(other)
        return self.mapping

    def keys(self):
        return self.outside.resolve(self.mapping).keys()

    def values(self):
        return self.outside.resolve(self.mapping).values()

    def items(self):
        return self.outside.resolve(self.mapping).items()

    def copy(self):
        if isinstance(self.mapping, defaultdict):
            raise unsupported("builtin", "copying a defaultdict from "
                              "outside")
        return self.outside.resolve(self.mapping).copy()

    def popitem(self):
        keys = self.outside.keys(self.overlay)
        if not keys:
            raise KeyError("popitem(): dictionary is empty")
        return keys[-1], self.pop(keys[-1])

    def update(self, other=(), /, **more):
        for key, value in [*pairs(self.tracer, other), *more.items()]:
            self[key] = value


#: The methods of dicts that are those of Items.
DICT_METHODS = {name for name in (*dir(dict), "__missing__")
                if callable(getattr(Items, name, None))} - {*dir(object)}


def method_rule(tracer, owner, unbound):
    """The rule for a C method of `owner`, or None."""
    name = unbound.__name__
    if tracer.outside.is_dict(owner) and name in DICT_METHODS:
        return lambda tracer, owner, *args, **kwargs: tracer.native(
            getattr(Items(tracer, owner), name), args, kwargs)
    return registered(unbound)
