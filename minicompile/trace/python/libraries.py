"""Caches, messages and installed libraries: einops, tqdm's disabled bars.

In: a function with a cache, `warnings.warn`, a logger, or a function of a
library that is installed beside Python. Out: what it means in a trace. A
cached function of the program's is called for good, as eager would; the
guards ask its cache for the result again. One of a library is taken to
depend on its arguments alone, so the trace follows it. That is how einops
parses its patterns. A message becomes a call for `finish` to make at each
run; where user code would be asked, it stays a graph break. PyTorch's are
in torch/_dynamo/variables/functions.py and misc.py.
"""

from __future__ import annotations

import functools
import logging
import operator
import sys
import sysconfig
import warnings
from types import FunctionType

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ...core.sizes import SYMBOLIC, UFUNCS
from ...core.guard import Call
from .. import attributes
from ..constant_types import ABSENT, CONSTANTS, is_constant, trusted
from ..reasons import Raised, unsupported
from ..recorder import settled
from ..rules import look, rule
from ..torch.subgraphs import unchanged
from .callbacks import is_featureless

# Functions with a cache


@rule(*(vars(kind)["__call__"] for kind in (
    functools._lru_cache_wrapper, *UFUNCS)))
def cached(tracer, function, /, *args, **kwargs):
    """The value that the cache holds for these arguments."""
    outside, source = tracer.outside, tracer.outside.source(function)
    if source is not None:
        outside.guard(source, "is", function)
    if getattr(function, "__module__", None) != "typing":
        result = uncached(tracer, function, args, kwargs)
        if result is not ABSENT:
            return result
    args = settled(args)
    for value in (*args, *kwargs.values()):
        if outside.is_outside(value) and is_featureless(type(value)):
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
        outside.found_at(operator.call),
        outside.constant(again, getattr(function, "__name__", "cached"))))


def uncached(tracer, function, args: tuple, kwargs: dict):
    """A library's cached function, followed at each trace: its result.

    It must change nothing: eager runs it once, and a trace at each call.
    One that logs is called again after the graph, as eager does. Its
    cache then knows whether the message was sent before.
    """
    inner = getattr(function, "__wrapped__", None)
    given, said = (args, (*kwargs.values(),)), tracer.outside.said
    logs = isinstance(next(iter(args), None), logging.Logger)
    if not (isinstance(function, functools._lru_cache_wrapper)
            and type(inner) is FunctionType and is_hashable(given)
            and (logs or is_installed(inner.__module__))):
        return ABSENT
    what, count = f"{inner.__qualname__}, cached,", len(said)
    with unchanged(tracer, "effect", what):
        result = tracer.call(inner, args, kwargs)
        if logs:
            del said[count:]
    if logs and (kwargs or result is not None):
        raise unsupported("effect", what)
    return said.append((function, args)) if logs else result


def is_hashable(value) -> bool:
    """Whether a cache takes a value as a key, at any depth."""
    if isinstance(value, tuple):
        return all(map(is_hashable, value))
    return type(value).__hash__ is not None


@functools.cache
def is_installed(module: str) -> bool:
    """Whether a library has this code, which no program is read by."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return trusted(module) or file.startswith(sysconfig.get_path("purelib"))


@rule(("torch._dynamo.mutation_guard",
       "install_generation_tagging_init.<locals>.patched_init"))
def _tagged(function, tracer, *args, **kwargs):
    """Dynamo's wrapper of Module.__init__, once it ran in this process."""
    return tracer.enter(function.__closure__[-1].cell_contents, args,
                        kwargs)


# Warnings and log records


def answer_of(tracer, owner, question):
    """The constant answer to a question about an object, guarded."""
    answer, outside = question(owner), tracer.outside
    outside.guard(Call(outside.found_at(question), outside.found_at(owner)),
                  "equal", answer)
    return answer


@rule(warnings.warn)
def _warn(tracer, message, category=None, stacklevel=1, source=None,
          **more):
    if isinstance(message, Warning) and len(message.args) == 1:
        category, message = type(message), message.args[0]
    category = category or UserWarning
    frame = sender(tracer, stacklevel, "warnings.warn")
    where, space = frame.where(), frame.globals
    module = space.get("__name__", "<string>")
    if source or more or type(message) is not str or not (
            _is_plain(tracer, category)
            and answer_of(tracer, warnings, never_raised(category))):
        raise unsupported("effect", "warnings.warn")

    def warn():
        warnings.warn_explicit(
            message, category, where.file, where.line, module,
            space.setdefault("__warningregistry__", {}))

    tracer.outside.said.append((warn, ()))


def _is_plain(tracer, category) -> bool:
    """Whether making a warning of this class runs no user code."""
    if not isinstance(category, type) or not issubclass(category, Warning):
        return False
    found = [attributes.lookup(tracer, category, name)[0] for name in (
        "__init__", "__new__", "__str__")]
    return not any(hasattr(each, "__code__") for each in found)


@functools.cache
def never_raised(category: type):
    """The question whether Python shows or drops such warnings.

    It would else raise some, or have a user's function show them.
    """
    def passes(warnings) -> bool:
        for action, text, kind, place, line in warnings.filters:
            if issubclass(category, kind):
                if action == "error":
                    return False
                if (text, place, line) == (None, None, 0):
                    break
        return warnings.defaultaction != "error" and (
            is_installed(warnings.showwarning.__module__))

    return passes


#: The question whether a logger listens at a level: one object for each.
_listens = functools.cache(functools.partial(
    operator.methodcaller, "isEnabledFor"))


@rule(logging.Logger.isEnabledFor)
def _is_enabled(tracer, logger, level):
    return answer_of(tracer, logger, _listens(level))


@rule(logging.Logger._log)
def _log(tracer, logger, level, message, args, exc_info=None, extra=None,
         stack_info=False, stacklevel=1):
    frame = sender(tracer, stacklevel, "logging", logging._srcfile)
    where = frame.where()
    if exc_info or extra or stack_info or not is_known((message, args)) or (
            not answer_of(tracer, logger, all_installed)):
        raise unsupported("effect", "logging")

    def log(logger, message, args):
        logger.handle(logger.makeRecord(
            logger.name, level, where.file, where.line, message, args,
            None, where.function))

    tracer.outside.said.append((log, (logger, message, args)))


def all_installed(logger: logging.Logger) -> bool:
    """Whether only installed code handles the records."""
    parts = [logger, logging.getLogRecordFactory(), *logger.filters]
    while logger is not None:
        for each in logger.handlers:
            parts += [each, each.formatter or each, *each.filters]
        logger = logger.parent if logger.propagate else None
    return all(is_installed(each.__module__) for each in parts)


def is_foreign(record: logging.LogRecord) -> bool:
    """Whether a record comes from no work of ours.

    PyTorch logs each operator that fails on fake tensors. If we ran it,
    the failure is a reason to stop, and eager raises the user's error.
    """
    frame = sys._getframe(1)
    while frame is not None and not frame.f_globals.get(
            "__name__", "").startswith("minicompile."):
        frame = frame.f_back
    return frame is None


logging.getLogger("torch._subclasses.fake_tensor").addFilter(is_foreign)


def is_known(value) -> bool:
    """Whether a value is the same later, and so is its text."""
    if type(value) is tuple:
        return all(map(is_known, value))
    return type(value) in CONSTANTS or isinstance(value, (type, *SYMBOLIC))


def sender(tracer, level: int, what: str, inner: str = ""):
    """The frame that a message says it comes from."""
    frames = [frame for frame in reversed(tracer.frames)
              if frame.code.co_filename != inner]
    level = max(level, 1)
    if level > len(frames) or any(
            frame.globals.get("__name__") == "minicompile"
            for frame in frames[:level]):
        raise unsupported("effect", f"{what} about a caller")
    return frames[level - 1]


# einops and tqdm


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
