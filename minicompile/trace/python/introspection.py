"""Functions of Python that look at objects, exceptions and signatures.

In: a function of the standard library, called. Out: what it says of the
traced program, whose frames and exceptions the interpreter keeps.
PyTorch's are in torch/_dynamo/variables/builtin.py and misc.py.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import inspect
import operator
import re
import sys
import types
import weakref

from ...core.source import Call
from .. import attributes
from ..constant_types import IDENTITIES
from ..reasons import unsupported
from ..rules import rule


@rule(id)
def _id(tracer, value):
    outside = tracer.outside
    if (source := outside.source(value)) is not None:
        number = next(number for number, each in outside.values.items()
                      if each is value)
        outside.guard(Call(outside.constant(id, "id").code(), source),
                      "equal", number)
        return number
    copies = tracer.frames[-1].globals.get("__name__") == "copy"
    if not copies and (tracer.is_made(value)
                       or not isinstance(value, IDENTITIES)):
        raise unsupported("builtin", "id of what the function made")
    return id(value)


@rule(weakref.ref.__call__)
def _referent(tracer, reference):
    value, source = reference(), tracer.outside.source(reference)
    if source is None or value is None:
        raise unsupported("builtin", "weakref.ref")
    call = tracer.outside.constant(operator.call, "call").code()
    return tracer.outside.admit(value, Call(call, source))


@rule(types.MethodType)
def _method(tracer, function, owner):
    return types.MethodType(function, owner)


@rule(sys.exception)
def _exception(tracer):
    error = tracer.handled()
    if error is None and tracer.frames[-1].globals is not vars(contextlib):
        raise unsupported("builtin", "sys.exception")
    return error


@rule(sys.exc_info)
def _exc_info(tracer):
    error = _exception(tracer)
    return error and type(error), error, error and error.__traceback__


@rule(inspect.signature)
def _signature(tracer, function):
    plain = getattr(function, "__func__", function)
    if type(plain) is not types.FunctionType:
        raise unsupported("library", "inspect.signature of an object")
    return tracer.native(inspect.signature, (function,))


@rule(object.__reduce_ex__)
def _reduce(tracer, owner, protocol):
    parts = [owner, "__getstate__"], [owner, "__reduce__"], [
        owner, "__getnewargs__"], [owner, "__getnewargs_ex__"]
    if any(tracer.python_method(*part) for part in parts):
        raise unsupported("builtin", "__reduce_ex__")
    return (copyreg.__newobj__, (type(owner),),
            dict(tracer.mapping(attributes.load(
                tracer, owner, "__dict__"))))


# What makes something new, run as it is

for _make in (collections.namedtuple, re._compile):
    rule(_make)(lambda tracer, *args, _make=_make, **kwargs: tracer.own(
        tracer.native(_make, args, kwargs)))
