"""Python objects that stand in for the traced program's in C code.

In: a function, an iterator or a frame of the traced program. Out: an
object that C code can call or step (`sorted(key=...)`, `zip(...)`) while
the interpreter does the work. Exceptions cross as what they are.
PyTorch re-implements the C functions instead: torch/_dynamo/polyfills/.
"""

from __future__ import annotations

import types
from dataclasses import dataclass

import torch

from ..core.errors import Unsupported
from .reasons import Raised, internal
from .reentry_check import unwatched


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
