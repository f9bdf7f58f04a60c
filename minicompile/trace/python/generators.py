"""Generators: a frame that waits, and goes on.

In: a frame, and what is sent to it. Out: a reason to leave the frame,
which keeps its stack and position; after the graph, a real generator that
waits at the same place. PyTorch has
torch/_dynamo/symbolic_convert.py:InliningGeneratorInstructionTranslator.
"""

from __future__ import annotations

import contextlib
from functools import partial
from operator import methodcaller
from types import GeneratorType

from ..bytecode import SEND_KEEPS
from ..frame import OPCODES, RETURN, YIELD, Frame, advance, opcode
from ..graph_breaks import going_on, made_once, placed
from ..reasons import Raised, unsupported
from ..reconstruct import MAKERS, Rebuild
from .callbacks import unwatched
from .exceptions import unwind

#: Handlers that CPython adds to a generator: they only pass it on.
ADDED = {"STOPITERATION_ERROR", "CLEANUP_THROW"}


def generating(frame: Frame):
    """A generator of the traced program, as one of Python's own.

    It runs the frame from one `yield` to the next.
    """
    sent = error = None
    while True:
        try:
            if error is None:
                frame.stack.append(sent)
            else:
                unwind(frame, Raised(error))
            how, value = unwatched(frame.run)()
        except Raised as raised:
            how, error = None, raised.exception
        if how is None:
            raise error
        if how is RETURN:
            return value
        try:
            sent, error = (yield value), None
        except BaseException as thrown:
            error = thrown
        if error is not None and not frame.tracer.frames:
            return  # the trace has ended, and nobody needs it
        if error is not None and inner(frame.tracer, frame):
            raise unsupported("builtin", "throwing into a `yield from`")


def inner(tracer, frame: Frame) -> Frame | None:
    """The frame of the generator that one waits for in a `yield from`."""
    after = frame.program.instructions[frame.next].name
    known = after == "JUMP" and tracer.generators.get(id(frame.stack[-1]))
    return known[1] if known else None


def acts(frame: Frame, at: int) -> bool:
    """Whether code of a frame's own runs if it is closed at a position."""
    steps, program = frame.program.instructions, frame.program
    while row := program.handler(steps[at - 1].offset):
        at = program.at(row[2]) + 1
        if steps[at - 1].name not in ADDED:
            return True
    return False


def would_act(tracer, frame: Frame) -> bool:
    """Whether a waiting frame, or one that it waits for, acts if closed."""
    below = inner(tracer, frame)
    return acts(frame, frame.next) or bool(
        below and would_act(tracer, below))


def may_act(frame: Frame) -> bool:
    """Whether closing a frame would do something at any of its `yield`s."""
    return any(step.name == "YIELD_VALUE" and acts(frame, at)
               for at, step in enumerate(frame.program.instructions, 1))


def begin(frame, _):
    """Leave a frame that begins to be a generator's."""
    made, tracer = generating(frame), frame.tracer
    tracer.generators[id(made)] = made, frame
    by_with = tracer.frames[-2].globals is vars(contextlib)
    tracer.checks.append(partial(
        left, made, frame, tracer.where(), by_with))
    return RETURN, made


def left(made: GeneratorType, frame: Frame, where, by_with: bool,
         rebuild: Rebuild):
    """Refuse to lose a generator that eager would close with effects.

    Callers keep what a graph break hands on until they return, so a break
    would lose it, too. A `with` statement ends its own.
    """
    tracer = rebuild.tracer
    if made.gi_frame and (
            would_act(tracer, frame) if id(made) not in rebuild.names
            else tracer.left and not by_with and may_act(frame)):
        raise unsupported("effect", "a generator left half-run").at(where)


OPCODES |= {
    "RETURN_GENERATOR": (0, None, begin),
    "STOPITERATION_ERROR": (1, None, lambda frame, _, error: (
        frame.stack.append(error))),  # as Python does for `generating`
    "END_SEND": (2, 1, lambda frame, _, source, value: value),
    "YIELD_VALUE": (1, None, lambda frame, _, value: (YIELD, value)),
    "GET_YIELD_FROM_ITER": (1, None, lambda frame, _, value: (
        frame.stack.append(frame.tracer.iterate(value)))),
}


@opcode(1, None)
def SEND(frame, target, value):
    ended = advance(frame, next if value is None else methodcaller(
        "send", value))
    if ended is not None:
        frame.stack[-1:] = frame.stack[-1:] * SEND_KEEPS + [ended.value]
        frame.jump(target)


@opcode(1, None)
def CLEANUP_THROW(frame, _, error):
    if not isinstance(error, StopIteration):
        raise Raised(error)
    frame.stack[-2:] = (None, error.value)


def rebuilt(rebuild: Rebuild, generator: GeneratorType) -> str:
    """A generator that stands where the interpreted one does."""
    _, frame = rebuild.tracer.generators[id(generator)]
    if not generator.gi_frame:
        return "iter(())"
    step = frame.current()
    begun = step.name != "RETURN_GENERATOR"
    at = step.start if begun else step.end
    place, values = placed(rebuild, frame, at, [*frame.stack, None])
    made = made_once(going_on, place, frame.function)
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    if begun:  # it yields once more, to nobody, and waits
        rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


MAKERS[GeneratorType] = rebuilt
