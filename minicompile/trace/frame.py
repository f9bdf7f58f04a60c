"""Python's stack machine, run on stand-ins.

In: a function and its local values. Out: what it returns. Values are
real Python objects, except that tensors are fake; so the same frames run
on concrete values when nothing is outside. A frame can stop and go on,
which is what a generator is. Byterun's shape; PyTorch's is
torch/_dynamo/symbolic_convert.py (InstructionTranslator).
"""

from __future__ import annotations

import types

from ..core.errors import Unsupported
from ..core.where import Where
from . import control, opcodes
from .bytecode import NULL_ABOVE, SEND_KEEPS, Instruction, decode
from .chain import passes_on
from .kinds import trusted
from .reasons import Raised, internal, unsupported
from .stand_ins import NULL

def opcodes_in(names: dict) -> dict:
    """The opcodes among a module's names: functions in capital letters."""
    return {name: function for name, function in names.items()
            if name.isupper() and isinstance(function, types.FunctionType)}


#: The function of every opcode, by the opcode's name.
OPCODES = opcodes_in(vars(opcodes)) | opcodes_in(vars(control))
OPCODES |= {name: make(*row) for make, table in (
    (opcodes.opcode, opcodes.VALUES), (control.deciding, control.TRUTH))
    for name, row in table.items()}


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
        self.handling: BaseException | None = None
        self.space: dict = {}  # the names of a class body

    def current(self) -> Instruction:
        """The instruction being run."""
        return self.program.instructions[max(self.next - 1, 0)]

    def where(self) -> Where:
        """The user's line of the instruction being run."""
        return Where(self.code.co_filename, self.current().line,
                     self.code.co_name)

    def run(self):
        """Run until the frame returns or yields: (how, value)."""
        tracer = self.tracer
        steps = self.program.instructions
        tracer.frames.append(self)
        try:
            while True:
                step = steps[self.next]
                self.next += 1
                self.moment = tracer.tick()
                try:
                    left = self.step(step)
                except Raised as raised:
                    tracer.raises(raised.exception)
                    self.unwind(raised, step.offset)
                else:
                    if left is not None:
                        return left
        except (Raised, Unsupported, RecursionError) as error:
            error.place = getattr(
                error, "place", None) or tracer.origin(error)
            raise
        except Exception as error:
            raise internal(error).at(tracer.where()) from error
        finally:
            tracer.frames.pop()

    @passes_on
    def step(self, step: Instruction):
        """Run one instruction: None, or how it leaves the frame."""
        opcode = OPCODES.get(step.name)
        if opcode is None:
            raise unsupported("opcode", step.name)
        return opcode(self, step.argument)

    def unwind(self, raised: Raised, offset: int) -> None:
        """Go on at the handler of an exception, or let it leave."""
        handler = self.program.handler(offset)
        if handler is None:
            raise raised
        del self.stack[handler.depth:]
        if handler.lasti:
            self.stack.append(offset // 2)
        self.stack.append(raised.exception)
        self.next = handler.target

    def delegate(self):
        """What a generator that waits in a `yield from` waits for."""
        after = self.program.instructions[self.next]
        return self.stack[-1] if after.name == "JUMP" else None

    def delegated(self, value, target: int | None = None) -> None:
        """Go on behind a `yield from`, which gives `value`."""
        if target is None:
            target = self.program.instructions[self.next - 2].argument
        if not SEND_KEEPS:
            self.stack.pop()
        self.stack.append(value)
        self.next = target

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
