"""The opcodes of a match statement.

In: a frame and the instruction's argument. Out: a changed stack: whether
the subject is a sequence, a mapping or of a class, and the parts that a
pattern asks for. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import attributes
from ..frame import OPCODES, opcodes_in
from ..reasons import Raised



def GET_LEN(frame, _):
    frame.stack.append(frame.tracer.call(len, (frame.stack[-1],)))


def MATCH_SEQUENCE(frame, _):
    value = frame.stack[-1]
    frame.stack.append(isinstance(value, Sequence) and not isinstance(
        value, (str, bytes, bytearray)))


def MATCH_MAPPING(frame, _):
    frame.stack.append(isinstance(frame.stack[-1], Mapping))


def MATCH_KEYS(frame, _):
    mapping, keys = frame.stack[-2:]
    found = all(frame.tracer.contains(mapping, key) for key in keys)
    frame.stack.append(tuple(
        frame.tracer.item(mapping, key) for key in keys)
        if found else None)


def MATCH_CLASS(frame, count):
    value, kind, names = frame.pop(3)
    if not frame.tracer.call(isinstance, (value, kind)):
        frame.stack.append(None)
        return
    places = getattr(kind, "__match_args__", None)
    own = places is None and issubclass(kind, (
        bool, bytearray, bytes, dict, float, frozenset, int, list, set,
        str, tuple))
    places = places or ()
    allowed = 1 if own else len(places)
    if count > allowed:
        raise Raised(TypeError(
            f"{kind.__name__}() accepts {allowed} positional sub-pattern"
            f"{'s' * (allowed != 1)} ({count} given)"))
    found = [value] * count if own else []
    try:
        found += [attributes.load(frame.tracer, value, name)
                  for name in (*places[:count], *names)]
    except Raised as raised:
        if not isinstance(raised.exception, AttributeError):
            raise
        found = None
    frame.stack.append(None if found is None else tuple(found))


OPCODES |= opcodes_in(globals())
