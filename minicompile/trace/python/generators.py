"""Generators: a frame that waits, and goes on.

In: a frame, and what is sent to it. Out: a reason to leave the frame,
which keeps its stack and position; after the graph, a real generator that
waits at the same place. PyTorch has
torch/_dynamo/symbolic_convert.py:InliningGeneratorInstructionTranslator.
"""

from __future__ import annotations

from types import CodeType

from ..bytecode import live
from ..frame import OPCODES, RETURN, YIELD, opcode
from ..reasons import Raised
from ..reconstruct import MAKERS, Rebuild
from ..resume import Place, after, made_once, op, placed
from ..stand_ins import Generator, stopped

OPCODES |= {
    "RETURN_GENERATOR": (0, None, lambda frame, _: (
        RETURN, frame.tracer.generator(frame))),
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
        frame.delegated(raised.exception.value, target)
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
    offset = frame.program.bounds(frame.current().offset)[1]
    place, values = placed(rebuild, frame, offset, frame.stack,
                           live(frame.code)[frame.next])
    made = made_once(waits, place, frame.function)
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


def waits(place: Place) -> CodeType:
    """A generator that waits at a yield, once it was stepped to there."""
    body = op("LOAD_CONST", len(place.code.co_consts)) + op(
        "YIELD_VALUE", 0) + op("RESUME", 1)
    return after(place, body, place.offset - 2)


MAKERS[Generator] = rebuilt
