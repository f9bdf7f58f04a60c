"""The opcodes of try, raise and with.

In: a frame whose stack was cut back to a handler, or that enters a
context. Out: what CPython does there: the exception being handled, the
clause that takes it, the `__exit__` that is told. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

from .. import attributes
from ..frame import OPCODES, opcode, passes_on
from ..reasons import Raised
from ..interpreter_objects import Handled

OPCODES |= {
    "WITH_EXCEPT_START": (0, 1, lambda frame, _: frame.tracer.call(
        frame.stack[-4], (type(frame.stack[-1]), frame.stack[-1],
                          frame.stack[-1].__traceback__))),
    "POP_EXCEPT": (1, None, lambda frame, _, handled: setattr(
        frame, "handling", handled.before)),
    "LOAD_ASSERTION_ERROR": (0, 1, lambda frame, _: AssertionError),
}


@opcode(1, 2)
@passes_on
def BEFORE_WITH(frame, _, manager):
    load = attributes.load
    frame.stack.append(load(frame.tracer, manager, "__exit__"))
    enter = load(frame.tracer, manager, "__enter__")
    frame.stack.append(frame.tracer.call(enter))


@opcode(1, None)
def PUSH_EXC_INFO(frame, _, error):
    frame.stack += (Handled(frame.handling, error), error)
    frame.handling = error


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
        raise Raised(frame.tracer.handled() or RuntimeError(
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
