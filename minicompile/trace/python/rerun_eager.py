"""A graph that failed: the call runs again, by Python.

In: a trace. Out: a function that runs its call from the start, for a
graph whose operators raised and that cannot have written anything. So the
effects before the failure happen, and the exception is eager's. PyTorch
raises what the compiled code raised.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable

from ...core import log
from ...core.state import turns
from .. import RERUNS, Trace

#: Where operators come from that only compute.
_OPERATORS = ("torch", "_operator", "builtins", "math")


def repeatable(made: Trace) -> Callable | None:
    """`rerun(error, L, F)`, unless the graph has effects."""
    only_computes = all(
        (getattr(node.target, "__module__", None) or "torch").partition(
            ".")[0] in _OPERATORS or turns(node.target)
        for node in made.graph.graph.nodes)
    return rerun if only_computes and not made.writes else None


def rerun(error: Exception, locals: tuple, function: types.FunctionType):
    """The result of the call in Python; warns if that does not fail."""
    code = function.__code__
    first, last = code.co_argcount, code.co_argcount + (
        code.co_kwonlyargcount)
    rest = iter(locals[last:])
    stars = next(rest) if code.co_flags & inspect.CO_VARARGS else ()
    more = next(rest) if code.co_flags & inspect.CO_VARKEYWORDS else {}
    named = zip(code.co_varnames[first:last], locals[first:last])
    result = function(*locals[:first], *stars, **dict(named), **more)
    log.warn_once(f"a graph of {function.__qualname__} failed, Python "
                  f"ran the call: {type(error).__name__}: {error}")
    return result


RERUNS.append(repeatable)
