"""Messages to people: warnings and log records, sent after the graph.

In: `warnings.warn`, or a logger that listens, called with values that a
trace knows. Out: a call for `finish` to make at each run, with the line
that the message is about; the standard library then decides who sees it.
Where user code would be asked, the message stays a graph break.
PyTorch's is torch/_dynamo/variables/misc.py:DebuggingVariable.
"""

from __future__ import annotations

import functools
import logging
import operator
import sys
import sysconfig
import warnings

from ...core.sizes import SYMBOLIC
from ...core.source import Call
from .. import attributes
from ..constant_types import ABSENT, CONSTANTS, trusted
from ..reasons import unsupported
from ..rules import rule
from ..torch.modes import ask
from ..torch.subgraphs import unchanged
from .callables import CACHED


@rule(warnings.warn)
def _warn(tracer, message, category=None, stacklevel=1, source=None,
          **more):
    if isinstance(message, Warning) and len(message.args) == 1:
        category, message = type(message), message.args[0]
    category = category or UserWarning
    frame = sender(tracer, stacklevel, "warnings.warn")
    where, space = frame.where(), frame.globals
    if source or more or type(message) is not str or not (
            _is_plain(tracer, category)):
        raise unsupported("effect", "warnings.warn")
    module, outside = space.get("__name__", "<string>"), tracer.outside
    passes = filtered(message, category, module, where.line)
    if not passes(warnings):
        raise unsupported("effect", "warnings.warn")
    outside.guard(Call(outside.constant(passes, "passes").code(),
                       outside.constant(warnings, "warnings")),
                  "equal", True)

    def warn():
        warnings.warn_explicit(
            message, category, where.file, where.line, module,
            space.setdefault("__warningregistry__", {}))

    outside.said.append((warn, ()))


def _is_plain(tracer, category) -> bool:
    """Whether making a warning of this class runs no user code."""
    if not isinstance(category, type) or not issubclass(category, Warning):
        return False
    found = [attributes.lookup(tracer, category, name)[0] for name in (
        "__init__", "__new__", "__str__")]
    return not any(hasattr(each, "__code__") for each in found)


@functools.lru_cache
def filtered(message: str, category: type, module: str, line: int):
    """The question whether Python shows or drops a warning.

    It would else raise it, or have a user's function show it.
    """
    def passes(warnings) -> bool:
        actions = [action for action, text, kind, place, at
                   in warnings.filters
                   if issubclass(category, kind) and at in (0, line)
                   and matches(text, message) and matches(place, module)]
        return [*actions, warnings.defaultaction][0] != "error" and (
            is_installed(warnings.showwarning.__module__))

    return passes


def matches(pattern, text: str) -> bool:
    """Whether a filter's pattern, text or None for all, fits."""
    if pattern is None or isinstance(pattern, str):
        return pattern in (None, text)
    return pattern.match(text) is not None


@rule(logging.Logger.isEnabledFor)
def _is_enabled(tracer, logger, level):
    return ask(tracer, logger, f"listens_{level}", _listens(level))


@functools.cache
def _listens(level: int):
    return operator.methodcaller("isEnabledFor", level)


@rule(logging.Logger._log)
def _log(tracer, logger, level, message, args, exc_info=None, extra=None,
         stack_info=False, stacklevel=1):
    frame = sender(tracer, stacklevel, "logging", logging._srcfile)
    where = frame.where()
    if exc_info or extra or stack_info or not is_known((message, args)) or (
            not ask(tracer, logger, "ours", all_installed)):
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


@functools.cache
def is_installed(module: str) -> bool:
    """Whether a library has this code, which no program is read by."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return trusted(module) or file.startswith(sysconfig.get_path("purelib"))


def told_once(tracer, function, args: tuple, kwargs: dict):
    """A cached function that logs: called each time, as eager does.

    Its cache then knows whether the message was sent before.
    """
    if kwargs or not args or not isinstance(args[0], logging.Logger):
        return ABSENT
    said, what = tracer.outside.said, f"{function.__qualname__}, cached,"
    count = len(said)
    with unchanged(tracer, "builtin", what):
        result = tracer.call(function.__wrapped__, args)
        del said[count:]
    if result is not None:
        raise unsupported("builtin", what)
    return said.append((function, args))


CACHED.append(told_once)


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
