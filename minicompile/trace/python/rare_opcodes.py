"""Opcodes that few models need: text, imports, sets, deletions.

In: a frame, the instruction's argument, the values it takes off the
stack. Out: what it pushes. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

import importlib.util
import operator
import sys

from torch._subclasses.fake_tensor import unset_fake_temporarily

from ...core.source import Item
from .. import attributes, names
from ..frame import OPCODES, opcode
from ..constant_types import ABSENT, trusted
from ..opcodes import LOAD_FAST
from ..reasons import Raised

#: Rows of one expression; `f` is the frame.
OPCODES |= {
    "UNARY_POSITIVE": (1, 1, lambda f, _, x: f.tracer.unary(
        operator.pos, x)),
    "UNARY_INVERT": (1, 1, lambda f, _, x: f.tracer.unary(
        operator.invert, x)),
    "BUILD_STRING": (int, 1, lambda f, _, *values: "".join(values)),
    "BUILD_SET": (int, 1, lambda f, _, *values: f.tracer.native(
        set, (map(f.tracer.key, values),))),
    "SET_ADD": (1, 0, lambda f, depth, x: f.tracer.native(
        f.stack[-depth].add, (f.tracer.key(x),))),
    "SET_UPDATE": (1, 0, lambda f, depth, x: f.tracer.native(
        f.stack[-depth].update, (f.tracer.iterate(x),))),
    "MAP_ADD": (2, 0, lambda f, depth, key, value: f.tracer.set_item(
        f.stack[-depth], key, value)),
    "DICT_UPDATE": (1, 0, lambda f, depth, x: f.tracer.native(
        f.stack[-depth].update, (f.tracer.mapping(x),))),
    "STORE_SLICE": (4, 0, lambda f, _, value, owner, *ends: (
        f.tracer.set_item(owner, slice(*ends), value))),
    "DELETE_SUBSCR": (2, 0, lambda f, _, owner, key: f.tracer.set_item(
        owner, key)),
    "DELETE_ATTR": (1, 0, lambda f, name, owner: attributes.store(
        f.tracer, owner, name)),
    "DELETE_DEREF": (0, 0, lambda f, name: names.store_cell(
        f.tracer, f.names[name], ABSENT)),
    "STORE_GLOBAL": (1, 0, lambda f, name, value: f.tracer.outside.write(
        f.tracer.outside.globals(f.globals), name, value)),
    "IMPORT_FROM": (0, 1, lambda f, name: attributes.load(
        f.tracer, f.stack[-1], name)),
    "FORMAT_SIMPLE": (1, 1, lambda f, _, x: f.tracer.call(
        format, (x, ""))),
    "FORMAT_WITH_SPEC": (2, 1, lambda f, _, *x: f.tracer.call(format, x)),
    "LOAD_SUPER_ATTR": (3, None, lambda f, found, maker, *of: f.push(
        attributes.load(f.tracer, f.tracer.call(maker, of), found[0]),
        found[1])),
    "CALL_INTRINSIC_2": (2, 1, None),
    "CONVERT_VALUE": (1, 1, lambda f, how, x: f.tracer.call(how, (x,))),
}


@opcode(lambda how: 1 + how[1])
def FORMAT_VALUE(frame, how, value, spec=""):
    if how[0]:
        value = frame.tracer.call(how[0], (value,))
    return frame.tracer.call(format, (value, spec))


@opcode(0, None)
def DELETE_FAST(frame, name):
    LOAD_FAST(frame, name)
    del frame.stack[-1], frame.names[name]


@opcode(0, 0)
def DELETE_GLOBAL(frame, name):
    names.load_global(frame.tracer, frame.globals, name)
    OPCODES["STORE_GLOBAL"][2](frame, name, ABSENT)


@opcode(2)
def IMPORT_NAME(frame, name, level, below):
    with unset_fake_temporarily():
        found = frame.tracer.native(importlib.__import__, (
            name, frame.globals, None, below, level))
    key = importlib.util.resolve_name(
        "." * level + name, frame.globals.get("__package__"))
    key, outside = key if below else key.split(".")[0], frame.tracer.outside
    if not trusted(key):
        modules = outside.constant(sys.modules, "modules")
        outside.guard(Item(modules, key), "is", found)
    return found


@opcode(1, lambda counts: (counts & 255) + (counts >> 8) + 1)
def UNPACK_EX(frame, counts, given):
    values = frame.tracer.unpacked(given)
    before, after = counts & 255, counts >> 8
    if len(values) < before + after:
        raise Raised(ValueError(
            "not enough values to unpack (expected at least "
            f"{before + after}, got {len(values)})"))
    rest = values[before:len(values) - after]
    last = values[len(values) - after:]
    frame.stack += [*reversed(last), rest, *reversed(values[:before])]
