"""Opcodes that handle data: names, attributes, items, operators, text.

In: a frame and the instruction's argument. Out: a changed stack. Each
function is named as the opcode that `dis` shows; what an operation means
is the tracer's business. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

import builtins
import importlib.util
import operator
import sys
import types
from itertools import islice

from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..core.source import Item
from . import attributes, names
from .kinds import ABSENT, trusted
from .reasons import Raised
from .stand_ins import NULL

# The stack


def POP_TOP(frame, _):
    frame.stack.pop()


def PUSH_NULL(frame, _):
    frame.stack.append(NULL)


def COPY(frame, depth):
    frame.stack.append(frame.stack[-depth])


def SWAP(frame, depth):
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


# Names


def LOAD_CONST(frame, value):
    frame.stack.append(value)


def LOAD_FAST(frame, name):
    if name not in frame.names:
        raise Raised(UnboundLocalError(
            f"cannot access local variable {name!r} where it is not "
            "associated with a value"))
    frame.stack.append(frame.names[name])


def LOAD_FAST_AND_CLEAR(frame, name):
    frame.stack.append(frame.names.pop(name, NULL))


def STORE_FAST(frame, name):
    value = frame.stack.pop()
    if value is NULL:
        frame.names.pop(name, None)
    else:
        frame.names[name] = value


def DELETE_FAST(frame, name):
    LOAD_FAST(frame, name)
    del frame.stack[-1], frame.names[name]


def LOAD_GLOBAL(frame, argument):
    name, called = argument
    frame.push(names.load_global(frame.tracer, frame.globals, name), called)


def STORE_GLOBAL(frame, name):
    outside = frame.tracer.outside
    outside.write(outside.globals(frame.globals), name,
                  frame.stack.pop())


def DELETE_GLOBAL(frame, name):
    outside = frame.tracer.outside
    names.load_global(frame.tracer, frame.globals, name)
    outside.write(outside.globals(frame.globals), name, ABSENT)


def MAKE_CELL(frame, name):
    cell = frame.tracer.own(types.CellType())
    if name in frame.names:
        cell.cell_contents = frame.names[name]
    frame.names[name] = cell


def COPY_FREE_VARS(frame, _):
    cells = names.closure(frame.tracer, frame.function)
    frame.names.update(zip(frame.code.co_freevars, cells))


def LOAD_DEREF(frame, name):
    frame.stack.append(names.load_cell(
        frame.tracer, frame.names[name], name))


def STORE_DEREF(frame, name):
    names.store_cell(frame.tracer, frame.names[name], frame.stack.pop())


def DELETE_DEREF(frame, name):
    names.store_cell(frame.tracer, frame.names[name], ABSENT)


def IMPORT_NAME(frame, name):
    below, level = frame.pop(2)[::-1]
    with unset_fake_temporarily():
        found = frame.tracer.native(importlib.__import__, (
            name, frame.globals, None, below, level))
    key = importlib.util.resolve_name(
        "." * level + name, frame.globals.get("__package__"))
    key, outside = key if below else key.split(".")[0], frame.tracer.outside
    if not trusted(key):
        modules = outside.constant(sys.modules, "modules")
        outside.guard(Item(modules, key), "is", found)
    frame.stack.append(found)


def IMPORT_FROM(frame, name):
    frame.stack.append(attributes.load(
        frame.tracer, frame.stack[-1], name))


# Attributes and items


def LOAD_ATTR(frame, argument):
    name, called = argument
    frame.push(attributes.load(frame.tracer, frame.stack.pop(), name),
               called)


def LOAD_SUPER_ATTR(frame, argument):
    name, called = argument
    maker, kind, owner = frame.pop(3)
    frame.push(attributes.load(frame.tracer, frame.tracer.call(
        maker, (kind, owner)), name), called)


def STORE_ATTR(frame, name):
    owner = frame.stack.pop()
    attributes.store(frame.tracer, owner, name, frame.stack.pop())


def DELETE_ATTR(frame, name):
    attributes.store(frame.tracer, frame.stack.pop(), name)


def STORE_SUBSCR(frame, _):
    value, container, key = frame.pop(3)
    frame.tracer.set_item(container, key, value)


def STORE_SLICE(frame, _):
    value, container, start, end = frame.pop(4)
    frame.tracer.set_item(container, slice(start, end), value)


def DELETE_SUBSCR(frame, _):
    frame.tracer.set_item(*frame.pop(2))


# Operators


def BINARY_OP(frame, op):
    left, right = frame.pop(2)
    frame.stack.append(frame.tracer.binary(op, left, right))


COMPARE_OP = BINARY_OP


def IS_OP(frame, invert):
    left, right = frame.pop(2)
    frame.stack.append(frame.tracer.same(left, right) is not bool(invert))


def CONTAINS_OP(frame, invert):
    key, container = frame.pop(2)
    found = frame.tracer.contains(container, key)
    frame.stack.append(found is not bool(invert))


# Building


def BUILD_MAP(frame, count):
    values = frame.pop(2 * count)
    keys = map(frame.tracer.key, values[::2])
    frame.stack.append(frame.tracer.native(
        dict, (zip(keys, values[1::2]),)))


def BUILD_CONST_KEY_MAP(frame, count):
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, frame.pop(count))))


def LIST_APPEND(frame, depth):
    value = frame.stack.pop()
    frame.stack[-depth].append(value)


def SET_ADD(frame, depth):
    value = frame.tracer.key(frame.stack.pop())
    frame.tracer.native(frame.stack[-depth].add, (value,))


def MAP_ADD(frame, depth):
    key, value = frame.pop(2)
    frame.tracer.set_item(frame.stack[-depth], key, value)


def LIST_EXTEND(frame, depth):
    values = frame.tracer.iterate(frame.stack.pop())
    frame.tracer.native(frame.stack[-depth].extend, (values,))


def SET_UPDATE(frame, depth):
    values = frame.tracer.iterate(frame.stack.pop())
    frame.tracer.native(frame.stack[-depth].update, (values,))


def DICT_UPDATE(frame, depth):
    values = frame.tracer.mapping(frame.stack.pop())
    frame.tracer.native(frame.stack[-depth].update, (values,))


def DICT_MERGE(frame, depth):
    values = frame.tracer.mapping(frame.stack.pop())
    target = frame.stack[-depth]
    both = [key for key in values if key in target]
    if both:
        raise Raised(TypeError(
            f"got multiple values for keyword argument {both[0]!r}"))
    target.update(values)


def UNPACK_SEQUENCE(frame, count):
    given = frame.tracer.iterate(frame.stack.pop())
    values = frame.tracer.native(list, (islice(given, count + 1),))
    if len(values) > count:
        raise Raised(ValueError(
            f"too many values to unpack (expected {count})"))
    if len(values) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected "
                                f"{count}, got {len(values)})"))
    frame.stack += reversed(values)


def UNPACK_EX(frame, counts):
    values = frame.tracer.unpacked(frame.stack.pop())
    before, after = counts & 255, counts >> 8
    if len(values) < before + after:
        raise Raised(ValueError(
            "not enough values to unpack (expected at least "
            f"{before + after}, got {len(values)})"))
    rest = values[before:len(values) - after]
    last = values[len(values) - after:]
    frame.stack += [*reversed(last), rest, *reversed(values[:before])]


# Text


def FORMAT_VALUE(frame, how):
    convert, has_spec = how
    spec = frame.stack.pop() if has_spec else ""
    if convert:
        CONVERT_VALUE(frame, convert)
    frame.stack.append(frame.tracer.call(format, (frame.stack.pop(),
                                                spec)))


def CONVERT_VALUE(frame, convert):
    frame.stack.append(frame.tracer.call(convert, (frame.stack.pop(),)))


#: Opcodes that take values off the stack, as many as a number or their
#: argument says, and push what a function makes of them.
VALUES = {
    "BINARY_SUBSCR": (2, lambda tracer, *both: tracer.item(*both)),
    "BINARY_SLICE": (3, lambda tracer, owner, *ends: tracer.item(
        owner, slice(*ends))),
    "UNARY_NEGATIVE": (1, lambda tracer, x: tracer.unary(operator.neg, x)),
    "UNARY_POSITIVE": (1, lambda tracer, x: tracer.unary(operator.pos, x)),
    "UNARY_INVERT": (1, lambda tracer, x: tracer.unary(
        operator.invert, x)),
    "UNARY_NOT": (1, lambda tracer, x: not tracer.truth(x)),
    "TO_BOOL": (1, lambda tracer, x: tracer.truth(x)),
    "GET_ITER": (1, lambda tracer, x: tracer.iterate(x)),
    "LIST_TO_TUPLE": (1, lambda tracer, values: tuple(values)),
    "FORMAT_SIMPLE": (1, lambda tracer, x: tracer.call(format, (x, ""))),
    "FORMAT_WITH_SPEC": (2, lambda tracer, *x: tracer.call(format, x)),
    "LOAD_ASSERTION_ERROR": (0, lambda tracer: AssertionError),
    "LOAD_BUILD_CLASS": (0, lambda tracer: builtins.__build_class__),
    "BUILD_TUPLE": (None, lambda tracer, *values: values),
    "BUILD_LIST": (None, lambda tracer, *values: [*values]),
    "BUILD_SLICE": (None, lambda tracer, *values: slice(*values)),
    "BUILD_STRING": (None, lambda tracer, *values: "".join(values)),
    "BUILD_SET": (None, lambda tracer, *values: tracer.native(
        set, (map(tracer.key, values),))),
}


def opcode(count: int | None, make):
    """An opcode from a row of VALUES."""
    def push(frame, argument):
        values = frame.pop(argument if count is None else count)
        frame.stack.append(make(frame.tracer, *values))
    return push
