"""Python's stack machine, run on stand-ins.

In: a function and its local values. Out: its result. Values are
real Python objects, except that tensors are fake; so the same frames run
on concrete values when nothing is outside. A frame can stop and go on,
as a generator does. Byterun's shape; PyTorch's is
torch/_dynamo/symbolic_convert.py (InstructionTranslator).
"""

from __future__ import annotations

import types
from collections.abc import Callable

from ..core.errors import Unsupported, Where
from ..core.guard import Attribute, Item
from .bytecode import NULL_ABOVE, Instruction, decode
from .constant_types import ABSENT, NULL, contents, trusted
from .reasons import WAYS, Raised, internal, unsupported

#: How a frame was left: (how, value).
RETURN, YIELD = "return", "yield"

#: opcode -> (values taken off the stack, values pushed, function). The
#: function of (frame, argument, *taken) gives the one value to push. It
#: pushes any other number itself. With None in its place, a graph break
#: cannot leave the instruction to CPython, and the function gives how the
#: frame is left, if it is. A number may be a function of the argument.
OPCODES: dict[str, tuple] = {}

#: The row of an opcode that ends the trace.
NO_ROW = 0, None, None


def opcode(takes, pushes=1) -> Callable:
    """Add the decorated function to the table, under its name."""
    def add(function):
        OPCODES[function.__name__] = takes, pushes, function
        return function
    return add


class Frame:
    """One running function: its names, its stack, its next position."""

    def __init__(self, tracer, function: types.FunctionType, names: dict):
        self.tracer, self.function = tracer, function
        self.code = function.__code__
        self.program = decode(self.code)
        self.names = names
        self.globals = function.__globals__
        self.library = trusted(self.globals.get("__name__"))
        self.stack: list = []
        self.next = self.moment = 0
        self.keywords: tuple[str, ...] = ()

    def current(self) -> Instruction:
        """The instruction being run."""
        return self.program.instructions[max(self.next - 1, 0)]

    def where(self) -> Where:
        """The user's line of the instruction being run."""
        return Where(self.code.co_filename, self.current().line,
                     self.code.co_name)

    def run(self):
        """Run until this frame returns or yields: (how, value).

        A call puts the frame of its callee on the tracer's list.
        """
        tracer, frames = self.tracer, self.tracer.frames
        depth = len(frames)
        frames.append(self)
        try:
            while True:
                frame = frames[-1]
                step = frame.program.instructions[frame.next]
                frame.next += 1
                frame.moment = tracer.tick()
                try:
                    left = frame.step(step)
                except Raised as raised:
                    if "catch" not in WAYS:
                        raise
                    WAYS["catch"](frames, depth, raised)
                else:
                    if left is not None:
                        frames.pop()
                        if len(frames) == depth:
                            return left
                        frames[-1].stack.append(left[1])
        except (Raised, Unsupported, RecursionError) as error:
            error.place = getattr(error, "place", None) or tracer.where()
            raise
        except Exception as error:
            raise internal(error).at(tracer.where()) from error
        finally:
            tracer.left = frames[depth:]
            del frames[depth:]

    def step(self, step: Instruction):
        """Run one instruction: None, or how it leaves the frame."""
        takes, pushes, function = OPCODES.get(step.name, NO_ROW)
        if function is None:
            raise unsupported("opcode", step.name)
        taken = self.pop(takes(step.argument) if callable(takes) else takes)
        made = function(self, step.argument, *taken)
        if type(made) is Frame:  # its result is pushed when it returns
            self.tracer.frames.append(made)
        elif pushes is None:
            return made
        elif pushes == 1:
            self.stack.append(made)

    def handler(self) -> tuple[int, int, bool] | None:
        """The handler in force: target, stack depth, `lasti`; or None."""
        row = self.program.handler(self.current().offset)
        return row and row[2:]

    def pop(self, count: int) -> list:
        """The topmost `count` values, taken off, lowest first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def push(self, value, called: int) -> None:
        """Push a value, if called with the NULL that CALL expects."""
        pair = (value, NULL) if NULL_ABOVE else (NULL, value)
        self.stack += pair if called else (value,)

    def jump(self, target: int, jumps: bool = True) -> None:
        """Go on at another position, if so."""
        if jumps:
            self.next = target


# Globals, cells and closures


def load_global(tracer, names: dict, name: str):
    """A global or builtin name."""
    outside = tracer.outside
    value = outside.read(outside.space("globals", names), name)
    if value is not ABSENT:
        return value
    builtins = names.get("__builtins__", {})
    builtins = getattr(builtins, "__dict__", builtins)
    if name not in builtins:
        raise Raised(NameError(f"name {name!r} is not defined"))
    return builtins[name]


def closure(tracer, function: types.FunctionType) -> tuple:
    """A function's cells, known to be outside if they are."""
    cells = function.__closure__ or ()
    if cells and not tracer.is_made(function):
        base = Attribute(tracer.outside.found_at(function), "__closure__")
        for index, cell in enumerate(cells):
            if not tracer.is_made(cell):
                tracer.outside.admit(cell, Item(base, index))
    return cells


def load_cell(tracer, cell: types.CellType, name: str):
    """A cell's content."""
    if tracer.outside.is_outside(cell):
        value = tracer.outside.read(
            tracer.outside.space("attributes", cell), "cell_contents")
    else:
        value = contents(cell).get("cell_contents", ABSENT)
    if value is ABSENT:
        raise Raised(NameError(
            f"cannot access free variable {name!r} where it is not "
            "associated with a value in enclosing scope"))
    return value


def store_cell(tracer, cell: types.CellType, value) -> None:
    """Set a cell's content; outside, the write waits for the end."""
    if tracer.outside.is_outside(cell):
        tracer.outside.write(tracer.outside.space("attributes", cell),
                             "cell_contents", value)
    else:
        cell.cell_contents = value
