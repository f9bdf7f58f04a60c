"""C code is watched while it runs: it must not call the program's own.

In: a C function and its arguments. Out: its result, or a refusal before
the first line of a user's `__eq__`, `__index__` or `__init__` has run:
that would happen unseen, and once more after the graph. What may be
called back is a stand-in, which interprets. Dynamo has no such watch: it
models each C function (torch/_dynamo/variables/builtin.py).
"""

from __future__ import annotations

import functools
import operator
import sys
import types

from ..core.sizes import SYMBOLIC
from .constant_types import CONSTANTS, trusted
from .reasons import unsupported

#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)


#: Classes whose methods in C call nobody back.
LEAVES = CONSTANTS - {slice} | {type(iter(each)) for each in (
    (), [], range(0), {}, {}.values(), {}.items())}

#: Functions that call nobody back, if given such containers.
CONTAINERS = LEAVES | {tuple, list, dict}
MOVING = {iter, len, list, tuple, operator.getitem, list.append}

#: Where C code ends that asks a tensor for its values; and if it does not.
VALUES = ("torch._tensor", "torch._subclasses")
MILD = {"__hash__", "__instancecheck__", "__subclasscheck__"}


class Watch:
    """A profiler, as `sys.setprofile` takes one, that stands guard."""

    def __init__(self, function):
        self.function, self.asked = function, False

    def __call__(self, frame, event, _):
        if event != "call":
            return
        name, code = getattr(self.function, "__name__", ""), frame.f_code
        home = frame.f_globals.get("__name__") or ""
        if home.startswith(VALUES) and code.co_name not in MILD:
            self.asked = True  # raised later: C++ is not to be unwound
        elif not quiet(home):
            raise unsupported("builtin", f"{name}, which calls "
                              f"{code.co_qualname},")


def watched(function, args, kwargs):
    """What a C function gives; refused if it calls the program's code.

    A profiler that is at work already stays so, and nothing is watched.
    """
    kinds = {*map(type, args)}
    if kinds <= LEAVES or function in MOVING and kinds <= CONTAINERS or (
            isinstance(function, PYTHON) or sys.getprofile()
            or not kinds.isdisjoint(SYMBOLIC)):
        return function(*args, **kwargs)
    watch = Watch(function)
    sys.setprofile(watch)
    try:
        return function(*args, **kwargs)
    finally:
        sys.setprofile(None)
        if watch.asked:
            raise unsupported("data-dependent", getattr(
                function, "__name__", "a C function"))


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
