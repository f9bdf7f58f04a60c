"""C code is watched while it runs: it must not call the program's own.

In: a C function and its arguments. Out: its result, or a refusal before
the first line of a user's `__eq__`, `__index__` or `__init__` has run:
that would happen unseen, and once more after the graph. What may be
called back is a stand-in, which interprets. Dynamo has no such watch: it
models each C function (torch/_dynamo/variables/builtin.py).
"""

from __future__ import annotations

import functools
import sys
import types

from ..core.sizes import SYMBOLIC
from .kinds import trusted
from .reasons import unsupported

#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)


class Watch:
    """A profiler, as `sys.setprofile` takes one, that stands guard."""

    def __init__(self, function):
        self.function = function

    def __call__(self, frame, event, _):
        if event == "call" and not quiet(frame.f_globals.get("__name__")):
            name = getattr(self.function, "__name__", "")
            raise unsupported("builtin", f"{name}, which calls "
                              f"{frame.f_code.co_qualname},")


def watched(function, args, kwargs):
    """What a C function gives; refused if it calls the program's code.

    A profiler that is at work already stays so, and nothing is watched.
    """
    if isinstance(function, PYTHON) or sys.getprofile() or any(
            isinstance(value, SYMBOLIC) for value in args):
        return function(*args, **kwargs)
    sys.setprofile(Watch(function))
    try:
        return function(*args, **kwargs)
    finally:
        sys.setprofile(None)


def unwatched(function):
    """A method that C code may call, since it interprets."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        watch = sys.getprofile()
        if type(watch) is not Watch:
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(watch)
    return call


@functools.cache
def quiet(name: str | None) -> bool:
    """Whether a module's code is a library's, which has no effects."""
    root = (name or "").partition(".")[0]
    return trusted(name) or root in ("minicompile", "sympy", "mpmath") or (
        root.startswith("namedtuple_"))
