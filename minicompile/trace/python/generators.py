"""Generators: a frame that waits, and goes on.

In: a frame, and what is sent to it. Out: a reason to leave the frame,
which keeps its stack and position; after the graph, a real generator that
waits at the same place. PyTorch has
torch/_dynamo/symbolic_convert.py:InliningGeneratorInstructionTranslator.
"""

from __future__ import annotations

from types import GeneratorType

from ..attributes import KINDS
from ..bytecode import SEND_KEEPS
from ..frame import OPCODES, RETURN, YIELD, opcode
from ..constant_types import StandIn
from ..reasons import Raised, unsupported
from ..reconstruct import MAKERS, Rebuild
from ..resume import going_on, made_once, op, placed
from .callbacks import unwatched

#: Instructions that only find out who handles an exception.
SEARCHING = {"PUSH_EXC_INFO", "LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE",
             "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE", "POP_EXCEPT", "COPY",
             "RERAISE", "STOPITERATION_ERROR", "CLEANUP_THROW"}


def stopped(error: StopIteration) -> RuntimeError:
    """The exception that a generator raises in place of StopIteration."""
    failure = RuntimeError("generator raised StopIteration")
    failure.__cause__ = failure.__context__ = error
    return failure


class Generator(StandIn):
    """A generator of the traced program: a frame that waits."""

    def __init__(self, frame):
        self.frame, self.done = frame, False

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """The next value yielded; StopIteration ends it, as Python's."""
        if self.frame in self.frame.tracer.frames:
            raise ValueError("generator already executing")
        if value is not None and (
                self.frame.current().name == "RETURN_GENERATOR"):
            raise TypeError("can't send non-None value to a just-started "
                            "generator")
        self.frame.stack.append(value)
        return self._go_on()

    def throw(self, error, value=None, *_):
        """Raise `error` where the generator waits."""
        if isinstance(error, type):
            error = error() if value is None else value
        if not self.done and self.inner():
            raise unsupported("builtin", "throwing into a `yield from`")
        try:
            self.frame.unwind(Raised(error))
        except Raised:
            self.done = True
        if self.done:
            raise error
        return self._go_on()

    def inner(self) -> Generator | None:
        """The generator that it waits for in a `yield from`."""
        frame = self.frame
        after = frame.program.instructions[frame.next].name
        return frame.stack[-1] if after == "JUMP" and isinstance(
            frame.stack[-1], Generator) else None

    def would_act(self) -> bool:
        """Whether its code does something when it is closed now.

        Looks for a handler as Python would, then puts the frame back.
        """
        frame, inner, error = self.frame, self.inner(), GeneratorExit()
        steps = frame.program.instructions
        before = [*frame.stack], frame.next, frame.handling
        try:
            while True:
                try:
                    frame.unwind(Raised(error))
                except Raised:
                    return bool(inner and inner.would_act())
                try:
                    while (step := steps[frame.next]).name in SEARCHING:
                        frame.next += 1
                        frame.step(step)
                    return True
                except Raised as raised:
                    error = raised.exception
        finally:
            frame.stack, frame.next, frame.handling = before

    def close(self):
        """Run what is left to clean up; nothing more is yielded."""
        if not self.done:
            try:
                self.throw(GeneratorExit())
                raise RuntimeError("generator ignored GeneratorExit")
            except (GeneratorExit, StopIteration):
                self.done = True

    @unwatched
    def _go_on(self):
        if self.done:
            raise StopIteration
        error = None
        try:
            how, value = self.frame.run()
        except Raised as raised:
            error = raised.exception
        if error is None and how == "yield":
            return value
        self.done = True
        if isinstance(error, StopIteration):
            error = stopped(error)
        raise error or StopIteration(value)


KINDS[Generator] = GeneratorType


def begin(frame, _):
    """Leave a frame that begins to be a generator's."""
    made, tracer = Generator(frame), frame.tracer
    tracer.generators.append((made, tracer.where()))
    return RETURN, made


OPCODES |= {
    "RETURN_GENERATOR": (0, None, begin),
    "YIELD_VALUE": (1, None, lambda frame, _, value: (YIELD, value)),
    "GET_YIELD_FROM_ITER": (1, None, lambda frame, _, value: (
        frame.stack.append(frame.tracer.iterate(value)))),
}


@opcode(1, None)
def SEND(frame, target, value):
    source = frame.stack[-1]
    frame.tracer.inside(source)
    send = (getattr(source, "send", None) if value is not None
            else source.__next__)
    try:
        got = frame.tracer.native(send, () if value is None else (value,))
    except Raised as raised:
        if not isinstance(raised.exception, StopIteration):
            raise
        if not SEND_KEEPS:
            frame.stack.pop()
        frame.stack.append(raised.exception.value)
        frame.jump(target)
    else:
        frame.stack.append(got)


@opcode(2, None)
def END_SEND(frame, _, source, value):
    frame.stack.append(value)


@opcode(1, None)
def CLEANUP_THROW(frame, _, error):
    if not isinstance(error, StopIteration):
        raise Raised(error)
    frame.stack[-2:] = (None, error.value)


@opcode(1, None)
def STOPITERATION_ERROR(frame, _, error):
    frame.stack.append(stopped(error) if isinstance(
        error, StopIteration) else error)


def rebuilt(rebuild: Rebuild, generator: Generator) -> str:
    """A generator that stands where the interpreted one does."""
    if generator.done:
        return "iter(())"
    inner = generator
    while inner := inner.inner():
        program = inner.frame.program
        if not all(program.instructions[program.at(row.target)].name in (
                "STOPITERATION_ERROR", "CLEANUP_THROW")
                for row in program.handlers):
            raise unsupported("result", "a generator in a `yield from`")
    frame = generator.frame
    place, values = placed(rebuild, frame, frame.current().end, frame.stack)
    wait = op("LOAD_CONST", len(place.code.co_consts)) + op(
        "YIELD_VALUE", 0) + op("RESUME", 1)  # it is stepped to there
    made = made_once(going_on, place, frame.function, wait, frame.handler())
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


MAKERS[Generator] = rebuilt
