"""Arguments that no node takes as they are: lists, an `out=`, NumPy's.

In: a call whose arguments are no plain values. Out: what the node is
given for them, or a refusal. An operator on lists, which torch.optim
calls, becomes one operator for each tensor, so that they fuse; numbers
that depend on the step count stay tensors. PyTorch's are in
torch/_dynamo/variables/torch.py and optimizer.py, and in Inductor's
lowering of foreach.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import operator

import torch

from ...core.scalars import SCALARS
from ..reasons import unsupported
from ..recorder import CAREFUL, CONVERSIONS, leaves
from ..rules import rule

#: Functions that look at the class of a number, not only at its value.
BY_CLASS = {torch.tensor, torch.as_tensor, torch.asarray, "new_tensor",
            "__setitem__", operator.setitem}


def numpy_number(recorder, value) -> int | float:
    """A number of NumPy's as Python's own."""
    if recorder.target in BY_CLASS:
        raise unsupported("argument", type(value).__name__)
    return SCALARS[type(value)](value)


def member(recorder, value: enum.Enum) -> int | str:
    """The number or string that a member of an enumeration is."""
    if not isinstance(value, (int, str)):
        raise unsupported("argument", type(value).__name__)
    return value.value


def check_out(recorder, target, function, args, kwargs) -> None:
    """Refuse an `out=` that eager would resize, cast to, or refuse."""
    rest = {**kwargs}
    if (out := rest.pop("out")) is None:
        return
    mine, its = ([(part.shape, part.dtype) for part in leaves(value)]
                 for value in (out, recorder.compute(
                     target, function, args, rest)))
    if mine != its:
        raise unsupported("effect", "out= of another shape or dtype")


CONVERSIONS[tuple(SCALARS)] = numpy_number
CONVERSIONS[enum.Enum] = member
CAREFUL["out"] = check_out


@rule(torch.autograd.profiler.record_function)
def _record_function(tracer, name, *more):
    return tracer.own(contextlib.nullcontext())


@rule(torch._C._group_tensors_by_device_and_dtype)
def _grouped(tracer, *args, **kwargs):
    """Fake tensors answer for their devices: nobody need watch it."""
    return tracer.own(
        torch._C._group_tensors_by_device_and_dtype(*args, **kwargs))


def foreach(function, tracer, *args, **kwargs):
    """An operator on lists, one tensor after the other if that can be."""
    name = function.__name__.removeprefix("_foreach_")
    home = torch.Tensor if name.endswith("_") else torch
    one = NAMES.get(name) or getattr(home, name, None)
    args = [list(tracer.iterate(a)) if k > 2 and torch.is_tensor(a) else a
            for k, a in enumerate(args)]  # the factors of addcdiv
    lists = [a for a in args if isinstance(a, (list, tuple))]
    if one is None or len({*map(len, lists)}) != 1:
        return tracer.recorder.function(function, args, kwargs)
    made = []
    for k in range(len(lists[0])):
        each = [a[k] if isinstance(a, (list, tuple)) else a for a in args]
        more = dict(kwargs)
        if name.startswith("addc") and len(each) > 3:
            more["value"] = each.pop()
        made.append(tracer.call(one, each, more))
    if name.endswith("_"):
        return args[0] if RETURNS_ITS_LIST else None
    return tuple(made)


#: Whether an operator that writes to a list returns it, in this torch.
RETURNS_ITS_LIST = torch._foreach_neg_([torch.zeros(1)]) is not None

#: Where the operator on one tensor has another name.
NAMES = {"norm": torch.linalg.vector_norm}


def scaled_product(name: str, tracer, *args, **kwargs):
    """`x.addcdiv_(a, b, value=v)` and its like, where v may be a tensor."""
    value = kwargs.get("value")
    if not isinstance(value, torch.Tensor) or len(args) != 3:
        return tracer.recorder.method(name, args, kwargs)
    owner, one, other = args
    op = operator.truediv if "div" in name else operator.mul
    term = tracer.binary(op, tracer.binary(operator.mul, value, one), other)
    add = "add_" if name.endswith("_") else "add"
    return tracer.recorder.method(add, (owner, term), {})


for _name in dir(torch):
    if _name.startswith("_foreach_"):
        _function = getattr(torch, _name)
        rule(_function)(functools.partial(foreach, _function))
for _name in ("addcmul", "addcmul_", "addcdiv", "addcdiv_"):
    rule(getattr(torch.Tensor, _name))(
        functools.partial(scaled_product, _name))
