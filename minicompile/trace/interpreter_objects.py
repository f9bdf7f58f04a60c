"""Between the interpreter and C code: stand-ins, and a watch.

In: a C function and its arguments. Out: its result, or a refusal before
the first line of a user's `__eq__`, `__index__` or `__init__` has run:
that would happen unseen, and once more after the graph. What C code may
call back or step is a stand-in, which interprets. Dynamo has no such
watch: it models each C function (torch/_dynamo/variables/builtin.py).
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from dataclasses import dataclass

import torch

from ..core.errors import Unsupported
from ..core.sizes import SYMBOLIC
from .constant_types import CONSTANTS, trusted
from .reasons import Raised, internal, unsupported

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


# Stand-ins


class Null:
    """What CPython keeps below a callable that has no `self`."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


def as_tuple(kind: type, values) -> tuple:
    """A tuple of a class of its own, its `__new__` not run."""
    if kind is torch.Size or hasattr(kind, "n_sequence_fields"):
        return kind(values)  # the latter: torch.return_types.max, say
    return tuple.__new__(kind, values)


@dataclass(frozen=True)
class Handled:
    """What PUSH_EXC_INFO leaves: the exception handled before this one."""

    before: BaseException | None
    error: BaseException


class StandIn:
    """What the interpreter must not look into."""


class Callback(StandIn):
    """A function of the traced program that C code may call."""

    def __init__(self, tracer, function):
        self.tracer, self.function = tracer, function

    def __eq__(self, other):
        return self.function == getattr(other, "function", other)

    def __hash__(self):
        return hash(self.function)

    @unwatched
    def __call__(self, *args, **kwargs):
        try:
            return self.tracer.call(self.function, args, kwargs)
        except Raised as raised:
            error = raised.exception
        except (Unsupported, RecursionError):
            raise
        except Exception as failure:
            raise internal(failure) from failure
        raise error  # out here, where its context stays what it is


class Iteration(StandIn):
    """The iterator a user's class made, for C code to step."""

    def __init__(self, tracer, iterator):
        self.step = Callback(tracer, types.MethodType(
            type(iterator).__next__, iterator))

    def __iter__(self):
        return self

    def __next__(self):
        return self.step()
