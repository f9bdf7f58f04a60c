"""Text and numbers: what `str`, `int` and `hash` ask of an object.

In: a value. Out: the number or text that Python would make of it. A
method of the program's is followed, a symbol becomes a number as late as
can be, and a tensor has no values to tell. PyTorch's are in
torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import operator

import torch

from ..constant_types import ABSENT, is_constant
from ..reasons import unsupported
from ..rules import ASKING, ask, rule
from ..symbolic_shapes import settled

#: Numbers that sum() adds up with more digits, since Python 3.12.
REAL = {float, torch.SymFloat}


@rule(sum)
def _sum(tracer, values, start=0):
    values = tuple(tracer.iterate(values))
    kinds = {*map(type, values)}
    if not kinds.isdisjoint(REAL) and kinds <= {int, bool, *REAL}:
        return tracer.native(sum, (values, start))
    for value in values:
        start = tracer.binary(operator.add, start, value)
    return start


@rule(format)
def _format(tracer, value, spec=""):
    value = settled(value)
    if type(value).__format__ is object.__format__:
        return tracer.call(str, (value,))
    return ask(tracer, format, value, spec)


ASKING[format] = 2

for _method in (str.format, str.format_map, str.__mod__):
    rule(_method)(lambda tracer, text, *args, _method=_method, **kwargs:
                  tracer.natively(_method, (text, *args), kwargs, depth=2))


@rule(hash)
def _hash(tracer, value):
    value = settled(value)
    answer = tracer.asked("__hash__", value)
    if answer is not ABSENT:
        return answer
    if not is_constant(value) or tracer.is_made(value):
        raise unsupported("builtin", f"hash of a {type(value).__name__}")
    return tracer.natively(hash, (value,))
