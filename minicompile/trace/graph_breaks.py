"""A graph break: Python performs one instruction between two graphs.

In: the frames of a trace that stopped before an instruction. Out: the
text of `finish`, which performs that instruction on real values and
calls the continuation with the frames' values. Suspended frames
become one function, so the rest of a call is one graph. PyTorch's is
torch/_dynamo/symbolic_convert.py:break_graph_if_unsupported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from types import FunctionType

from .bytecode import live
from .frame import NO_ROW, OPCODES, Frame
from .reasons import WAYS, unsupported
from .reconstruct import Rebuild
from .resume import Named, going_on, made_once, placed, single


def waiting(tracer) -> list[Frame]:
    """The frames, outermost first, that can be left waiting.

    The list ends where something other than a plain call stands between
    two of them, and at a frame of the standard library, which is one step
    to us.
    """
    return [*takewhile(lambda frame: str(frame.globals.get(
        "__name__")).partition(".")[0] not in LIBRARY, tracer.left)]


@dataclass(frozen=True)
class Continuation:
    """The rest of a call: a function of the frames' values at the break."""

    function: FunctionType


continuation = functools.cache(Continuation)


#: Opcode -> an operation and its ways, where CPython's own does not do.
OPERATIONS: dict[str, Callable[[Break], tuple]] = {}

#: The packages of the standard library.
LIBRARY = sys.stdlib_module_names - {"__main__"}


def ending(tracer, result) -> tuple[Rebuild, str]:
    """`finish` at the end of a call: effects and result, and its text."""
    rebuild = Rebuild(tracer)
    returned = rebuild.value(result)
    body = tracer.outside.writes(rebuild)
    if body:
        returned = rebuild.hold(returned)
    return rebuild, rebuild.function([*body, f"return {returned}"])


def breaking(tracer, frames) -> tuple[Rebuild, str]:
    """`finish` where the trace of some frames stopped, and its text."""
    at = Break(tracer, frames)
    operation, ways = at.operation()
    rest = at.performed(*operation)
    for test, *way in ways:
        call = f"return {at.rest(frames, *way)}"
        rest += [f"if {test}:", f"    {call}"] if test else [call]
    return at.rebuild, at.rebuild.function([
        *tracer.outside.writes(at.rebuild), *rest])


class Break:
    """The statements that leave one instruction to Python."""

    def __init__(self, tracer, frames: tuple[Frame, ...]):
        self.frames, self.frame = frames, frames[-1]
        self.step, self.outside = self.frame.current(), tracer.outside
        self.rebuild = Rebuild(tracer)
        self.value = self.rebuild.fresh()

    def operation(self) -> tuple[list[str], list[tuple]]:
        """A function and its arguments; the ways to go on after it.

        A way is a test of the result, or none, an offset and the stack.
        """
        return OPERATIONS.get(self.step.name, Break.single)(self)

    def on(self, below: list) -> tuple[str, int, list]:
        """The way on; the value is on the stack if something reads it."""
        frame, alive = self.frame, live(self.frame.code)
        then = frame.program.instructions[frame.next]
        if then.name == "POP_TOP" or (
                then.name == "STORE_FAST"
                and then.argument not in alive[frame.next + 1]):
            return "", then.end, below
        return "", self.step.end, [*below, Named(self.value)]

    def single(self) -> tuple[list[str], list[tuple]]:
        """The instruction itself, run by CPython on the real stack."""
        frame, step = self.frame, self.step
        taken, count = counts(step)
        place, values = placed(self.rebuild, frame, step.start, frame.stack)
        made = made_once(single, place, frame.function, count)
        name = self.outside.constant(made, f"line_{step.line}").code()
        below = frame.stack[:len(frame.stack) - taken]
        given = [Named(f"{self.value}[{i}]") for i in range(count)]
        return [name, *values], [self.on(below) if count == 1 else (
            "", step.end, [*below, *given])]

    def performed(self, *call: str) -> list[str]:
        """Statements: the operation; a row says how if it may be caught."""
        if any(frame.handler() for frame in self.frames):
            return WAYS["perform"](self, *call)
        return [f"{self.value} = {call[0]}({', '.join(call[1:])})"]

    def rest(self, frames, offset: int, stack: list) -> str:
        """The call that goes on in frames, the innermost at `offset`."""
        *outer, frame = frames
        place, values = placed(self.rebuild, frame, offset, stack)
        function = made_once(going_on, place, frame.function)
        if outer:
            function, values = WAYS["return"](
                self.rebuild, outer, function, values)
        name = self.outside.constant(
            continuation(function), f"resume_{function.__name__}")
        return f"{name.code()}({', '.join(values)})"


def counts(step) -> list[int]:
    """How many values an instruction takes and pushes; or Unsupported."""
    takes, pushes, _ = OPCODES.get(step.name, NO_ROW)
    if pushes is None:
        raise unsupported("opcode", step.name)
    return [number(step.argument) if callable(number) else number
            for number in (takes, pushes)]
