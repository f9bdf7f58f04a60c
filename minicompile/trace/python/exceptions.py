"""Exceptions and generators: how a frame is left, and goes on elsewhere.

In: an exception that the traced program raises. Out: the frame that
catches it, at its handler; or none, and the trace ends there. After a
graph break, the operation that Python performs is caught in the same way:
a function begins at the handler. An exception that is returned, or handed
on, is made again. A generator's frame keeps its stack and position at a
`yield`; after the graph, a real generator waits at the same place. They
are in torch/_dynamo/symbolic_convert.py of PyTorch.
"""

import contextlib
import sys
import types
from collections import namedtuple
from functools import partial
from operator import methodcaller

from ...core.guard import ABSENT, is_a
from .. import attributes
from ..bytecode import SEND_KEEPS
from ..frame import OPCODES, RETURN, YIELD, Frame, advance, opcode
from .graph_breaks import (NO_VALUES, Break, Named, going_on, in_force,
                           made_once, op, placed)
from ..reasons import WAYS, Raised, unsupported
from ..reconstruct import DERIVED, MAKERS, Rebuild
from ..rules import rule
from .callbacks import unwatched
from .objects import remade


#: PUSH_EXC_INFO's entry below an exception that is being handled.
Handled = namedtuple("Handled", "error")

NO_VALUES[Handled] = lambda entry: (
    (1, op("PUSH_EXC_INFO") + op("POP_TOP")), entry.error)


def handled(frames: list[Frame]) -> BaseException | None:
    """The exception handled by the innermost frame that handles any."""
    found = [value.error for frame in frames for value in frame.stack
             if type(value) is Handled]
    return found[-1] if found else None


# What catches an exception


def raises(tracer, error: BaseException, frames: list[Frame]) -> None:
    """Let Python set an exception's `__context__` when it is first raised.
    """
    if id(error) in tracer.origins:
        return
    tracer.origins[id(error)] = error, tracer.where()
    if (before := handled(frames)) is not None:
        lines = error.__traceback__
        handling(before, thrown, error).__traceback__ = lines


def caught(frame: Frame, error) -> tuple[int, list]:
    """Where an exception is handled, and the stack there."""
    target, depth, lasti = in_force(frame)
    place = [frame.current().offset // 2] * lasti
    return target, [*frame.stack[:depth], *place, error]


def catch(frames: list[Frame], depth: int, raised: Raised) -> None:
    """Drop the frames that an exception leaves; go on in the one left.

    If it leaves them all, the line that failed is where it was raised.
    """
    tracer, error = frames[-1].tracer, raised.exception
    raises(tracer, error, frames)
    while frames[depth + 1:] and not in_force(frames[-1]):
        frames.pop()
    raised.place, frame = tracer.origins[id(error)][1], frames[-1]
    if in_force(frame) is None:
        raise raised
    target, frame.stack = caught(frame, error)
    frame.next = frame.program.at(target)


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
    enter, leave = (attributes.bound(frame.tracer, manager, name)
                    for name in ("__enter__", "__exit__"))
    if enter is ABSENT or leave is ABSENT:
        raise unsupported("attribute", "a context manager's method")
    frame.stack.append(leave)
    made = frame.tracer.enter(enter)
    if type(made) is not Frame:
        frame.stack.append(made)
    return made


@opcode(1, None)
def CHECK_EXC_MATCH(frame, _, kinds):
    if not all(map(_is_error, kinds if is_a(kinds, tuple)
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
    frame.tracer.origins.pop(id(error), None)
    if cause:
        error.__cause__ = cause[0] and _error(
            frame.tracer, cause[0], "exception causes")
    raise Raised(error)


def _is_error(kind) -> bool:
    return is_a(kind, type) and issubclass(kind, BaseException)


def _error(tracer, given, what: str) -> BaseException:
    """The exception to raise: the one given, or one of the class given."""
    error = tracer.call(given) if _is_error(given) else given
    if not is_a(error, BaseException):
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
    known, frames = at.rebuild.known, at.frames
    if (error := handled(frames)) is not None:
        call = known(handling), at.rebuild.value(error), *call
    while in_force(frames[-1]) is None:
        frames = frames[:-1]
    raised = at.rest(frames, *caught(frames[-1], Named("failed.pop()")))
    return [f"value, failed = {known(outcome)}({', '.join(call)})",
            "if failed:", f"    return {raised}"]


def outcome(operation, *arguments) -> tuple[object, list]:
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
    make, args = type(error), error.args
    names = ["__cause__", "__context__", *(
        name for kind in make.__mro__ for name, each in vars(kind).items()
        if type(each) is types.MemberDescriptorType and name != "obj"
        and kind is not BaseExceptionGroup)]  # whose members are `args`
    if isinstance(make.__init__, types.FunctionType):
        make, args = make.__new__, (make, *args)
        names.append("args")
    made = rebuild.call(remade, make, args, vars(error) | {
        name: found for name in names if (found := getattr(
            error, name, None)) is not None and found is not False})
    was = id(error) in rebuild.tracer.origins
    return f"{rebuild.known(thrown)}({made})" if was else made


def thrown(error: BaseException) -> BaseException:
    """The exception with a traceback, which CPython counts on."""
    try:
        raise error
    except BaseException as caught:
        return caught


DERIVED[BaseException] = raised

# Generators

#: Handlers that CPython adds to a generator: they only pass it on.
PASSING = {"STOPITERATION_ERROR", "CLEANUP_THROW"}


def generating(frame: Frame):
    """A generator of the traced program, as one of Python's own.

    It runs the frame from one `yield` to the next.
    """
    sent = error = None
    while True:
        how, value = going(frame, sent, error)
        if how is RETURN:
            return value
        try:
            sent, error = (yield value), None
        except BaseException as thrown:
            error = thrown
        if error is not None and not frame.tracer.frames:
            return  # the trace has ended, and nobody needs it
        if error is not None and waits(frame):
            raise unsupported("builtin", "throwing into a `yield from`")


@unwatched
def going(frame: Frame, sent, error: BaseException | None) -> tuple:
    """How a frame is left, which goes on with a value or an exception."""
    if error is None:
        frame.stack.append(sent)
    else:
        catch([frame], 0, Raised(error))
    return frame.run()


def waits(frame: Frame) -> bool:
    """Whether a frame waits for another generator in a `yield from`."""
    return frame.program.instructions[frame.next].name == "JUMP" and (
        getattr(frame.stack[-1], "gi_code", None) is generating.__code__)


def may_act(frame: Frame) -> bool:
    """Whether closing a frame can run code of its own, at some `yield`."""
    steps, program = frame.program.instructions, frame.program
    return any(steps[program.at(row[2])].name not in PASSING
               for step in steps if step.name in ("YIELD_VALUE", *PASSING)
               and (row := program.handler(step.offset)))


def begin_generator(frame, _):
    """Leave a frame that begins to be a generator's."""
    made, tracer = generating(frame), frame.tracer
    if frame is tracer.frames[0]:
        raise unsupported("code", frame.function.__qualname__)
    by_with = tracer.frames[-2].globals is vars(contextlib)
    tracer.checks.append(partial(
        left, made, frame, tracer.where(), by_with))
    return RETURN, made


def left(made: types.GeneratorType, frame: Frame, where, by_with: bool,
         rebuild: Rebuild):
    """Refuse to lose a generator that eager would close with effects.

    Callers keep what a graph break hands on until they return, so a break
    would lose it, too. A `with` statement ends its own.
    """
    is_lost = id(made) not in rebuild.names or (
        rebuild.tracer.left and not by_with)
    if made.gi_frame and is_lost and may_act(frame):
        raise unsupported("effect", "a generator left half-run").at(where)


OPCODES |= {
    "RETURN_GENERATOR": (0, None, begin_generator),
    "STOPITERATION_ERROR": (1, None, lambda frame, _, error: (
        frame.stack.append(error))),  # as Python does for `generating`
    "END_SEND": (2, 1, lambda frame, _, source, value: value),
    "YIELD_VALUE": (1, None, lambda frame, _, value: (YIELD, value)),
    "GET_YIELD_FROM_ITER": (1, None, lambda frame, _, value: (
        frame.stack.append(frame.tracer.ask(iter, value)))),
}


@opcode(1, None)
def SEND(frame, target, value):
    ended = advance(frame, next if value is None else methodcaller(
        "send", value))
    if ended is not None:
        frame.stack[-1:] = frame.stack[-1:] * SEND_KEEPS + [ended.value]
        frame.jump(target)


@opcode(1, None)
def CLEANUP_THROW(frame, _, error):
    if not isinstance(error, StopIteration):
        raise Raised(error)
    frame.stack[-2:] = (None, error.value)


def rebuilt(rebuild: Rebuild, generator: types.GeneratorType) -> str:
    """A generator that stands where the interpreted one does."""
    if not generator.gi_frame:
        return "iter(())"
    frame = generator.gi_frame.f_locals["frame"]
    step = frame.current()
    begun = step.name != "RETURN_GENERATOR"
    at = step.start if begun else step.end
    place, values = placed(rebuild, frame, at, [*frame.stack, None])
    made = made_once(going_on, place, frame.function)
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    if begun:  # it yields once more, to nobody, and waits
        rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


MAKERS[types.GeneratorType] = rebuilt
