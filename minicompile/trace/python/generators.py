"""Generators: a frame that waits, and goes on.

In: a frame, and what is sent to it. Out: a reason to leave the frame,
which keeps its stack and position; after the graph, a real generator that
waits at the same place. PyTorch has
torch/_dynamo/symbolic_convert.py:InliningGeneratorInstructionTranslator.
"""

from __future__ import annotations

from types import CodeType, GeneratorType

from ...core.errors import Unsupported
from ..attributes import KINDS
from ..bytecode import SEND_KEEPS
from ..frame import OPCODES, RETURN, YIELD, opcode
from ..interpreter_objects import StandIn, unwatched
from ..reasons import Raised
from ..reconstruct import MAKERS, Rebuild
from ..resume import Place, after, made_once, op, placed

#: Instructions that only find out who handles an exception.
SEARCHING = {"PUSH_EXC_INFO", "LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE",
             "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE", "POP_EXCEPT", "COPY",
             "RERAISE", "STOPITERATION_ERROR"}


def delegated(frame, value, target: int) -> None:
    """Go on behind a `yield from`, which gives `value`."""
    if not SEND_KEEPS:
        frame.stack.pop()
    frame.stack.append(value)
    frame.jump(target)


def stopped(error: StopIteration) -> RuntimeError:
    """What a generator raises instead of StopIteration."""
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
        frame = self.frame
        after = frame.program.instructions[frame.next]
        if not self.done and after.name == "JUMP" and isinstance(
                inner := frame.stack[-1], Generator):
            try:
                if not isinstance(error, GeneratorExit):
                    return inner.throw(error)
                inner.close()
            except StopIteration as end:
                send = frame.program.instructions[frame.next - 2]
                delegated(frame, end.value, send.argument)
                return self._go_on()
            except Unsupported:
                raise
            except Exception as failure:
                error = failure
        try:
            frame.unwind(Raised(error))
        except Raised:
            self.done = True
        if self.done:
            raise error
        return self._go_on()

    def would_act(self) -> bool:
        """Whether its code does something when it is closed now.

        Looks for a handler as Python would, which ends the generator.
        """
        frame, error, self.done = self.frame, GeneratorExit(), True
        while True:
            try:
                frame.unwind(Raised(error))
            except Raised:
                return False
            try:
                while (step := frame.program.instructions[
                        frame.next]).name in SEARCHING:
                    frame.next += 1
                    frame.step(step)
                return True
            except Raised as raised:
                error = raised.exception

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
        delegated(frame, raised.exception.value, target)
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
    frame = generator.frame
    place, values = placed(rebuild, frame, frame.current().end, frame.stack)
    made = made_once(waits, place, frame.function, frame.handler())
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


def waits(place: Place, handler) -> CodeType:
    """A generator that waits at a yield, once it was stepped to there."""
    body = op("LOAD_CONST", len(place.code.co_consts)) + op(
        "YIELD_VALUE", 0) + op("RESUME", 1)
    return after(place, body, handler)


MAKERS[Generator] = rebuilt
