"""Exceptions: raised, caught and handled, in a trace and after a break.

In: an exception that the traced program raises. Out: the frame that
catches it, at its handler; or none, and the trace ends there. After a
graph break, the operation that Python performs is caught in the same way:
a function begins at the handler. An exception that is returned, or handed
on, is made again. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase.
"""

from __future__ import annotations

import contextlib
import sys
import types
from dataclasses import dataclass

from .. import attributes
from ..frame import OPCODES, Frame, opcode
from ..graph_breaks import ENTRIES, Break, Named, op
from ..reasons import WAYS, Raised, unsupported
from ..reconstruct import DERIVED, Rebuild
from ..rules import rule
from .objects import remaking


@dataclass(frozen=True)
class Handled:
    """PUSH_EXC_INFO's entry below an exception that is being handled."""

    error: BaseException


ENTRIES[Handled] = lambda entry: (
    (1, op("PUSH_EXC_INFO") + op("POP_TOP")), entry.error)


def handled(frames: list[Frame]) -> BaseException | None:
    """The exception handled by the innermost frame that handles any."""
    found = [value.error for frame in frames for value in frame.stack
             if type(value) is Handled]
    return found[-1] if found else None


# What catches an exception


def raises(tracer, error: BaseException) -> None:
    """Set an exception's `__context__` when it is first raised."""
    tracer.origins.setdefault(id(error), (error, tracer.where()))
    before = link = handled(tracer.frames)
    if id(error) in tracer.raised or before is None:
        return
    tracer.raised[id(error)] = error
    while link is not None and link.__context__ is not error:
        link = link.__context__
    if link is not None:  # nothing happened during itself
        link.__context__ = None
    if before is not error:
        error.__context__ = before


def caught(frame: Frame, error) -> tuple[int, list]:
    """Where an exception is handled, and the stack there."""
    target, depth, lasti = frame.handler()
    place = [frame.current().offset // 2] * lasti
    return target, [*frame.stack[:depth], *place, error]


def unwind(frame: Frame, raised: Raised) -> None:
    """Go on at the handler of an exception, or let it leave."""
    if frame.handler() is None:
        raise raised
    target, frame.stack = caught(frame, raised.exception)
    frame.next = frame.program.at(target)


def catch(frames: list[Frame], depth: int, raised: Raised) -> None:
    """Drop the frames that an exception leaves; go on in the one left.

    If it leaves them all, the line that failed is where it was raised.
    """
    tracer, error = frames[-1].tracer, raised.exception
    raises(tracer, error)
    while frames[depth + 1:] and not frames[-1].handler():
        frames.pop()
    raised.place = tracer.origins[id(error)][1]
    unwind(frames[-1], raised)


# Opcodes of `try`, `with` and `raise`

OPCODES |= {
    "WITH_EXCEPT_START": (0, 1, lambda frame, _: frame.tracer.call(
        frame.stack[-4], (type(frame.stack[-1]), frame.stack[-1],
                          frame.stack[-1].__traceback__))),
    "PUSH_EXC_INFO": (1, None, lambda frame, _, error: (
        frame.stack.extend((Handled(error), error)))),
    "POP_EXCEPT": (1, None, lambda frame, _, handled: None),
    "LOAD_ASSERTION_ERROR": (0, 1, lambda frame, _: AssertionError),
}


@opcode(1, 2)
def BEFORE_WITH(frame, _, manager):
    load = attributes.load_attr
    frame.stack.append(load(frame.tracer, manager, "__exit__"))
    made = frame.tracer.enter(load(frame.tracer, manager, "__enter__"))
    if type(made) is not Frame:
        frame.stack.append(made)
    return made


@opcode(1, None)
def CHECK_EXC_MATCH(frame, _, kinds):
    if not all(map(_is_error, kinds if isinstance(kinds, tuple)
                   else (kinds,))):
        raise Raised(TypeError("catching classes that do not inherit from "
                               "BaseException is not allowed"))
    frame.stack.append(frame.tracer.native(
        isinstance, (frame.stack[-1], kinds)))


@opcode(1, None)
def RERAISE(frame, _, error):
    raise Raised(error)


@opcode(int, 0)
def RAISE_VARARGS(frame, count, error=None, *cause):
    if not count:
        raise Raised(handled(frame.tracer.frames) or RuntimeError(
            "No active exception to reraise"))
    error = _error(frame.tracer, error, "exceptions")
    frame.tracer.raised.pop(id(error), None)
    if cause:
        error.__cause__ = cause[0] and _error(
            frame.tracer, cause[0], "exception causes")
    raise Raised(error)


def _is_error(kind) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _error(tracer, given, what: str) -> BaseException:
    """The exception to raise: the one given, or one of the class given."""
    error = tracer.call(given) if _is_error(given) else given
    if not isinstance(error, BaseException):
        raise Raised(TypeError(f"{what} must derive from BaseException"))
    return error


# Questions


@rule(sys.exception)
def _exception(tracer):
    error = handled(tracer.frames)
    if error is None and tracer.frames[-1].globals is not vars(contextlib):
        raise unsupported("builtin", "sys.exception")
    return error


@rule(sys.exc_info)
def _exc_info(tracer):
    error = _exception(tracer)
    return error and type(error), error, error and error.__traceback__


# A break in a `try`


def performed(at: Break, *call: str) -> list[str]:
    """Statements: the operation, and what to do if it raises.

    An exception that is being handled is so for the operation, too.
    """
    known, frames, failed = at.rebuild.known, at.frames, at.rebuild.fresh()
    if (error := handled(frames)) is not None:
        call = known(handling), at.rebuild.local(error), *call
    while frames[-1].handler() is None:
        frames = frames[:-1]
    raised = at.rest(frames, *caught(
        frames[-1], Named(f"{failed}.pop()")))
    return [f"{at.value}, {failed} = {known(attempted)}({', '.join(call)})",
            f"if {failed}:", f"    return {raised}"]


def attempted(operation, *arguments) -> tuple[object, list]:
    """An operation's result, or None and the exception in a list."""
    try:
        return operation(*arguments), []
    except BaseException as error:
        return None, [error]


def handling(error: BaseException, operation, *arguments):
    """An operation's result while an exception is being handled."""
    before = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = before
        return operation(*arguments)


WAYS |= {"catch": catch, "perform": performed}

# Exceptions as results


def raised(rebuild: Rebuild, error: BaseException) -> str:
    """An exception that the program made or caught."""
    kind = type(error)
    make, args = rebuild.known(kind), error.args
    if isinstance(kind.__init__, types.FunctionType):
        make, args = f"{make}.__new__", (kind, *args)
    links = ("__cause__", "__context__", "__suppress_context__")
    made = remaking(rebuild, make, rebuild.values(args), vars(error) | {
        link: found for link in links if (found := getattr(error, link))})
    return f"{rebuild.known(thrown)}({made})"


def thrown(error: BaseException) -> BaseException:
    """The exception with a traceback, which CPython counts on."""
    try:
        raise error
    except BaseException as caught:
        return caught


DERIVED[BaseException] = raised
