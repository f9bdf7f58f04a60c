"""Callables written in C: getters, and functions with a cache.

In: such a callable and its arguments. Out: the result of the function
inside. One with a cache is called for good, as eager would. Its result
counts as an object that was there before, and the guards ask the cache
for it again. Torch is told that nobody traces, so that no fake tensor
stays in the cache. PyTorch's are in
torch/_dynamo/variables/functions.py.
"""

from __future__ import annotations

import functools
import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ...core.scalars import UFUNCS
from ...core.source import Call
from .. import attributes
from ..calls import CALLS
from ..constant_types import ABSENT, is_constant
from ..native import is_featureless, look
from ..reasons import unsupported
from ..symbolic_shapes import settled

#: What a function with a cache means; ABSENT where a row has no answer.
CACHED: list = []


def cached(tracer, function, args: tuple, kwargs: dict):
    """What the cache holds for these arguments."""
    outside, source = tracer.outside, tracer.outside.source(function)
    if source is not None:
        outside.guard(source, "is", function)
    rows = CACHED if getattr(
        function, "__module__", None) != "typing" else ()
    for meaning in rows:
        result = meaning(tracer, function, args, kwargs)
        if result is not ABSENT:
            return result
    args = settled(args)
    for value in (*args, *kwargs.values()):
        if outside.is_outside(value) and is_featureless(
                type(value)):
            look(tracer, value)
        elif not is_constant(value) or tracer.is_made(value):
            raise unsupported("builtin", f"{function.__name__}, cached,")
    with unset_fake_temporarily():
        result = tracer.native(function, args, kwargs)
    if is_constant(result):
        return result
    if isinstance(result, torch.Tensor):
        raise unsupported("builtin", f"{function.__name__}, cached,")
    again = functools.partial(function, *args, **kwargs)
    return outside.admit(result, Call(
        outside.constant(operator.call, "call").code(),
        outside.constant(again, getattr(function, "__name__", "cached"))))


def getter(tracer, function, args: tuple, kwargs: dict):
    """What an attrgetter or an itemgetter gets of an object."""
    [owner], (kind, names, *_) = args, function.__reduce__()
    if kind is operator.attrgetter:
        found = [functools.reduce(functools.partial(
            attributes.load, tracer), name.split("."), owner)
            for name in names]
    else:
        found = [tracer.item(owner, name) for name in names]
    return found[0] if len(found) == 1 else tuple(found)


for _kind in (operator.attrgetter, operator.itemgetter):
    CALLS[_kind] = getter
for _kind in (functools._lru_cache_wrapper, *UFUNCS):
    CALLS[_kind] = cached
