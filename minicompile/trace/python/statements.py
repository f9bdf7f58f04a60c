"""The statements that few models need.

In: a frame, the instruction's argument, the values it takes off the
stack. Out: the values that CPython would push.
Python makes a class, too: the `class` statement is a graph break.
PyTorch has torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase.
"""

import builtins
import importlib.util
import operator
import sys

from ...core.guard import ABSENT, Item, trusted
from .. import attributes
from ..frame import (LOAD_FAST, OPCODES, load_cell, load_global, opcode,
                     store_cell)
from ..reasons import WAYS, Raised, unsupported
from .callbacks import really
from .objects import same

#: Rows of one expression; `f` is the frame.
OPCODES |= {
    "IS_OP": (2, 1, lambda f, invert, a, b: (
        same(f.tracer, a, b) is not bool(invert))),
    "CONTAINS_OP": (2, 1, lambda f, invert, key, owner: (
        f.tracer.call(operator.contains, (owner, key)) is not bool(
            invert))),
    "UNARY_NOT": (1, 1, lambda f, _, x: not f.tracer.truth(x)),
    "BUILD_SLICE": (int, 1, lambda f, _, *values: slice(*values)),
    "BUILD_CONST_KEY_MAP": (lambda count: count + 1, 1, (
        lambda f, _, *values: dict(zip(values[-1], values)))),
    "STORE_SUBSCR": (3, 0, lambda f, _, value, owner, key: (
        f.tracer.ask(operator.setitem, owner, key, value))),
    "BINARY_SLICE": (3, 1, lambda f, _, owner, *ends: f.tracer.ask(
        operator.getitem, owner, slice(*ends))),
    "BUILD_SET": (int, 1, lambda f, _, *values: f.tracer.native(
        set, (map(f.tracer.key, values),))),
    "SET_ADD": (1, 0, lambda f, depth, x: f.tracer.call(
        set.add, (f.stack[-depth], x))),
    "SET_UPDATE": (1, 0, lambda f, depth, x: f.tracer.call(
        set.update, (f.stack[-depth], x))),
    "MAP_ADD": (2, 0, lambda f, depth, key, value: f.tracer.ask(
        operator.setitem, f.stack[-depth], key, value)),
    "DICT_UPDATE": (1, 0, lambda f, depth, x: f.tracer.call(
        dict.update, (f.stack[-depth], f.tracer.mapping(x)))),
    "STORE_SLICE": (4, 0, lambda f, _, value, owner, *ends: (
        f.tracer.ask(operator.setitem, owner, slice(*ends), value))),
    "DELETE_DEREF": (0, 0, lambda f, name: (
        load_cell(f.tracer, f.names[name], name),  # or it raises
        store_cell(f.tracer, f.names[name], ABSENT))),
    "STORE_GLOBAL": (1, 0, lambda f, name, value: WAYS["write"](
        f.tracer.outside, f.tracer.outside.globals(f.globals), name,
        value)),
    "LOAD_SUPER_ATTR": (3, None, lambda f, found, maker, *of: f.push(
        attributes.load_attr(f.tracer, f.tracer.call(maker, of), found[0]),
        found[1])),
    "CALL_INTRINSIC_2": (2, 1, None),
    "LOAD_BUILD_CLASS": (0, 1, lambda f, _: builtins.__build_class__),
    **{name: (takes, pushes, lambda f, _, *values, _call=call: (
        f.tracer.call(_call, values))) for name, takes, pushes, call in (
            ("UNARY_NEGATIVE", 1, 1, operator.neg),
            ("UNARY_POSITIVE", 1, 1, operator.pos),
            ("UNARY_INVERT", 1, 1, operator.invert),
            ("DELETE_SUBSCR", 2, 0, operator.delitem))}}


@opcode(0, None)
def DELETE_FAST(frame, name):
    LOAD_FAST(frame, name)
    del frame.stack[-1], frame.names[name]


@opcode(0, 0)
def DELETE_GLOBAL(frame, name):
    load_global(frame.tracer, frame.globals, name)
    OPCODES["STORE_GLOBAL"][2](frame, name, ABSENT)


@opcode(2)
def IMPORT_NAME(frame, name, level, below):
    found = really(frame.tracer, importlib.__import__, (
        name, frame.globals, None, below, level))
    key = importlib.util.resolve_name(
        "." * level + name, frame.globals.get("__package__"))
    key, outside = key if below else key.split(".")[0], frame.tracer.outside
    return found if trusted(key) else outside.admit(found, Item(
        outside.constant(sys.modules, "modules"), key))


@opcode(0)
def IMPORT_FROM(frame, name):
    found = frame.tracer.call(getattr, (frame.stack[-1], name, ABSENT))
    if found is ABSENT:  # a module that is being imported, or an error
        raise unsupported("attribute", f"{name}, imported,")
    return found


@opcode(1, lambda counts: (counts & 255) + (counts >> 8) + 1)
def UNPACK_EX(frame, counts, given):
    values = frame.tracer.unpacked(given)
    before, after = counts & 255, counts >> 8
    if len(values) < before + after:
        raise Raised(ValueError(
            "not enough values to unpack (expected at least "
            f"{before + after}, got {len(values)})"))
    end = len(values) - after
    frame.stack += [*values[:before], values[before:end],
                    *values[end:]][::-1]

# Patterns

OPCODES |= {
    "GET_LEN": (0, 1, lambda frame, _: frame.tracer.call(
        len, (frame.stack[-1],))),
    "MATCH_MAPPING": (0, 1, lambda frame, _: bool(
        type(frame.stack[-1]).__flags__ & 1 << 6)),
    "MATCH_SEQUENCE": (0, 1, lambda frame, _: bool(
        type(frame.stack[-1]).__flags__ & 1 << 5)),
}


#: The flag of classes such as int, of which `case int(n)` takes all.
MATCH_SELF = 1 << 22


@opcode(0)
def MATCH_KEYS(frame, _):
    mapping, keys = frame.stack[-2:]
    call = frame.tracer.call
    if len({*keys}) < len(keys):
        raise unsupported("opcode", "a wrong pattern")
    if all(call(operator.contains, (mapping, key)) for key in keys):
        return tuple(call(operator.getitem, (mapping, key))
                     for key in keys)


@opcode(3)
def MATCH_CLASS(frame, count, value, kind, names):
    call = frame.tracer.call
    if not call(isinstance, (value, kind)):
        return None
    given = call(getattr, (kind, "__match_args__", (
        ABSENT,) * (kind.__flags__ & MATCH_SELF > 0))) if count else ()
    if type(given) is not tuple or (
            len({*given[:count], *names}) < count + len(names)):
        raise unsupported("opcode", "a wrong pattern")
    names = (*given[:count], *names)  # ABSENT is the whole value
    found = tuple(value if name is ABSENT else call(
        getattr, (value, name, ABSENT)) for name in names)
    return None if any(each is ABSENT for each in found) else found
