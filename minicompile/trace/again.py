"""A graph that failed: what the call leaves behind is Python's to say.

In: the exception that a graph's operators raised, and the call. Out: the
same call, run by Python from the start, if the graph cannot have written
anything: so what comes before the failure happens, and the exception is
eager's. PyTorch raises what the compiled code raised.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable

import torch
from torch import fx

from ..core import log
from ..core.errors import MinicompileError
from .grad_modes import KEPT

#: Where operators come from that only compute.
_OPERATORS = ("torch", "_operator", "builtins", "math")


def again(graph: fx.GraphModule, guards, writes: bool) -> Callable:
    """`failed(error, L, F)`, for a graph that writes to inputs or not."""
    grad = next((guard.expected.grad_enabled for guard in guards
                 if guard.kind == "state"), None)
    repeats = not writes and all(
        (getattr(node.target, "__module__", None) or "torch").partition(
            ".")[0] in _OPERATORS or node.target in KEPT
        for node in graph.graph.nodes)

    def failed(error: Exception, locals: tuple, function):
        if grad is not None:
            torch._C._set_grad_enabled(grad)
        if not repeats or isinstance(error, MinicompileError):
            raise error
        result = call(function, locals)
        log.warn_once(f"a graph of {function.__qualname__} failed, Python "
                      f"ran the call: {type(error).__name__}: {error}")
        return result

    return failed


def call(function: types.FunctionType, locals: tuple):
    """The function called with the values of its parameters."""
    code = function.__code__
    first, last = code.co_argcount, code.co_argcount + (
        code.co_kwonlyargcount)
    rest = iter(locals[last:])
    stars = next(rest) if code.co_flags & inspect.CO_VARARGS else ()
    more = next(rest) if code.co_flags & inspect.CO_VARKEYWORDS else {}
    named = zip(code.co_varnames[first:last], locals[first:last])
    return function(*locals[:first], *stars, **dict(named), **more)
