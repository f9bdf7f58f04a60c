"""The meaning of operators and builtins in a trace: a table of rules.

In: a callable. Out: its rule, if it has one: a function of the tracer and
the arguments. An operator asks the methods that Python would ask, in the
same order, and follows those written in Python. `HARMLESS` lists the C
functions that may run natively: they change nothing and look only at
their arguments. PyTorch's tables are torch/_dynamo/trace_rules.py.
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

from ..core.sizes import SYMBOLIC
from . import attributes
from .constant_types import ABSENT, CONSTANTS
from .frame import load_cell
from .reasons import Raised, unsupported
from .recorder import leaves

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes that may run natively.
HARMLESS: set = {getattr(builtins, name) for name in """all any bin
    bytearray bytes chr classmethod divmod enumerate filter hex list map
    max min oct ord pow property range slice sorted staticmethod sum tuple
    zip""".split()} | {
    os.fspath, deque, defaultdict, types.MappingProxyType,
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
    """A rule's result; wrong arguments are the program's TypeError."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError:
        try:
            inspect.signature(rule).bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise Raised(error) from None
        raise


# Operators

_ARITHMETIC = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod",
               "or_", "pow", "rshift", "sub", "truediv", "xor")

COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge,
               operator.eq, operator.ne}

#: Operators, and the methods Python tries for them: left's, right's.
DUNDERS = {
    **{getattr(operator, name): (f"__{name.strip('_')}__",
                                 f"__r{name.strip('_')}__")
       for name in _ARITHMETIC},
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"),
    operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
    operator.eq: ("__eq__", "__eq__"), operator.ne: ("__ne__", "__ne__")}

#: In-place operators, and the operators they fall back on.
INPLACE = {getattr(operator, f"i{name.strip('_')}"): getattr(operator, name)
           for name in _ARITHMETIC}


def binary(tracer, op, left, right):
    """`left op right`: recorded, run natively, or a user's method."""
    if type(left) is str and op is operator.mod:
        return tracer.natively(op, (left, right), depth=2)
    if op is operator.iadd and type(left) is list is not type(right):
        return tracer.native(op, (left, tracer.unpacked(right)))
    plain = INPLACE.get(op, op)
    if op is operator.ior and tracer.outside.is_dict(left):
        return tracer.call(dict.__ior__, (left, right))
    rows = order(tracer, plain, left, right)
    if plain is not op:
        rows.insert(0, (f"__{op.__name__}__", left, right))
    for name, a, b in rows:
        if isinstance(a, torch.Tensor):
            if a is left and stranger(tracer, DUNDERS[plain][1], b):
                continue
            return tracer.recorder.function(
                op if a is left else plain, (left, right), {})
        result = answer(tracer, name, a, b)
        if result is not NotImplemented:
            return result
    if plain in (operator.eq, operator.ne) and (
            unlike(tracer, left, right) and unlike(tracer, right, left)):
        return tracer.same(left, right) is (plain is operator.eq)
    deep = plain in COMPARISONS and not {type(left),
                                         type(right)} & CONSTANTS
    return tracer.natively(op, (left, right), depth=int(deep))


def order(tracer, op, left, right) -> list[tuple]:
    """The methods Python tries for an operator, and their arguments."""
    name, other = DUNDERS[op]
    rows, both = [(name, left, right)], (type(left), type(right))
    if op in COMPARISONS or both[0] is not both[1]:
        rows.append((other, right, left))
    first = both[0] is not both[1] and issubclass(*both[::-1]) and (
        op in COMPARISONS or attributes.lookup(tracer, both[0], other)
        != attributes.lookup(tracer, both[1], other))
    return rows[::-1] if first else rows


def stranger(tracer, name: str, value) -> bool:
    """Whether a tensor leaves an operator to this value's own method."""
    return not isinstance(value, (torch.Tensor, int, float, complex)) and (
        tracer.python_method(value, name) is not None
        and not hasattr(type(value), "__torch_function__"))


def answer(tracer, name: str, value, other):
    """The result of an operator's Python method, or NotImplemented."""
    said = tracer.asked(name, value, other)
    if said is not ABSENT:
        return said
    if name != "__ne__" or type(value).__ne__ is not object.__ne__:
        return NotImplemented
    equal = answer(tracer, "__eq__", value, other)
    return equal if equal is NotImplemented else not tracer.truth(equal)


def unlike(tracer, value, other) -> bool:
    """Whether no C code of the value's class can do the comparison."""
    if type(value) in CONSTANTS:
        return not isinstance(other, (type(value), *SYMBOLIC)) and (
            tracer.python_method(other, "__eq__") is not None)
    return type(value).__eq__ is object.__eq__ or (
        tracer.python_method(value, "__eq__") is not None)


# Questions about objects

#: The class of classes such as torch.FloatTensor.
TYPED = type(torch.FloatTensor)


@rule(isinstance)
def _isinstance(tracer, value, kinds):
    kind = attributes.type_of(value)
    if kind is type(value):
        attributes.rely_on(tracer, kind)
        return tracer.native(isinstance, (value, kinds))
    if any(isinstance(each, TYPED) for each in leaves((kinds,))):
        raise unsupported("builtin", "isinstance of a typed tensor")
    return tracer.native(issubclass, (kind, kinds))


@rule(issubclass)
def _issubclass(tracer, kind, kinds):
    if isinstance(kind, type):
        attributes.rely_on(tracer, kind)
    return tracer.native(issubclass, (kind, kinds))


@rule(type)
def _type(tracer, value, *more):
    if more:
        raise unsupported("builtin", "type with three arguments")
    return attributes.type_of(value)


@rule(len)
def _len(tracer, value):
    outside = tracer.outside
    if outside.is_dict(value) and not tracer.python_method(
            value, "__len__"):
        return len(outside.keys(outside.space("items", value)))
    return ask(tracer, len, value)


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
        return attributes.load_attr(tracer, owner, name)
    except Raised as raised:
        if default and isinstance(raised.exception, AttributeError):
            return default[0]
        raise


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


@rule(next)
def _next(tracer, iterator, *default):
    try:
        return ask(tracer, next, iterator)
    except Raised as raised:
        if default and isinstance(raised.exception, StopIteration):
            return default[0]
        raise


#: Functions that give a tensor if they are given one.
UNARY = (operator.neg, operator.pos, operator.invert, operator.abs, abs,
         round)

#: Functions that ask a method of their first argument, and how deep they
#: look if it is written in C.
ASKING = {
    **dict.fromkeys((*UNARY, reversed, int, float, operator.index), 0),
    **dict.fromkeys((complex, str, repr, ascii), 2)}


def ask(tracer, function, *values, **more):
    """The result of a method written in Python, or of the C function."""
    name = "repr" if function is ascii else function.__name__
    if not values:
        return tracer.native(function, (), more)
    if function in UNARY and isinstance(values[0], torch.Tensor):
        return tracer.recorder.function(function, values, more)
    answer = tracer.asked(f"__{name}__", *values)
    return answer if answer is not ABSENT else tracer.natively(
        function, values, more, ASKING.get(function, 0))


#: Operations of the tracer's, and the functions that mean the same.
OPERATIONS = {
    "truth": (operator.truth, bool), "same": (operator.is_,),
    "contains": (operator.contains,), "item": (operator.getitem,),
    "set_item": (operator.setitem, operator.delitem)}


def operation(name: str, *first):
    """The rule that calls a method of the tracer's."""
    return lambda tracer, *values: getattr(tracer, name)(*first, *values)


for _name, _functions in OPERATIONS.items():
    rule(*_functions)(operation(_name))
for _op in (*DUNDERS, *INPLACE):
    rule(_op)(operation("binary", _op))
for _function in ASKING:
    rule(_function)(lambda tracer, *values, _ask=_function, **more: ask(
        tracer, _ask, *values, **more))

#: Functions whose meaning takes a line.
SHORT = {
    hasattr: lambda tracer, owner, name: _getattr(
        tracer, owner, name, ABSENT) is not ABSENT,
    callable: lambda tracer, value: attributes.lookup(
        tracer, attributes.type_of(value), "__call__")[0] is not ABSENT,
    pow: lambda tracer, *values: tracer.natively(pow, values) if (
        values[2:]) else tracer.binary(operator.pow, *values),
    operator.not_: lambda tracer, value: not tracer.truth(value),
    operator.is_not: lambda tracer, a, b: not tracer.same(a, b),
    setattr: lambda tracer, a, name, value: attributes.store_attr(
        tracer, a, name, value),
    object.__setattr__: lambda tracer, a, name, value:
        attributes.store_plain(tracer, a, name, value),
    delattr: attributes.store_attr,
    object.__delattr__: attributes.store_plain,
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


WRITING |= {"__contains__": operation("has_item"),
            "__getitem__": operation("dict_item"),
            "__setitem__": operation("set_dict_item"),
            "__delitem__": operation("set_dict_item")}
