"""The opcodes of a match statement.

In: a frame and the instruction's argument. Out: a changed stack: whether
the subject is a sequence, a mapping or of a class, and the parts that a
pattern asks for. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import attributes
from ..frame import OPCODES, opcode
from ..reasons import Raised

OPCODES |= {
    "GET_LEN": (0, 1, lambda frame, _: frame.tracer.call(
        len, (frame.stack[-1],))),
    "MATCH_MAPPING": (0, 1, lambda frame, _: isinstance(
        frame.stack[-1], Mapping)),
    "MATCH_SEQUENCE": (0, 1, lambda frame, _: isinstance(
        frame.stack[-1], Sequence) and not isinstance(
        frame.stack[-1], (str, bytes, bytearray))),
}


@opcode(0)
def MATCH_KEYS(frame, _):
    mapping, keys = frame.stack[-2:]
    if all(frame.tracer.contains(mapping, key) for key in keys):
        return tuple(frame.tracer.item(mapping, key) for key in keys)


@opcode(3)
def MATCH_CLASS(frame, count, value, kind, names):
    if not frame.tracer.call(isinstance, (value, kind)):
        return None
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
        return (*found, *(attributes.load(frame.tracer, value, name)
                          for name in (*places[:count], *names)))
    except Raised as raised:
        if not isinstance(raised.exception, AttributeError):
            raise
