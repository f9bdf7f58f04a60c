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


class Callback:
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


class Iteration:
    """The iterator a user's class made, for C code to step."""

    def __init__(self, tracer, iterator):
        self.step = Callback(tracer, types.MethodType(
            type(iterator).__next__, iterator))

    def __iter__(self):
        return self

    def __next__(self):
        return self.step()


#: Instructions that only find out who handles an exception.
SEARCHING = {"PUSH_EXC_INFO", "LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE",
             "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE", "POP_EXCEPT", "COPY",
             "RERAISE", "STOPITERATION_ERROR"}


def stopped(error: StopIteration) -> RuntimeError:
    """What a generator raises instead of StopIteration."""
    failure = RuntimeError("generator raised StopIteration")
    failure.__cause__ = failure.__context__ = error
    return failure


class Generator:
    """A generator of the traced program: a frame that waits."""

    def __init__(self, frame):
        self.frame, self.done = frame, False

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """The next value yielded; StopIteration ends it, as Python's."""
        if self.frame in self.frame.tracer.frames:
            raise ValueError("generator already executing")
        if value is not None and (
                self.frame.current().name == "RETURN_GENERATOR"):
            raise TypeError("can't send non-None value to a just-started "
                            "generator")
        self.frame.stack.append(value)
        return self._go_on()

    def throw(self, error, value=None, *_):
        """Raise `error` where the generator waits."""
        if isinstance(error, type):
            error = error() if value is None else value
        inner = not self.done and self.frame.delegate()
        if isinstance(inner, Generator):
            try:
                if not isinstance(error, GeneratorExit):
                    return inner.throw(error)
                inner.close()
            except StopIteration as end:
                self.frame.delegated(end.value)
                return self._go_on()
            except Unsupported:
                raise
            except Exception as failure:
                error = failure
        try:
            self.frame.unwind(Raised(error), self.frame.current().offset)
        except Raised:
            self.done = True
        if self.done:
            raise error
        return self._go_on()

    def would_act(self) -> bool:
        """Whether its code does something when it is closed now.

        Looks for a handler as Python would, which ends the generator.
        """
        frame, error, self.done = self.frame, GeneratorExit(), True
        while True:
            try:
                frame.unwind(Raised(error), frame.current().offset)
            except Raised:
                return False
            try:
                while (step := frame.program.instructions[
                        frame.next]).name in SEARCHING:
                    frame.next += 1
                    frame.step(step)
                return True
            except Raised as raised:
                error = raised.exception

    def close(self):
        """Run what is left to clean up; nothing more is yielded."""
        if not self.done:
            try:
                self.throw(GeneratorExit())
                raise RuntimeError("generator ignored GeneratorExit")
            except (GeneratorExit, StopIteration):
                self.done = True

    @unwatched
    def _go_on(self):
        if self.done:
            raise StopIteration
        error = None
        try:
            how, value = self.frame.run()
        except Raised as raised:
            error = raised.exception
        if error is None and how == "yield":
            return value
        self.done = True
        if isinstance(error, StopIteration):
            error = stopped(error)
        raise error or StopIteration(value)


#: What the interpreter must not look into.
STAND_INS = (Callback, Iteration, Generator)
