"""Opcodes that move: jumps, loops, calls, with, exceptions, generators.

In: a frame and the instruction's argument. Out: a changed stack and next
position; RETURN_VALUE and the generator opcodes also give the frame a
reason to stop. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

import types

from . import attributes
from .chain import passes_on
from .reasons import Raised
from .stand_ins import NULL, Handled, stopped

#: What an opcode returns to leave the frame: (how, value).
RETURN, YIELD = "return", "yield"


# Jumps


def JUMP(frame, target):
    frame.next = target


def POP_JUMP_IF_NONE(frame, target):
    if frame.stack.pop() is None:
        frame.next = target


def POP_JUMP_IF_NOT_NONE(frame, target):
    if frame.stack.pop() is not None:
        frame.next = target


#: Jumps on the truth of the top: whether true jumps, and if it stays.
TRUTH = {"POP_JUMP_IF_TRUE": (True, False),
         "POP_JUMP_IF_FALSE": (False, False),
         "JUMP_IF_TRUE_OR_POP": (True, True),
         "JUMP_IF_FALSE_OR_POP": (False, True)}


def deciding(when: bool, stays: bool):
    """An opcode from a row of TRUTH."""
    def jump(frame, target):
        jumps = frame.tracer.truth(frame.stack[-1]) is when
        if jumps:
            frame.next = target
        if not (jumps and stays):
            frame.stack.pop()
    return jump


def FOR_ITER(frame, target):
    frame.tracer.inside(frame.stack[-1])
    try:
        value = frame.tracer.native(next, (frame.stack[-1],))
    except Raised as raised:
        if not isinstance(raised.exception, StopIteration):
            raise
        frame.stack.pop()
        frame.next = target
    else:
        frame.stack.append(value)


# Functions and calls


def MAKE_FUNCTION(frame, flags):
    code = frame.stack.pop()
    function = types.FunctionType(
        code, frame.globals, closure=None if not code.co_freevars
        else tuple(types.CellType() for _ in code.co_freevars))
    frame.stack.append(function)
    for flag in (8, 4, 2, 1):
        if (flags or 0) & flag:
            SET_FUNCTION_ATTRIBUTE(frame, flag)
    frame.tracer.own(frame.stack[-1])


def SET_FUNCTION_ATTRIBUTE(frame, flag):
    function = frame.stack.pop()
    value = frame.stack.pop()
    match flag:
        case 1:
            function.__defaults__ = value
        case 2:
            function.__kwdefaults__ = value
        case 4:
            function.__annotations__ = _annotations(value)
        case 8:
            made = types.FunctionType(
                function.__code__, function.__globals__,
                function.__name__, function.__defaults__, value)
            made.__kwdefaults__ = function.__kwdefaults__
            function = frame.tracer.own(made)
    frame.stack.append(function)


def KW_NAMES(frame, names):
    frame.keywords = names


@passes_on
def CALL(frame, count):
    values, names = frame.pop(count), frame.keywords
    frame.keywords = ()
    _call(frame, values, names)


@passes_on
def CALL_KW(frame, count):
    names = frame.stack.pop()
    _call(frame, frame.pop(count), names)


@passes_on
def _call(frame, values: list, names: tuple[str, ...]) -> None:
    """Call what lies below the arguments, with its self if any."""
    lower, upper = frame.pop(2)
    if lower is NULL:
        function = upper
    elif upper is NULL:
        function = lower
    else:
        function, values = lower, [upper, *values]
    plain = len(values) - len(names)
    frame.stack.append(frame.tracer.call(
        function, values[:plain], dict(zip(names, values[plain:]))))


@passes_on
def CALL_FUNCTION_EX(frame, flags):
    kwargs = frame.tracer.mapping(frame.stack.pop()) if flags & 1 else {}
    args = frame.tracer.unpacked(frame.stack.pop())
    lower, upper = frame.pop(2)
    function = upper if lower is NULL else lower
    frame.stack.append(frame.tracer.call(function, args, kwargs))


def RETURN_VALUE(frame, _):
    return RETURN, frame.stack.pop()


# With and exceptions


@passes_on
def BEFORE_WITH(frame, _):
    manager = frame.stack.pop()
    load = attributes.load
    leave = load(frame.tracer, manager, "__exit__")
    frame.stack.append(leave)
    frame.stack.append(frame.tracer.call(
        load(frame.tracer, manager, "__enter__")))


def WITH_EXCEPT_START(frame, _):
    error = frame.stack[-1]
    frame.stack.append(frame.tracer.call(
        frame.stack[-4], (type(error), error, error.__traceback__)))


def PUSH_EXC_INFO(frame, _):
    error = frame.stack.pop()
    frame.stack += (Handled(frame.handling, error), error)
    frame.handling = error


def POP_EXCEPT(frame, _):
    frame.handling = frame.stack.pop().before


def CHECK_EXC_MATCH(frame, _):
    kinds = frame.stack.pop()
    if not all(map(_is_error, kinds if isinstance(kinds, tuple)
                   else (kinds,))):
        raise Raised(TypeError("catching classes that do not inherit from "
                               "BaseException is not allowed"))
    frame.stack.append(frame.tracer.native(
        isinstance, (frame.stack[-1], kinds)))


def RERAISE(frame, _):
    raise Raised(frame.stack.pop())


def RAISE_VARARGS(frame, count):
    if not count:
        raise Raised(frame.tracer.handled() or RuntimeError(
            "No active exception to reraise"))
    error, *cause = frame.pop(count)
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


# Generators


def RETURN_GENERATOR(frame, _):
    return RETURN, frame.tracer.generator(frame)


def YIELD_VALUE(frame, _):
    return YIELD, frame.stack.pop()


def GET_YIELD_FROM_ITER(frame, _):
    frame.stack.append(frame.tracer.iterate(frame.stack.pop()))


def SEND(frame, target):
    value = frame.stack.pop()
    source = frame.stack[-1]
    frame.tracer.inside(source)
    send = (getattr(source, "send", None) if value is not None
            else source.__next__)
    try:
        got = frame.tracer.native(send, () if value is None
                                 else (value,))
    except Raised as raised:
        if not isinstance(raised.exception, StopIteration):
            raise
        frame.delegated(raised.exception.value, target)
    else:
        frame.stack.append(got)


def END_SEND(frame, _):
    del frame.stack[-2]


def CLEANUP_THROW(frame, _):
    error = frame.stack.pop()
    if not isinstance(error, StopIteration):
        raise Raised(error)
    frame.stack[-2:] = (None, error.value)


def STOPITERATION_ERROR(frame, _):
    if isinstance(frame.stack[-1], StopIteration):
        frame.stack[-1] = stopped(frame.stack[-1])


def _annotations(value) -> dict:
    """A function's annotations, which 3.11 stacks as a flat tuple."""
    if isinstance(value, tuple):
        return dict(zip(value[::2], value[1::2]))
    return value
