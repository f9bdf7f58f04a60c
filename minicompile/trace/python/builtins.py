"""Functions of Python: rules of what calls back or looks at objects.

In: a call of `sorted`, `isinstance`, `sum` or `id`. Out: what it gives.
A rule follows the program's own methods, makes a number of a symbol as
late as it can, and looks at the interpreter's frames and exceptions. C
code that calls back, such as `sorted`, runs on stand-ins that interpret.
PyTorch's are in torch/_dynamo/polyfills/ and
torch/_dynamo/variables/builtin.py.
"""

import abc
import collections
import copyreg
import functools
import inspect
import itertools
import math
import operator
import re
import types
import typing
import weakref

import torch

from ...core.guard import (ABSENT, CONSTANTS, IDENTITIES, Call, home, is_a,
                           is_constant, trusted)
from .. import attributes
from ..attributes import type_of
from ..frame import load_cell
from ..reasons import Raised, unsupported
from ..recorder import settled
from ..rules import GIVING, ask, means, rule
from .callbacks import (Callback, Compared, in_python, is_compared,
                        is_featureless, look, pin, polyfill)
from .objects import same


def ordered(tracer, function, first, *more, key=None, **options):
    """C code steps through values, and compares what it looks at."""
    if more and key is None and not options and not any(
            is_compared(tracer, value) for value in (first, *more)):
        return tracer.natively(function, (first, *more))
    steps = iter((first, *more)) if more else (
        first if function is list.sort else tracer.iterate(first))
    return tracer.native(function, (steps,), {**options, "key": Callback(
        tracer, key, lambda value: Compared(tracer, value) if is_compared(
            tracer, value) else look(tracer, value))})


def each(tracer, function, given, values, *first):
    """C code calls a function of the program's for each value."""
    then = None if function is functools.reduce else tracer.truth
    return tracer.native(function, (
        Callback(tracer, given, then), tracer.iterate(values), *first))


means(ordered, sorted, min, max, list.sort)
means(each, functools.reduce, filter, itertools.filterfalse,
      itertools.takewhile, itertools.dropwhile)
means(lambda tracer, function, values: tracer.native(function, (map(
    Callback(tracer, None, tracer.truth), tracer.iterate(values)),)),
    any, all)


# Text and numbers

#: Numbers that sum() adds up with more digits, since Python 3.12.
REAL = {float, torch.SymFloat}


@rule(sum)
def _sum(tracer, values, start=0):
    values = tracer.unpacked(values)
    kinds = {*map(type, values)}
    if not kinds.isdisjoint(REAL) and kinds <= {int, bool, *REAL}:
        return tracer.native(sum, (values, start))
    return tracer.call(functools.reduce, (operator.add, values, start))


rule(math.prod)(lambda tracer, values, *, start=1: tracer.call(
    functools.reduce, (operator.mul, values, start)))
rule(torch.Size.numel)(lambda tracer, size: tracer.call(math.prod, (size,)))
rule(divmod)(lambda tracer, *pair: tuple(
    tracer.call(part, pair) for part in (operator.floordiv, operator.mod)
    ) if {*map(type, pair)} <= {int, torch.SymInt} else tracer.natively(
        divmod, pair))

UNARY = {operator.neg, operator.pos, operator.invert, operator.abs, abs,
         round}
GIVING |= UNARY

means(ask, *UNARY, reversed, str, repr, int, float, complex,
      operator.index)
rule(format)(lambda tracer, value, spec="": ask(
    tracer, format, value, spec))
rule(ascii)(lambda tracer, value: tracer.call(repr, (value,)).encode(
    "ascii", "backslashreplace").decode())
rule(object.__format__)(
    lambda tracer, value, spec: tracer.native(
        object.__format__, (value, spec)) if spec else tracer.call(
            str, (value,)))


@rule(hash)
def _hash(tracer, value):
    value = settled(value)
    answer = tracer.asked("__hash__", value)
    if answer is not ABSENT:
        return answer
    if not is_constant(value) or tracer.is_made(value):
        raise unsupported("builtin", f"hash of a {type(value).__name__}")
    return tracer.natively(hash, (value,))


# Questions about objects

UNIONS = typing.Union, types.UnionType


def judged(tracer, function, value, kinds):
    """The answer of several classes, of a user's check, or of C code.

    That of an abstract class is guarded: others can be registered with it.
    """
    if type(kinds) is tuple or typing.get_origin(kinds) in UNIONS:
        return any(tracer.call(function, (value, each)) for each in (
            getattr(kinds, "__args__", kinds)))
    kind = type_of(value) if function is isinstance else value
    if function is isinstance and kind is kinds:
        return True
    check = in_python(tracer, kinds, f"__{function.__name__[2:]}check__")
    if check is not None and not trusted(home(check)):
        return tracer.truth(tracer.call(check, (kinds, value)))
    if isinstance(kinds, type(torch.FloatTensor)):
        raise unsupported("builtin", "isinstance of a typed tensor")
    if getattr(kinds, "_is_protocol", False):
        raise unsupported("builtin", f"{function.__name__} of a Protocol")
    if is_a(kind, type):
        attributes.rely_on(tracer, kind)
    if isinstance(kinds, abc.ABCMeta):
        answer = tracer.native(issubclass, (kind, kinds))
        if any(attributes.kept_in(tracer, each) for each in (kind, kinds)):
            tracer.outside.relate(f"issubclass({{}}) is {answer}", *map(
                tracer.outside.constant, (kind, kinds)))
    if kind is not type(value):  # it stands for one of that class
        function, value = issubclass, kind
    return tracer.native(function, (value, kinds))


means(judged, isinstance, issubclass)


def unless(error: type, default: tuple, function, *args):
    """The result of a function, or the default if it raises `error`."""
    try:
        return function(*args)
    except Raised as raised:
        if default and isinstance(raised.exception, error):
            return default[0]
        raise


@rule(getattr)
def _getattr(tracer, owner, name, *default):
    return unless(AttributeError, default, attributes.load_attr, tracer,
                  owner, name)


@polyfill(vars)
def _vars(owner, /):
    if not hasattr(owner, "__dict__"):
        raise TypeError("vars() argument must have __dict__ attribute")
    return owner.__dict__


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
            tracer, owner if is_a(owner, type) else type(owner))
    return tracer.native(super, args)


@rule(super.__getattribute__)
def of_super(tracer, owner: super, name: str):
    """`owner.name`, searched behind the class that `owner` is given."""
    pin(tracer, owner)
    target, kind = owner.__self__, owner.__self_class__
    found, place = attributes.lookup(tracer, kind, name,
                                     owner.__thisclass__)
    if found is ABSENT:
        raise attributes.no_attribute(owner, name)
    return attributes.as_shown(tracer, found, place, ABSENT if (
        target is kind) else target, kind)


rule(type)(lambda tracer, value: type_of(value))
rule(hasattr)(lambda tracer, owner, name: _getattr(
    tracer, owner, name, ABSENT) is not ABSENT)
rule(callable)(lambda tracer, value: attributes.method(
    tracer, type_of(value), "__call__") is not ABSENT)
rule(pow)(lambda tracer, *values: tracer.natively(pow, values) if (
    values[2:]) else tracer.binary(operator.pow, *values))
rule(operator.not_)(lambda tracer, value: not tracer.truth(value))
rule(operator.is_)(same)
rule(operator.is_not)(lambda tracer, a, b: not same(tracer, a, b))
rule(next)(lambda tracer, iterator, *default: unless(
    StopIteration, default, ask, tracer, next, iterator))
rule(object.__getattribute__)(attributes.generic)

# Objects, exceptions, signatures


@rule(id)
def _id(tracer, value):
    outside = tracer.outside
    if (source := outside.source(value)) is not None:
        number = id(outside.real(value))
        outside.guard(Call(outside.found_at(id), source), "equal", number)
        return number
    copies = tracer.frames[-1].globals.get("__name__") == "copy"
    if not copies and (tracer.is_made(value) or type(value) in CONSTANTS
                       or not is_a(value, IDENTITIES)):
        raise unsupported("builtin", "id of what the function made")
    return id(value)


@rule(weakref.ref.__call__)
def _referent(tracer, reference):
    value, source = reference(), tracer.outside.source(reference)
    if source is None or value is None:
        raise unsupported("builtin", "weakref.ref")
    return tracer.outside.admit(value, Call(
        tracer.outside.found_at(operator.call), source))


@rule(inspect.signature)
def _signature(tracer, function):
    plain = getattr(function, "__func__", function)
    if type(plain) is not types.FunctionType:
        raise unsupported("library", "inspect.signature of an object")
    if not tracer.is_made(plain):
        ask, place, known = map(tracer.outside.found_at, (
            inspect.signature, plain, inspect.signature(plain)))
        tracer.outside.relate("{0} == {1}", Call(ask, place), known)
    return tracer.native(inspect.signature, (function,))


@rule(object.__reduce_ex__)
def _reduce(tracer, owner, protocol):
    kind = type(owner)  # whose state may be more than a `__dict__`
    if not is_featureless(kind) or copyreg._slotnames(kind) or any(
            in_python(tracer, owner, f"__{name}__") for name in (
                "getstate", "reduce", "getnewargs", "getnewargs_ex")):
        raise unsupported("builtin", "__reduce_ex__")
    return copyreg.__newobj__, (kind,), dict(tracer.mapping(
        attributes.load_attr(tracer, owner, "__dict__")))


@rule(operator.attrgetter.__call__, operator.itemgetter.__call__)
def _getter(tracer, getter, owner):
    """The value that an attrgetter or an itemgetter gets of an object."""
    pin(tracer, getter)
    kind, names, *_ = getter.__reduce__()
    found = [functools.reduce(
        functools.partial(attributes.load_attr, tracer), name.split("."),
        owner) if kind is operator.attrgetter else tracer.ask(
            operator.getitem, owner, name) for name in names]
    return found[0] if len(found) == 1 else tuple(found)


@polyfill(functools.partial.__call__)
def _partial(self, /, *args, **kwargs):
    return self.func(*self.args, *args, **{**self.keywords, **kwargs})


# Constructors of new objects, run as they are

means(lambda tracer, make, /, *args, **kwargs: tracer.own(
    tracer.native(make, args, kwargs)), collections.namedtuple,
    re._compile, types.MethodType)
