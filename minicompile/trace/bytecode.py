"""Code objects as instructions that read the same on 3.11, 3.12 and 3.13.

In: a code object. Out: its instructions with arguments resolved, jumps
turned into positions in the list, fused instructions taken apart, and
the exception table. This is the only file that knows a Python version.
PyTorch's are torch/_dynamo/bytecode_transformation.py and
bytecode_analysis.py.
"""

from __future__ import annotations

import dis
import functools
import operator
import sys
from bisect import bisect_left
from dataclasses import dataclass
from types import CodeType

#: Since 3.13 a callable lies below its NULL, before that above it.
NULL_ABOVE = sys.version_info >= (3, 13)
#: Since 3.12 `SEND` leaves the generator for END_SEND to drop.
SEND_KEEPS = sys.version_info >= (3, 12)
_COMPARE_SHIFT = {11: 0, 12: 4, 13: 5}[sys.version_info[1]]

#: What BINARY_OP's number means.
BINARY = [getattr(operator, name) for name in
          ["add", "and_", "floordiv", "lshift", "matmul", "mul", "mod",
           "or_", "pow", "rshift", "sub", "truediv", "xor",
           "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imul",
           "imod", "ior", "ipow", "irshift", "isub", "itruediv", "ixor"]]

COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq,
           "!=": operator.ne, ">": operator.gt, ">=": operator.ge}

#: Opcodes that are another one under an older or narrower name.
SAME = {
    "LOAD_METHOD": "LOAD_ATTR", "LOAD_CLOSURE": "LOAD_FAST",
    "LOAD_FAST_CHECK": "LOAD_FAST", "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    **{f"POP_JUMP_{way}_IF_{test}": f"POP_JUMP_IF_{test}"
       for way in ("FORWARD", "BACKWARD")
       for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")},
}

#: Opcodes that do two things, as the two they do.
FUSED = {"LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
         "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
         "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST")}

INTRINSIC = {3: "STOPITERATION_ERROR", 5: "UNARY_POSITIVE",
             6: "LIST_TO_TUPLE"}

#: Opcodes that prepare the one after them, and run with it.
PREPARING = {"EXTENDED_ARG", "KW_NAMES", "PRECALL"}

#: Opcodes that do nothing a symbolic run can see, or are jumped over.
SILENT = {"CACHE", "PRECALL", "EXTENDED_ARG", "RESUME", "NOP", "END_FOR"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step: its opcode, the resolved argument, offset and line."""

    name: str
    argument: object
    offset: int
    line: int


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the exception table, in byte offsets and positions."""

    start: int
    end: int
    entry: int
    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True)
class Program:
    """A code object decoded: its instructions and exception handlers."""

    code: CodeType
    instructions: tuple[Instruction, ...]
    handlers: tuple[Handler, ...]

    def handler(self, offset: int) -> Handler | None:
        """Where an exception raised at `offset` is handled, if at all."""
        for row in self.handlers:
            if row.start <= offset < row.end:
                return row
        return None

    def at(self, offset: int) -> int:
        """The position of the first instruction at or after `offset`."""
        return bisect_left(self.instructions, offset,
                           key=lambda step: step.offset)

    def line(self, offset: int) -> int:
        """The user's line of the instruction at `offset`."""
        return self.instructions[
            min(self.at(offset), len(self.instructions) - 1)].line

    def bounds(self, offset: int) -> tuple[int, int]:
        """The bytes of an instruction, with what prepares it."""
        units = list(_unpack(self.code.co_code))
        at = last = [unit[0] for unit in units].index(offset)
        while at and dis.opname[units[at - 1][1]] in PREPARING:
            at -= 1
        return units[at][0], units[last][3]

    def effect(self, offset: int) -> int:
        """By how much the instruction, not jumping, grows the stack."""
        start, end = self.bounds(offset)
        return sum(dis.stack_effect(
            op, argument if op >= dis.HAVE_ARGUMENT else None, jump=False)
            for at, op, argument, _ in _unpack(self.code.co_code)
            if start <= at < end)

    def __str__(self) -> str:
        return "\n".join(
            f"{at:4} {step.line:5} {step.name:24} {step.argument!r}"
            for at, step in enumerate(self.instructions))


_programs: dict[int, Program] = {}


def decode(code: CodeType) -> Program:
    """The program of a code object, decoded once."""
    program = _programs.get(id(code))
    if program is None:
        program = _programs[id(code)] = _decode(code)
    return program


def _decode(code: CodeType) -> Program:
    """Instructions first with byte offsets, then jumps as positions."""
    raw = list(_unpack(code.co_code))
    names = {offset: dis.opname[op] for offset, op, _, _ in raw}
    lines = _lines(code)
    steps: list[tuple[str, object, int]] = []
    for offset, op, argument, after in raw:
        name = dis.opname[op]
        if op in dis.hasjrel:
            back = -1 if "BACKWARD" in name else 1
            argument = _Jump(after + 2 * back * argument)
            if name == "FOR_ITER":
                argument = _Jump(_after_loop(names, argument.offset))
        steps += [(n, a, offset) for n, a in _plain(code, name, argument)]
    offsets = [offset for _, _, offset in steps]

    def resolve(argument):
        if isinstance(argument, _Jump):
            return bisect_left(offsets, argument.offset)
        return argument

    handlers = tuple(
        Handler(row.start, row.end, row.target,
                bisect_left(offsets, row.target), row.depth, row.lasti)
        for row in dis._parse_exception_table(code))
    return Program(code, tuple(
        Instruction(name, resolve(argument), offset,
                    lines.get(offset, code.co_firstlineno))
        for name, argument, offset in steps), handlers)


#: Opcodes that do not go on with the next instruction.
_LEAVING = {"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}


@functools.cache
def live(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each position, the names whose values may still be read."""
    program = decode(code)
    steps = program.instructions
    alive = [frozenset()] * (len(steps) + 1)
    before = None
    while before != alive:
        before = list(alive)
        for at in reversed(range(len(steps))):
            alive[at] = _live(program, steps[at], alive, alive[at + 1])
    return tuple(alive)


def _live(program: Program, step: Instruction, alive, below):
    """The names alive before one step, given those alive after it."""
    names = frozenset() if step.name in _LEAVING else below
    if "JUMP" in step.name or step.name in ("FOR_ITER", "SEND"):
        names |= alive[step.argument]
    if step.name == "STORE_FAST":
        names -= {step.argument}
    elif "_FAST" in step.name or "DEREF" in step.name:
        names |= {step.argument}
    handler = program.handler(step.offset)
    return names | alive[handler.target] if handler else names


@dataclass(frozen=True)
class _Jump:
    """A jump's target while positions are not known yet."""

    offset: int


def _unpack(code: bytes):
    """Yield (offset, opcode, argument, offset of the next opcode)."""
    cache, extended = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]
    high = at = 0
    while at < len(code):
        op, argument, start = code[at], code[at + 1] | high, at
        at += 2
        while at < len(code) and code[at] == cache:
            at += 2
        high = argument << 8 if op == extended else 0
        yield start, op, argument, at


def _lines(code: CodeType) -> dict[int, int]:
    """The user's line of every byte offset."""
    lines = {}
    for start, end, line in code.co_lines():
        if line is not None:
            lines.update((at, line) for at in range(start, end, 2))
    return lines


def _after_loop(names: dict[int, str], offset: int) -> int:
    """Where a finished loop goes on: past END_FOR and its POP_TOP."""
    if names.get(offset) == "END_FOR":
        offset += 2
        if NULL_ABOVE and names.get(offset) == "POP_TOP":
            offset += 2
    return offset


def _plain(code: CodeType, name: str, argument) -> list[tuple]:
    """One raw instruction as (name, argument) pairs every version has."""
    if name in SILENT:
        return []
    if name in FUSED:
        pair = zip(FUSED[name], (argument >> 4, argument & 15))
        return [(one, code._varname_from_oparg(at)) for one, at in pair]
    match name:
        case "RETURN_CONST":
            return [("LOAD_CONST", code.co_consts[argument]),
                    ("RETURN_VALUE", None)]
        case "LOAD_GLOBAL":
            return [(name, (code.co_names[argument >> 1], argument & 1))]
        case "LOAD_METHOD":
            return [("LOAD_ATTR", (code.co_names[argument], 1))]
        case "LOAD_ATTR":
            shift = int(SEND_KEEPS)
            return [(name, (code.co_names[argument >> shift],
                            argument & shift))]
        case "LOAD_SUPER_ATTR":
            return [(name, (code.co_names[argument >> 2], argument & 1))]
        case "COMPARE_OP":
            symbol = dis.cmp_op[argument >> _COMPARE_SHIFT]
            truth = NULL_ABOVE and argument & 16
            return [(name, COMPARE[symbol])] + [("TO_BOOL", None)] * bool(
                truth)
        case "BINARY_OP":
            return [(name, BINARY[argument])]
        case "CALL_INTRINSIC_1":
            return [(INTRINSIC.get(argument, name), argument)]
    return [(SAME.get(name, name), _resolve(code, name, argument))]


def _resolve(code: CodeType, name: str, argument):
    """The constant or name an argument stands for, else the argument."""
    op = dis.opmap[name]
    if op in dis.hasconst:
        return code.co_consts[argument]
    if op in dis.hasname:
        return code.co_names[argument]
    if op in dis.haslocal or op in dis.hasfree:
        return code._varname_from_oparg(argument)
    return argument
