"""Operators as Python does them: whose method is asked, in which order.

In: an operator and two values. Out: its result, recorded if a value is a
tensor. A method written in Python is followed; which goes first, and
what is done if neither knows, is the language's rule. PyTorch's is
torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import operator

import torch

from ..core.sizes import SYMBOLIC
from . import attributes
from .constant_types import ABSENT, CONSTANTS

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
    """What a method written in Python says to an operator."""
    said = tracer.asked(name, value, other)
    if said is not ABSENT:
        return said
    if name != "__ne__" or type(value).__ne__ is not object.__ne__:
        return NotImplemented
    equal = answer(tracer, "__eq__", value, other)
    return equal if equal is NotImplemented else not tracer.truth(equal)


def unlike(tracer, value, other) -> bool:
    """Whether no C code of the value's class knows how to compare."""
    if type(value) in CONSTANTS:
        return not isinstance(other, (type(value), *SYMBOLIC)) and (
            tracer.python_method(other, "__eq__") is not None)
    return type(value).__eq__ is object.__eq__ or (
        tracer.python_method(value, "__eq__") is not None)
