"""A function that begins in the middle: original bytecode, a jump before.

In: a code object, an offset, what lies on the stack there. Out: ordinary
functions whose arguments are the frame: one goes on at the offset, one
performs a single instruction. All jumps are relative since 3.11, so the
original bytes stay as they are. PyTorch's is
torch/_dynamo/resume_execution.py.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CodeType, FunctionType

from .bytecode import Instruction, decode, live
from .constant_types import Null
from .reasons import unsupported


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

    def step(self) -> Instruction:
        """The instruction at the offset, with what prepares it."""
        return next(step for step in reversed(decode(
            self.code).instructions) if step.start == self.offset)

    def arguments(self) -> int:
        """How many arguments rebuild the frame."""
        return len(slots(self.code)) + sum(count for count, _ in self.stack)


def slots(code: CodeType) -> tuple[str, ...]:
    """A frame's slots: variables, cells, free variables."""
    cells = [n for n in code.co_cellvars if n not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)


# Putting code together


def single(state: FrameState, pushed: int) -> CodeType:
    """Code that performs one instruction and returns what it pushes."""
    code, end = state.code, state.step().end
    back = {0: op("LOAD_CONST", len(code.co_consts)), 1: b""}.get(
        pushed, op("BUILD_TUPLE", pushed)) + op("RETURN_VALUE")
    made = going_on(replace(state, stack=tuple(
        (count, b"" if count else how) for count, how in state.stack)))
    at = end + len(made.co_code) - len(code.co_code)
    return made.replace(co_exceptiontable=b"", co_code=b"".join((
        made.co_code[:at], back, made.co_code[at + len(back):])))


def going_on(state: FrameState, body: bytes = b"", handler=None,
             extra: int = 0, constants: tuple = ()) -> CodeType:
    """Code that rebuilds the frame, runs `body` and goes on.

    A handler is the target, depth and `lasti` of a row: it handles `body`,
    which may use further arguments and constants. Cells and free variables
    are arguments that hold the cells; only `__class__` stays free, for
    super().
    """
    code, names, head = state.code, slots(state.code), _prefix(state)
    start, end = len(head), len(head + body)
    head += body + op("JUMP_FORWARD", state.offset // 2)
    shift, program = len(head), decode(code)
    rows = [*program.handlers]
    if handler:
        rows.insert(0, (start - shift, end - shift, *handler))
    line = program.instructions[program.at(state.offset) - 1].line
    names += tuple(f".stack{i}" for i in range(
        state.arguments() + extra - len(names)))
    made = code.replace(
        co_code=head + code.co_code, co_firstlineno=line,
        co_linetable=_lines(shift // 2, line - code.co_firstlineno)
        + code.co_linetable,
        co_exceptiontable=b"".join(_row(
            *(at + shift for at in row[:3]), *row[3:]) for row in rows),
        co_varnames=tuple(".class" if n == "__class__" else n
                          for n in names),
        co_nlocals=len(names), co_argcount=len(names),
        co_posonlyargcount=0, co_kwonlyargcount=0, co_cellvars=(),
        co_freevars=("__class__",) if "__class__" in names else (),
        co_consts=(*code.co_consts, None, *constants),
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


# Tables


def _lines(units: int, delta: int) -> bytes:
    """A line table for so many units of two bytes, all on the first line.

    The table behind it begins `delta` lines further back.
    """
    plain = b"".join(bytes((0xE7 + min(units - at, 8), 0))
                     for at in range(1, units, 8))
    digits = _digits(-delta << 1 if delta < 0 else delta << 1 | 1)
    return plain + b"\xe8" + _number(digits)


def _row(start: int, end: int, entry: int, depth: int,
         lasti: bool) -> bytes:
    """One row of an exception table."""
    row = b"".join(_number(_digits(value)[::-1]) for value in (
        start // 2, (end - start) // 2, entry // 2, depth << 1 | lasti))
    return bytes((row[0] | 128,)) + row[1:]


def _digits(value: int) -> list[int]:
    """A number's digits of six bits, the lowest first."""
    return [value >> at & 63 for at in range(
        0, value.bit_length() or 1, 6)]


def _number(digits: list[int]) -> bytes:
    """A byte for each digit; another follows all but the last."""
    return bytes((*(64 | digit for digit in digits[:-1]), digits[-1]))


# Frames as places


class Named(str):
    """How `finish` writes a value that is on the stack."""


#: The class of a stack entry that is no value -> its kind, and the value
#: that its argument has.
ENTRIES: dict[type, Callable] = {Null: lambda _: ((0, op("PUSH_NULL")),)}


#: Functions that look at the frame that calls them.
LOOKING = {"locals", "vars", "dir", "eval", "exec"}

_functions: dict[tuple, FunctionType] = {}


def placed(rebuild, frame, offset: int, stack
           ) -> tuple[FrameState, list[str]]:
    """Where `frame` stands, in its original code, and its values' text.

    Only names that are read from `offset` on, or by a handler, count.
    """
    for step in frame.program.instructions:
        if step.name == "LOAD_GLOBAL" and step.argument[0] in LOOKING:
            raise unsupported("code", f"a caller of {step.argument[0]}")
    code, handler = frame.program.code, frame.handler()
    names, alive = slots(code), frozenset().union(*(
        live(frame.code)[frame.program.at(each)]
        for each in (offset, *(handler or ())[:1])))
    if "__class__" in names:
        alive |= {"__class__", code.co_varnames[0]}
    values = [rebuild.local(frame.names[name])
              if name in alive and name in frame.names else "None"
              for name in names]
    kinds = []
    for entry in stack:
        read = ENTRIES.get(type(entry))
        kind, *held = read(entry) if read else ((1, b""), entry)
        kinds.append(kind)
        values += [value if type(value) is Named else rebuild.local(value)
                   for value in held]
    unbound = tuple(name for name in names
                    if name in alive and name not in frame.names)
    return FrameState(code, offset, tuple(kinds), unbound), values


def made_once(how: Callable, state: FrameState, like: FunctionType,
              *more) -> FunctionType:
    """The function that goes on or acts at a place; `how` gives its code.

    It lives in the world of the function that it comes from.
    """
    cell = _class_cell(like)
    key = (how, state, id(like.__globals__), id(cell), *more)
    if key not in _functions:
        code = how(state, *more)
        made = _functions[key] = FunctionType(
            code, like.__globals__, like.__name__, None,
            (cell,) if code.co_freevars else None)
        made.__qualname__, made.__module__ = (
            like.__qualname__, like.__module__)
    return _functions[key]


def _class_cell(function: FunctionType):
    """The cell of a method's `__class__`, or None."""
    return dict(zip(function.__code__.co_freevars,
                    function.__closure__ or ())).get("__class__")
