"""Caches, loggers and installed libraries: einops, tqdm's disabled bars.

In: a function with a cache, a logger, or a function of a library that is
installed beside Python. Out: what it means in a trace. A cached function
of the program's is called for good, as eager would, unless it might see a
write that waits; the guards ask its cache for the result again. One of a
library is taken to depend on its arguments alone, so the trace follows it.
That is how einops parses its patterns. A logger that does not listen costs
a guard; a message is a graph break. PyTorch's are in
torch/_dynamo/variables/functions.py and misc.py.
"""

import functools
import logging
import operator
import sys
import traceback
from pathlib import Path
from types import FunctionType

import numpy
import torch

from ...core.guard import Call, home, is_a, is_constant, trusted
from ..reasons import unsupported
from ..recorder import settled
from ..rules import rule
from ..torch.subgraphs import unchanged
from .builtins import unless
from .callbacks import asking, is_featureless, look, really

# Functions with a cache


@rule(*(vars(kind)["__call__"] for kind in (
    functools._lru_cache_wrapper, numpy.ufunc)))
def cached(tracer, function, /, *args, **kwargs):
    """The value that the cache holds for these arguments.

    A library's function is followed at each trace, and must change
    nothing: eager runs it once. A logger's own, such as transformers'
    `warning_once`, is called after the graph; its cache knows whether the
    message was sent before.
    """
    outside, inner = tracer.outside, getattr(function, "__wrapped__", None)
    name = getattr(function, "__name__", "cached")
    if is_a(next(iter(args), None), logging.Logger):
        if kwargs or vars(logging.Logger).get(name) != function:
            raise unsupported("effect", f"{name}, cached,")
        return outside.pending.append(lambda: [(function, *args)])
    if type(inner) is FunctionType and home(inner) != "typing" and (
            is_installed(home(inner))
            and is_hashable((args, (*kwargs.values(),)))):
        with unchanged(tracer, "effect", f"{name}, cached,"):
            return tracer.call(inner, args, kwargs)
    args = settled(args)
    for value in (*args, *kwargs.values()):
        if outside.is_outside(value) and is_featureless(type(value)):
            look(tracer, value)
        elif not is_constant(value) or tracer.is_made(value):
            raise unsupported("builtin", f"{name}, cached,")
    if inner and any(call for ask in outside.pending for call in ask()):
        raise unsupported("effect", f"{name}, cached,")
    result = really(tracer, function, args, kwargs)
    if is_constant(result) and (
            inner is None or is_installed(home(inner))):
        return result
    if isinstance(result, torch.Tensor):
        raise unsupported("builtin", f"{name}, cached,")
    again = functools.partial(function, *args, **kwargs)
    return outside.admit(result, Call(
        outside.found_at(operator.call), outside.constant(again, name)))


def is_hashable(value) -> bool:
    """Whether a cache takes a value as a key, at any depth."""
    if is_a(value, tuple):
        return all(map(is_hashable, value))
    return type(value).__hash__ is not None


#: The folders of libraries: Python's own, a user's, a distribution's.
INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def is_installed(module: str) -> bool:
    """Whether a library has this code, which no program is read by."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return trusted(module) or not INSTALLED.isdisjoint(Path(file).parts)


@rule(("torch._dynamo.mutation_guard",
       "install_generation_tagging_init.<locals>.patched_init"))
def _tagged(function, tracer, *args, **kwargs):
    """Dynamo's wrapper of Module.__init__, once it ran in this process."""
    return tracer.enter(function.__closure__[-1].cell_contents, args,
                        kwargs)


# Log records

@rule(logging.Logger.isEnabledFor)
def _is_enabled(tracer, logger, level):
    """Whether a logger listens, guarded; what it hears is a break.

    Logger's own method is asked; a class's may be the one that is traced.
    """
    question = asking(logging.Logger.isEnabledFor, level=level)
    answer, outside = question(logger), tracer.outside
    outside.guard(Call(outside.found_at(question),
                       outside.found_at(logger)), "equal", answer)
    return answer


def is_not_ours(record: logging.LogRecord) -> bool:
    """Whether a record comes from no work of ours.

    PyTorch logs each operator that fails on fake tensors. If we ran it,
    the failure is a reason to stop, and eager raises the user's error.
    """
    return not any(
        frame.f_globals.get("__name__", "").startswith("minicompile.")
        for frame, _ in traceback.walk_stack(sys._getframe(1)))


logging.getLogger("torch._subclasses.fake_tensor").addFilter(is_not_ours)


# einops and tqdm


@rule(("einops._backends", "get_backend"))
def _backend(tracer, value):
    """The object by which einops calls torch, made at the first call."""
    from einops._backends import get_backend
    if not isinstance(value, torch.Tensor):
        raise unsupported("library", "einops without a tensor")
    backend = really(tracer, lambda: get_backend(torch.empty(0)))
    return tracer.outside.admit(
        backend, tracer.outside.constant(backend, "einops_for_torch"))


@rule(("tqdm.std", "tqdm.__new__"))
def _bar(tracer, kind, *args, **kwargs):
    """A progress bar; tqdm's list of those on the screen lacks it."""
    return tracer.own(object.__new__(kind))


@rule(("tqdm.std", "tqdm.__init__"))
def _start(tracer, bar, iterable=None, desc=None, total=None, leave=True,
           *, disable=False, initial=0, **rest):
    """A disabled bar keeps what it was given, and walks its iterable.

    One that is shown is a graph break.
    """
    if disable is None or not tracer.truth(disable):
        raise unsupported("effect", "a progress bar")
    if total is None:
        total = unless(Exception, (None,), tracer.call, len, (iterable,))
    vars(bar).update(iterable=iterable, disable=disable, n=initial,
                     leave=leave,
                     total=None if total == float("inf") else total)
