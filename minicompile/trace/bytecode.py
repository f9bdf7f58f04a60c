"""Code objects as instructions that read the same on 3.11, 3.12 and 3.13.

In: a code object, as `dis` reads it. Out: its instructions, with jumps
turned into positions in the list and fused instructions taken apart, and
the exception table. This file hides how versions of Python differ.
PyTorch's are torch/_dynamo/bytecode_transformation.py and
bytecode_analysis.py.
"""

import dis
import operator
import sys
from bisect import bisect_left
from dataclasses import dataclass
from types import CodeType

#: Since 3.13 a callable lies below its NULL, before that above it.
NULL_ABOVE = sys.version_info >= (3, 13)
#: Since 3.12 `SEND` leaves the generator for END_SEND to drop.
SEND_KEEPS = sys.version_info >= (3, 12)

#: The operators that BINARY_OP numbers.
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
    """One step: its opcode, the resolved argument, offset and line.

    Its bytes, with what prepares it, are those from `start` to `end`.
    """

    name: str
    argument: object
    offset: int
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Bytecode:
    """A code object decoded: instructions, rows of the exception table."""

    code: CodeType
    instructions: tuple[Instruction, ...]
    handlers: tuple

    def handler(self, offset: int):
        """The row for exceptions raised at `offset`, or None."""
        return next((row for row in self.handlers
                     if row.start <= offset < row.end), None)

    def at(self, offset: int) -> int:
        """The position of the first instruction at or after `offset`."""
        return bisect_left(self.instructions, offset,
                           key=lambda step: step.offset)


_decoded: dict[int, tuple[CodeType, Bytecode]] = {}


def decode(code: CodeType, original: CodeType | None = None,
           by: int = 0) -> Bytecode:
    """A code object decoded, once: byte offsets, but jumps as positions.

    If it is an original behind a prefix of `by` bytes, the instructions
    have the original's offsets, and those of the prefix negative ones.
    """
    if id(code) in _decoded:
        return _decoded[id(code)][1]
    raw, start, steps = [None, *dis.get_instructions(code)], 0, []
    ends = [step.offset for step in raw[2:]] + [len(code.co_code)]
    for before, step, end in zip(raw, raw[1:], ends):
        if before is None or before.opname not in PREPARING:
            start = step.offset
        steps += [(name, argument, step, start - by, end - by)
                  for name, argument in _plain(code, before, step)]
    offsets = [step.offset for _, _, step, *_ in steps]
    made = Bytecode(original or code, tuple(Instruction(
        name, bisect_left(offsets, argument) if (
            step.opcode in dis.hasjrel) else argument,
        step.offset - by, step.positions.lineno or code.co_firstlineno,
        *bounds) for name, argument, step, *bounds in steps), tuple(
            row._replace(start=row.start - by, end=row.end - by,
                         target=row.target - by)
            for row in dis._parse_exception_table(code)))
    _decoded[id(code)] = code, made
    return made


def _plain(code: CodeType, before: dis.Instruction | None,
           step: dis.Instruction) -> list[tuple]:
    """One raw instruction as (name, argument) pairs every version has.

    A loop's end is jumped over, so it is dropped: END_FOR, and since 3.13
    the POP_TOP after it.
    """
    name, value = step.opname, step.argval
    if name in SILENT or (NULL_ABOVE and name == "POP_TOP" and before
                          and before.opname == "END_FOR"):
        return []
    if name in FUSED:
        return [*zip(FUSED[name], value)]
    match name:
        case "RETURN_CONST":
            return [("LOAD_CONST", value), ("RETURN_VALUE", None)]
        case "LOAD_GLOBAL" | "LOAD_SUPER_ATTR":
            return [(name, (value, step.arg & 1))]
        case "MAKE_FUNCTION":  # since 3.13 its parts are set one by one
            return [(name, None), *(
                ("SET_FUNCTION_ATTRIBUTE", flag) for flag in (8, 4, 2, 1)
                if (step.arg or 0) & flag)]
        case "KW_NAMES":
            return [(name, code.co_consts[step.arg])]
        case "LOAD_ATTR" | "LOAD_METHOD":
            called = name == "LOAD_METHOD" or step.arg & SEND_KEEPS
            return [("LOAD_ATTR", (value, called))]
        case "COMPARE_OP":
            truth = NULL_ABOVE and step.arg & 16
            return [(name, COMPARE[value]), *[("TO_BOOL", None)][:truth]]
        case "BINARY_OP":
            return [(name, BINARY[value])]
        case "CALL_INTRINSIC_1":
            return [(INTRINSIC.get(value, name), value)]
    return [(SAME.get(name, name), value)]
