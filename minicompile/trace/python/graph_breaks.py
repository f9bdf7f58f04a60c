"""A graph break: Python performs one instruction between two graphs.

In: the frames of a trace that stopped before an instruction. Out: the
text of `finish`, which performs that instruction on real values and
calls the continuation with the frames' values. Suspended frames become
one function, so the rest of a call is one graph. It is original bytecode
behind a prefix that rebuilds the frame: jumps are relative since 3.11.
Without this file, what a trace cannot follow makes the whole call eager's.
PyTorch's are torch/_dynamo/symbolic_convert.py:break_graph_if_unsupported
and torch/_dynamo/resume_execution.py.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from types import CellType, CodeType, FunctionType

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ...core.errors import Unsupported
from ...core.guard import ABSENT, IDENTITIES, is_a
from .. import CONTINUATIONS, Trace, traced_by
from ..bytecode import NULL_ABOVE, decode
from ..frame import NO_ROW, NULL, OPCODES, TRUTH, Frame, Null
from ..reasons import WAYS, refusing, unsupported
from ..reconstruct import Rebuild
from ..recorder import History
from ..tracer import Tracer

# Where to cut


def left_waiting(frames: list[Frame]) -> list[Frame]:
    """The frames, but those of the standard library that end the list: what
    it does for the program is one step to us."""
    homes = [str(frame.globals.get("__name__")).partition(".")[0]
             for frame in frames]
    while homes[1:] and homes[-1] in sys.stdlib_module_names:
        homes.pop()
    return frames[:len(homes)]


def stops(frames: list[Frame]) -> list[int]:
    """Where a trace may stop if it cannot go on in these frames: moments,
    those of the innermost first."""
    return [frame.moment for frame in reversed(left_waiting(frames))]


def stops_of(tracer: Tracer, error: Unsupported) -> list[int]:
    """Where to stop a trace that has failed, if it was not stopped."""
    return getattr(error, "stops", []) or (
        [] if tracer.stop or error.kind in ("recursion", "finalizer")
        else stops(tracer.left))


def attempts(function: FunctionType, locals: tuple, breaks: bool,
             history: History) -> Trace:
    """The first trace that succeeds: whole, or up to one of its stops.

    A program that raises is told next that nothing compiles it.
    """
    ways, first = [(None, history.compiling)], None
    for at, (moment, history.compiling) in enumerate(ways, 1):
        try:
            return traced_by(
                Tracer(function, history, moment, first), locals)
        except Unsupported as error:
            last = Unsupported(*error.args)  # holds no frames
            if getattr(error, "final", False):  # callers are looked at
                del ways[at:]
            elif breaks and (history.compiling is ways[0][1]
                           or first.kind == "exception"):
                ways[at:at] = [way for stop in error.stops if (
                    way := (stop, history.compiling)) not in ways]
            if first is None or moment and error.stops:
                first, cause = last, error.__cause__
                ways[at:at] = [(None, False)] * (  # as in eager
                    error.kind == "exception" and history.compiling)
    history.compiling = ways[0][1]
    never = first.kind != "exception" and last.reason != first.reason
    raise Unsupported(first.kind, first.reason + never * (
        f"; no break can be there: {last.reason}"), first.where, first.hint
        ) from cause


def in_force(frame: Frame) -> tuple[int, int, bool] | None:
    """The handler in force: target, stack depth, `lasti`; or None."""
    row = frame.program.handler(frame.current().offset)
    return row and row[2:]


# What `finish` says


def breaking(tracer, frames) -> tuple[Rebuild, str, tuple]:
    """`finish` where the trace of some frames stopped, its text, and why.
    """
    if len(left_waiting(tracer.left)) < len(frames):
        raise unsupported("code", "something in between") from None
    at = Break(tracer, frames)
    operation, ways = OPERATIONS.get(at.step.name, Break.single)(at)
    rest = at.performed(*map(at.line, frames[:-1]), *operation)
    for test, *way in ways:
        call = f"return {at.rest(frames, *way)}"
        rest += [f"if {test}:", f"    {call}"] if test else [call]
    return at.rebuild, at.rebuild.function(
        tracer.outside.statements(at.rebuild), *rest), (tracer.why,)


WAYS |= {"attempts": attempts, "stops": stops_of, "breaking": breaking,
         "perform": refusing("opcode", "in a `try`")}


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
                not in live(frame, then.end)):
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

    def line(self, frame: Frame) -> str:
        """A function that calls another one, at the line of a frame: so
        tracebacks, and warnings of a caller, show the program's lines."""
        made = made_once(at_line, FrameState(frame.program.code, 0, ()),
                         frame.function, line := frame.current().line)
        return self.outside.constant(made, f"line_{line}").code()

    def performed(self, *call: str) -> list[str]:
        """Statements: the operation; a row says how if it may be caught."""
        if any(map(in_force, self.frames)):
            return WAYS["perform"](self, *call)
        return [f"value = {call[0]}({', '.join(call[1:])})"]

    def rest(self, frames, offset: int, stack: list) -> str:
        """The call that goes on in frames, the innermost at `offset`."""
        *outer, frame = frames
        place, values = placed(self.rebuild, frame, offset, stack)
        function = made_once(going_on, place, frame.function)
        if outer:
            function, values = returning(
                self.rebuild, outer, function, values)
        CONTINUATIONS.add(function)
        name = self.outside.constant(
            function, f"resume_{function.__name__}")
        return f"{name.code()}({', '.join(values)})"


# Breaks at an `if`, a loop, an attribute

#: The code of a call.
CALL_CODE = (lambda function, *given: function(*given)).__code__


def at_line(place: FrameState, line: int) -> CodeType:
    """The code of a call, which a traceback shows as a line of a frame."""
    return CALL_CODE.replace(
        co_filename=place.code.co_filename, co_name=place.code.co_name,
        co_qualname=place.code.co_qualname, co_firstlineno=line,
        co_linetable=_lines(len(CALL_CODE.co_code) // 2, 0))


def question(at: Break, function, *given: str) -> list[str]:
    """A function called on values, at the user's line."""
    return [at.line(at.frame), at.rebuild.known(function), *given]


def ask_truth(at: Break) -> tuple:
    """A value's truth: on in one branch or the other, or with the truth."""
    steps, stack = at.frame.program.instructions, at.frame.stack
    jump = steps[at.frame.next] if at.step.name == "TO_BOOL" else at.step
    operation = question(at, bool, at.rebuild.value(stack[-1]))
    if jump.name not in TRUTH:
        return operation, [at.on(stack[:-1])]
    when, stays = TRUTH[jump.name]
    return operation, [
        ("value" if when else "not value",
         steps[jump.argument].start, stack if stays else stack[:-1]),
        ("", jump.end, stack[:-1])]


def ask_next(at: Break) -> tuple:
    """An iterator's next item: on in the loop, or behind it."""
    steps, stack = at.frame.program.instructions, at.frame.stack
    end = at.outside.constant(ABSENT, "end").code()
    return question(at, next, at.rebuild.value(stack[-1]), end), [
        (f"value is {end}", steps[at.step.argument].start,
         stack[:-1]), at.on(stack)]


def ask_attribute(at: Break) -> tuple:
    """An object's attribute, with the NULL that a call expects."""
    (name, called), stack = at.step.argument, at.frame.stack
    pair = [Named("value"), NULL][::1 if NULL_ABOVE else -1]
    return question(at, getattr, at.rebuild.value(stack[-1]), repr(name)), [
        ("", at.step.end, [*stack[:-1], *pair]) if called
        else at.on(stack[:-1])]


def enter_with(at: Break) -> tuple:
    """A `with`, in a function that has no tensor all of its call: it holds
    a lock or reads a file, and what it prepares is not to be compiled."""
    if at.frames[1:] and not any(is_a(each, (Tensor, CellType))
                                 for each in tree_leaves(at.frame.names)):
        raise unsupported("code", "a function without tensors")
    return at.single()


#: Opcode -> a function and its arguments, and the ways to go on after it,
#: where CPython's own instruction does not do. A way is a test of the
#: result, or none, an offset and the stack.
OPERATIONS: dict[str, Callable[[Break], tuple[list[str], list[tuple]]]] = {
    **dict.fromkeys((*TRUTH, "TO_BOOL"), ask_truth), "FOR_ITER": ask_next,
    "LOAD_ATTR": ask_attribute, "BEFORE_WITH": enter_with}

# What the rest of a frame reads

#: Opcodes that do not go on with the next instruction.
_LEAVING = {"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}


@functools.cache
def lives(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each position, the names whose values may still be read."""
    whole = decode(code)
    steps = [*enumerate(whole.instructions)]
    alive, before = [frozenset()] * (len(steps) + 1), None
    while before != alive:
        before = list(alive)
        for at, step in reversed(steps):
            names = frozenset() if step.name in _LEAVING else alive[at + 1]
            if "JUMP" in step.name or step.name in ("FOR_ITER", "SEND"):
                names |= alive[step.argument]
            if step.name == "STORE_FAST":
                names -= {step.argument}
            elif "_FAST" in step.name or "DEREF" in step.name:
                names |= {step.argument}
            if row := whole.handler(step.offset):
                names |= alive[whole.at(row.target)]
            alive[at] = names
    return tuple(alive)


def live(frame: Frame, offset: int) -> frozenset[str]:
    """The names that are read from `offset` on, by a handler or super().
    """
    code, handler = frame.program.code, in_force(frame)
    of_super = {"__class__", *code.co_varnames[:1]} if (
        "__class__" in code.co_freevars) else ()
    return frozenset(of_super).union(*(
        lives(frame.code)[frame.program.at(each)]
        for each in (offset, *(handler or ())[:1])))


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


def going_on(state: FrameState, body: bytes = b"", extra: int = 0,
             constants: tuple = (), handler: tuple | None = None
             ) -> CodeType:
    """Code that rebuilds the frame, runs `body` and goes on.

    `body` may use further arguments and constants, and have a handler.
    Cells and free variables are arguments that hold the cells; only
    `__class__` stays free, for super().
    """
    code, names, jump = state.code, slots(state.code), op(
        "JUMP_FORWARD", state.offset // 2)
    head = _prefix(state) + body + jump
    shift, program = len(head), decode(code)
    rows = [(-len(body + jump), -len(jump), *handler)] if handler else []
    line = program.instructions[program.at(state.offset) - 1].line
    names += tuple(f".stack{i}" for i in range(
        state.arguments() + extra - len(names)))
    made = code.replace(
        co_code=head + code.co_code, co_firstlineno=line,
        co_linetable=_lines(shift // 2, line - code.co_firstlineno)
        + code.co_linetable,
        co_exceptiontable=handlers([*rows, *program.handlers], shift),
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
NO_VALUES: dict[type, Callable] = {Null: lambda _: ((0, op("PUSH_NULL")),)}


#: Functions that look at the frame that calls them, by the opcode that
#: loads them; and those that do not if they are given an argument.
LOOKING = {"LOAD_GLOBAL": {"locals", "vars", "dir", "eval", "exec"},
           "LOAD_ATTR": {"_getframe", "currentframe"}}
ASKED = "vars", "dir"

_functions: dict[tuple, FunctionType] = {}


def placed(rebuild, frame, offset: int, stack
           ) -> tuple[FrameState, list[str]]:
    """Where `frame` stands, in its original code, and its values' text.

    Only names that may still be read count, and objects that the program
    may see die.
    """
    for step, then in pairwise(frame.program.instructions):
        names = LOOKING.get(step.name, ())
        if names and (name := step.argument[0]) in names and (
                name not in ASKED or not then.argument):
            error = unsupported("code", f"a caller of {name}")
            error.final = "f_locals" in frame.program.code.co_names
            raise error
    code, alive = frame.program.code, live(frame, offset)
    names = slots(code)
    values = [rebuild.value(frame.names[name]) if name in frame.names and (
        name in alive or is_mortal(rebuild, frame.names[name])
        ) else "None" for name in names]
    kinds = []
    for entry in stack:
        read = NO_VALUES.get(type(entry))
        kind, *held = read(entry) if read else ((1, b""), entry)
        kinds.append(kind)
        values += [value if type(value) is Named else rebuild.value(value)
                   for value in held]
    unbound = tuple(name for name in names
                    if name in alive and name not in frame.names)
    return FrameState(code, offset, tuple(kinds), unbound), values


def is_mortal(rebuild: Rebuild, value) -> bool:
    """Whether a weak reference or a finalizer may notice that an object
    dies. It exists already, so that handing it on costs the graph nothing.
    """
    given = id(value) in rebuild.names if rebuild.tracer.is_made(
        value) else rebuild.outside.is_outside(value)
    return given and type(value).__weakrefoffset__ != 0 and (
        not is_a(value, IDENTITIES))


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

# Breaks in a callee


def returning(rebuild: Rebuild, outer: list[Frame], function, values: list
              ) -> tuple[FunctionType, list[str]]:
    """The function that goes on in the frames that wait: each calls the
    next."""
    for frame in reversed(outer):
        place, held = placed(rebuild, frame, behind(frame), frame.stack)
        function = made_once(calling, place, frame.function,
                             in_force(frame), function)
        values = [*held, *values]
    return function, values


def behind(frame: Frame) -> int:
    """The offset where a frame goes on when its callee has returned.

    A continuation that calls another jumps to that place.
    """
    step, steps = frame.current(), frame.program.instructions
    return step.end if step.offset >= 0 else steps[
        steps[frame.next].argument].start


def calling(state: FrameState, handler, inner: FunctionType) -> CodeType:
    """Code that rebuilds the frame, calls `inner`, and goes on.

    The arguments behind the frame's own are those of `inner`.
    """
    count = inner.__code__.co_argcount
    callee = op("PUSH_NULL"), op("LOAD_CONST", len(state.code.co_consts))
    body = b"".join([*callee[::-1 if NULL_ABOVE else 1], *(
        op("LOAD_FAST", state.arguments() + at) for at in range(count))])
    body += op("BUILD_TUPLE", count) + op("CALL_FUNCTION_EX")
    return going_on(state, body, count, (inner,), handler)


def handlers(rows, shift: int) -> bytes:
    """An exception table of rows that are moved by `shift` bytes."""
    table = b""
    for start, end, target, depth, lasti in rows:
        row = b"".join(varint(value, -1) for value in (
            (start + shift) // 2, (end - start) // 2,
            (target + shift) // 2, depth << 1 | lasti))
        table += bytes((row[0] | 128,)) + row[1:]
    return table
