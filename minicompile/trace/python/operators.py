"""Operators on objects: the methods of both, in the order Python asks.

In: an operator with a user's object, or a container, on one of its sides.
Out: the result of the method that does not decline. One that is written
in Python is followed; a tensor's is recorded; others run as they are.
PyTorch's are in torch/_dynamo/variables/user_defined.py and builtin.py.
"""

from __future__ import annotations

import operator

import torch

from .. import attributes
from ..constant_types import ABSENT, CONSTANTS
from ..reasons import WAYS
from ..rules import ARITHMETIC, COMPARISONS, INPLACE, rule
from ..symbolic_shapes import settled

#: Operators, and the methods Python tries for them: left's, right's.
DUNDERS = {
    **{getattr(operator, name): (f"__{name.strip('_')}__",
                                 f"__r{name.strip('_')}__")
       for name in ARITHMETIC},
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"),
    operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
    operator.eq: ("__eq__", "__eq__"), operator.ne: ("__ne__", "__ne__")}


def ask_objects(tracer, op, left, right):
    """`left op right`: a user's method, recorded, or run natively."""
    plain = INPLACE.get(op, op)
    all_decline = plain in (operator.eq, operator.ne)
    rows = order(tracer, plain, left, right)
    if plain is not op:
        rows.insert(0, (f"__{op.__name__}__", left, right))
    for name, a, b in rows:
        if isinstance(a, torch.Tensor):
            if a is left and stranger(tracer, DUNDERS[plain][1], b):
                continue
            return tracer.recorder.function(
                op if a is left else plain, (left, right), {})
        answer = tracer.asked(name, a, b)
        if answer is ABSENT and all_decline and type(a) in CONSTANTS:
            answer = tracer.native(getattr(type(a), name), (a, b))
        if answer is ABSENT:
            all_decline = False
        elif answer is not NotImplemented:
            return answer
    if all_decline:
        return tracer.same(left, right) is (plain is operator.eq)
    kinds = {type(left), type(right)}
    if any(issubclass(kind, int) for kind in kinds - {int}):
        left, right = settled(left), settled(right)  # True == a symbol
    deep = plain in COMPARISONS and not kinds & CONSTANTS
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


WAYS["operator"] = ask_objects


@rule(object.__eq__)
def _equal(tracer, one, other):
    return tracer.same(one, other) or NotImplemented


@rule(object.__ne__)
def _unequal(tracer, one, other):
    equal = tracer.asked("__eq__", one, other)
    return equal if equal is NotImplemented else not tracer.truth(equal)
