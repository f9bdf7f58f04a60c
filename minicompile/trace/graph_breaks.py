"""A graph break: Python performs one instruction between two graphs.

In: the frames of a trace that stopped before an instruction. Out: the
text of `finish`, which performs that instruction on real values and
calls the continuation with the frames' values. Suspended frames become
one function, so the rest of a call is one graph. It is original bytecode
behind a prefix that rebuilds the frame: jumps are relative since 3.11.
PyTorch's are torch/_dynamo/symbolic_convert.py:break_graph_if_unsupported
and torch/_dynamo/resume_execution.py.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from types import CodeType, FunctionType

from .bytecode import decode
from .frame import NO_ROW, OPCODES, Frame, Null
from .reasons import WAYS, unsupported
from .reconstruct import Rebuild

#: Those of the frames that a failed trace has left which can wait in
#: their middle. A row of the reference ends the list earlier.
WAYS["waits"] = list


def stops(frames: list[Frame]) -> list[int]:
    """Where a trace may stop if it cannot go on in these frames: moments,
    those of the innermost first."""
    return [frame.moment for frame in reversed(WAYS["waits"](frames))]


#: Functions of frames' values that are the rest of a call, compiled, too.
CONTINUATIONS: set[FunctionType] = set()

#: Opcode -> a function and its arguments, and the ways to go on after it,
#: where CPython's own instruction does not do. A way is a test of the
#: result, or none, an offset and the stack.
OPERATIONS: dict[str, Callable[[Break], tuple[list[str], list[tuple]]]] = {}


def ending(tracer, result) -> tuple[Rebuild, str]:
    """`finish` at the end of a call: effects and result, and its text."""
    rebuild = Rebuild(tracer)
    returned = rebuild.value(result)
    return rebuild, rebuild.function([
        *tracer.outside.statements(rebuild), f"return {returned}"])


def breaking(tracer, frames) -> tuple[Rebuild, str]:
    """`finish` where the trace of some frames stopped, and its text."""
    at = Break(tracer, frames)
    operation, ways = OPERATIONS.get(at.step.name, Break.single)(at)
    rest = at.performed(*operation)
    for test, *way in ways:
        call = f"return {at.rest(frames, *way)}"
        rest += [f"if {test}:", f"    {call}"] if test else [call]
    return at.rebuild, at.rebuild.function([
        *tracer.outside.statements(at.rebuild), *rest])


class Break:
    """The statements that leave one instruction to Python."""

    def __init__(self, tracer, frames: tuple[Frame, ...]):
        self.frames, self.frame = frames, frames[-1]
        self.step, self.outside = self.frame.current(), tracer.outside
        self.rebuild = Rebuild(tracer)

    def on(self, below: list) -> tuple[str, int, list]:
        """The way on; the value is on the stack if something reads it."""
        frame, step = self.frame, self.step
        after = frame.program.at(step.end)
        then = frame.program.instructions[after]
        fused = frame.program.at(then.end) > after + 1
        if then.name == "POP_TOP" or (
                then.name == "STORE_FAST" and not fused and then.argument
                not in WAYS["live"](frame, then.end)):
            return "", then.end, below
        return "", step.end, [*below, Named("value")]

    def single(self) -> tuple[list[str], list[tuple]]:
        """The instruction itself, run by CPython on the real stack."""
        frame, step = self.frame, self.step
        takes, pushes, _ = OPCODES.get(step.name, NO_ROW)
        if pushes is None or step.offset < 0:  # it calls a continuation
            raise unsupported("opcode", step.name)
        taken, count = (each(step.argument) if callable(each) else each
                        for each in (takes, pushes))
        place, values = placed(self.rebuild, frame, step.start, frame.stack)
        act = place.code.co_code[step.start:step.end] + op(
            "BUILD_TUPLE", count) * (count != 1) + op("RETURN_VALUE")
        made = made_once(going_on, replace(place, offset=step.end, stack=(
            *((held, b"" if held else how) for held, how in place.stack),
            )), frame.function, act)
        name = self.outside.constant(made, f"line_{step.line}").code()
        below = frame.stack[:len(frame.stack) - taken]
        given = [Named(f"value[{i}]") for i in range(count)]
        return [name, *values], [self.on(below) if count == 1 else (
            "", step.end, [*below, *given])]

    def performed(self, *call: str) -> list[str]:
        """Statements: the operation; a row says how if it may be caught."""
        if any(frame.handler() for frame in self.frames):
            return WAYS["perform"](self, *call)
        return [f"value = {call[0]}({', '.join(call[1:])})"]

    def rest(self, frames, offset: int, stack: list) -> str:
        """The call that goes on in frames, the innermost at `offset`."""
        *outer, frame = frames
        place, values = placed(self.rebuild, frame, offset, stack)
        function = made_once(going_on, place, frame.function)
        if outer:
            function, values = WAYS["return"](
                self.rebuild, outer, function, values)
        CONTINUATIONS.add(function)
        name = self.outside.constant(
            function, f"resume_{function.__name__}")
        return f"{name.code()}({', '.join(values)})"


# A function that begins in the middle


@dataclass(frozen=True)
class FrameState:
    """Where a frame stands: the names of its slots, stack and offset.

    `stack` has the kind of every stack entry: how many arguments it takes,
    and the code that follows them. `unbound` has the names that hold
    nothing.
    """

    code: CodeType
    offset: int
    stack: tuple[tuple[int, bytes], ...]
    unbound: tuple[str, ...] = ()

    def arguments(self) -> int:
        """How many arguments rebuild the frame."""
        return len(slots(self.code)) + sum(count for count, _ in self.stack)


def slots(code: CodeType) -> tuple[str, ...]:
    """A frame's slots: variables, cells, free variables."""
    cells = [n for n in code.co_cellvars if n not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)


#: The names that a frame may still read from an offset on: all of them, or
#: fewer, as a row of the reference knows.
WAYS["live"] = lambda frame, offset: frozenset(slots(frame.program.code))


def going_on(state: FrameState, body: bytes = b"", extra: int = 0,
             constants: tuple = ()) -> CodeType:
    """Code that rebuilds the frame, runs `body` and goes on.

    `body` may use further arguments and constants. Cells and free variables
    are arguments that hold the cells; only `__class__` stays free, for
    super(). A row of the reference moves the handlers of exceptions.
    """
    code, names, head = state.code, slots(state.code), _prefix(state)
    head += body + op("JUMP_FORWARD", state.offset // 2)
    shift, program = len(head), decode(code)
    line = program.instructions[program.at(state.offset) - 1].line
    names += tuple(f".stack{i}" for i in range(
        state.arguments() + extra - len(names)))
    made = code.replace(
        co_code=head + code.co_code, co_firstlineno=line,
        co_linetable=_lines(shift // 2, line - code.co_firstlineno)
        + code.co_linetable,
        co_exceptiontable=code.co_exceptiontable and WAYS["handlers"](
            program.handlers, shift),
        co_varnames=tuple(".class" if n == "__class__" else n
                          for n in names),
        co_nlocals=len(names), co_argcount=len(names),
        co_posonlyargcount=0, co_kwonlyargcount=0, co_cellvars=(),
        co_freevars=("__class__",) if "__class__" in names else (),
        co_consts=code.co_consts + constants,
        co_flags=code.co_flags & ~(
            inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_stacksize=max(code.co_stacksize, len(state.stack)) + extra + 3)
    decode(made, code, shift)
    return made


def _prefix(state: FrameState) -> bytes:
    """Instructions that rebuild the frame from its arguments."""
    names = slots(state.code)
    head = op("COPY_FREE_VARS", 1) if "__class__" in names else b""
    if state.code.co_flags & inspect.CO_GENERATOR:
        head += op("RETURN_GENERATOR") + op("POP_TOP")
    head += op("RESUME", 0)
    for name in state.unbound:
        head += op("DELETE_FAST", names.index(name))
    argument = len(names)
    for count, code in state.stack:
        head += op("LOAD_FAST", argument) * count + code
        argument += count
    return head


def op(name: str, argument: int = 0) -> bytes:
    """One instruction, with as many EXTENDED_ARG as it needs."""
    low, high = argument & 255, argument >> 8
    return (op("EXTENDED_ARG", high) if high else b"") + bytes(
        (dis.opmap[name], low))


def _lines(units: int, delta: int) -> bytes:
    """A line table for so many units of two bytes, all on the first line.

    The table behind it begins `delta` lines further back.
    """
    return b"\xe8\0" * (units - 1) + b"\xe8" + varint(
        -delta << 1 if delta < 0 else delta << 1 | 1)


def varint(value: int, order: int = 1) -> bytes:
    """A byte for each six bits, the lowest first, or the highest."""
    digits = [value >> at & 63 for at in range(
        0, value.bit_length() or 1, 6)][::order]
    return bytes((*(64 | digit for digit in digits[:-1]), digits[-1]))


# Frames as places

class Named(str):
    """How `finish` writes a value that is on the stack."""


#: The class of a stack entry that is no value -> its kind, and the value
#: that its argument has.
ENTRIES: dict[type, Callable] = {Null: lambda _: ((0, op("PUSH_NULL")),)}


#: Functions that look at the frame that calls them, by the opcode that
#: loads them; and those that do not if they are given an argument.
LOOKING = {"LOAD_GLOBAL": {"locals", "vars", "dir", "eval", "exec"},
           "LOAD_ATTR": {"_getframe", "currentframe"}}
ASKED = "vars", "dir"

_functions: dict[tuple, FunctionType] = {}


def placed(rebuild, frame, offset: int, stack
           ) -> tuple[FrameState, list[str]]:
    """Where `frame` stands, in its original code, and its values' text.

    Only names that may still be read count.
    """
    for step, then in pairwise(frame.program.instructions):
        names = LOOKING.get(step.name, ())
        if names and (name := step.argument[0]) in names and (
                name not in ASKED or not then.argument):
            raise unsupported("code", f"a caller of {name}")
    code, alive = frame.program.code, WAYS["live"](frame, offset)
    names = slots(code)
    values = [rebuild.value(frame.names[name])
              if name in alive and name in frame.names else "None"
              for name in names]
    kinds = []
    for entry in stack:
        read = ENTRIES.get(type(entry))
        kind, *held = read(entry) if read else ((1, b""), entry)
        kinds.append(kind)
        values += [value if type(value) is Named else rebuild.value(value)
                   for value in held]
    unbound = tuple(name for name in names
                    if name in alive and name not in frame.names)
    return FrameState(code, offset, tuple(kinds), unbound), values


def made_once(how: Callable, state: FrameState, like: FunctionType,
              *more) -> FunctionType:
    """The function that goes on or acts at a place; `how` gives its code.

    It lives in the world of the function that it comes from.
    """
    cell = dict(zip(like.__code__.co_freevars,
                    like.__closure__ or ())).get("__class__")
    key = (how, state, id(like.__globals__), id(cell), *more)
    if key not in _functions:
        code = how(state, *more)
        made = _functions[key] = FunctionType(
            code, like.__globals__, like.__name__, None,
            (cell,) if code.co_freevars else None)
        made.__qualname__, made.__module__ = (
            like.__qualname__, like.__module__)
    return _functions[key]
