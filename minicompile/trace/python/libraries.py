"""Installed libraries: their caches, einops, tqdm's disabled bars.

In: a function of a library that is installed beside Python. Out: what it
means in a trace. A library's cached function is taken to depend on its
arguments alone, so the trace follows it as if it had no cache. That is
how einops parses its patterns: `rearrange`, `reduce` and `repeat` leave
the plain operators in the graph, and take sizes that vary. PyTorch
inlines cached functions too: torch/_dynamo/variables/functions.py.
"""

from __future__ import annotations

from functools import _lru_cache_wrapper
from types import FunctionType

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..constant_types import ABSENT
from ..reasons import Raised, unsupported
from ..rules import rule
from ..torch.subgraphs import unchanged
from .callables import CACHED
from .messages import is_installed


def uncached(tracer, function, args: tuple, kwargs: dict):
    """What a library's cached function gives, followed at each trace.

    It must change nothing: eager runs it once, and a trace at each call.
    """
    inner = getattr(function, "__wrapped__", None)
    given = args, (*kwargs.values(),)
    if not isinstance(function, _lru_cache_wrapper) or not is_hashable(
            given) or type(inner) is not FunctionType or not is_installed(
            inner.__module__):
        return ABSENT
    with unchanged(tracer, "effect", f"{inner.__qualname__}, cached,"):
        return tracer.call(inner, args, kwargs)


def is_hashable(value) -> bool:
    """Whether a cache takes a value as a key, at any depth."""
    if isinstance(value, tuple):
        return all(map(is_hashable, value))
    return type(value).__hash__ is not None


CACHED.append(uncached)


@rule(("einops._backends", "get_backend"))
def _backend(tracer, value):
    """The object by which einops calls torch, made at the first call."""
    from einops._backends import get_backend
    if not isinstance(value, torch.Tensor):
        raise unsupported("library", "einops without a tensor")
    with unset_fake_temporarily():
        backend = tracer.native(get_backend, (torch.empty(0),))
    return tracer.outside.admit(
        backend, tracer.outside.constant(backend, "einops_for_torch"))


# tqdm


@rule(("tqdm.std", "tqdm.__new__"))
def _bar(tracer, kind, *args, **kwargs):
    """A progress bar; tqdm's list of those on the screen lacks it."""
    return tracer.own(object.__new__(kind))


@rule(("tqdm.std", "tqdm.__init__"))
def _start(tracer, bar, iterable=None, desc=None, total=None, leave=True,
           *more, disable=False, initial=0, **rest):
    """A disabled bar keeps what it was given, and walks its iterable.

    One that is shown is a graph break.
    """
    if more or disable is None or not tracer.truth(disable):
        raise unsupported("effect", "a progress bar")
    if total is None and iterable is not None:
        try:
            total = tracer.call(len, (iterable,))
        except Raised:
            total = None
    vars(bar).update(iterable=iterable, disable=disable, n=initial,
                     leave=leave,
                     total=None if total == float("inf") else total)
