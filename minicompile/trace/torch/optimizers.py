"""An optimizer's step as tensor operations: rules for torch.optim.

In: what torch.optim calls that no graph can hold. Out: operators that it
can. Operators on lists become one operator for each tensor, so that they
fuse; numbers that depend on the step count stay tensors. PyTorch's is
torch/_dynamo/variables/optimizer.py, and Inductor's lowering of foreach.
"""

from __future__ import annotations

import contextlib
import operator

import torch

from .kinds import ABSENT
from .rules import rule


@rule(torch.autograd.profiler.record_function)
def _record_function(tracer, name, *more):
    return tracer.own(contextlib.nullcontext())


def foreach(tracer, name: str, args: tuple, kwargs: dict):
    """An operator on lists, one tensor after the other; or ABSENT."""
    name = name.removeprefix("_foreach_")
    home = torch.Tensor if name.endswith("_") else torch
    one = NAMES.get(name) or getattr(home, name, None)
    if one is None:
        return ABSENT
    args = [list(tracer.iterate(a)) if k > 2 and torch.is_tensor(a) else a
            for k, a in enumerate(args)]  # the factors of addcdiv
    lists = [a for a in args if isinstance(a, (list, tuple))]
    if len({*map(len, lists)}) != 1:
        return ABSENT
    made = []
    for k in range(len(lists[0])):
        each = [a[k] if isinstance(a, (list, tuple)) else a for a in args]
        more = dict(kwargs)
        if name.startswith("addc") and len(each) > 3:
            more["value"] = each.pop()
        made.append(tracer.call(one, each, more))
    return None if name.endswith("_") else tuple(made)


#: Where the operator on one tensor has another name.
NAMES = {"norm": torch.linalg.vector_norm}


def scaled(tracer, name: str, args: tuple, value: torch.Tensor):
    """`x.addcdiv_(a, b, value=v)` and its like, where v is a tensor."""
    owner, one, other = args
    op = operator.truediv if "div" in name else operator.mul
    term = tracer.binary(op, tracer.binary(operator.mul, value, one), other)
    add = "add_" if name.endswith("_") else "add"
    return tracer.recorder.method(add, (owner, term), {})
