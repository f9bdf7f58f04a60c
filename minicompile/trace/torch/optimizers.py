"""An optimizer's step as tensor operations: rules for torch.optim.

In: what torch.optim calls that no graph can hold. Out: operators that it
can. Operators on lists become one operator for each tensor, so that they
fuse; numbers that depend on the step count stay tensors. PyTorch's is
torch/_dynamo/variables/optimizer.py, and Inductor's lowering of foreach.
"""

from __future__ import annotations

import contextlib
import functools
import operator

import torch

from ..rules import rule


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
