"""Classes that the traced program makes: their bodies, run as frames.

In: what `__build_class__` gets, a body, a name and bases. Out: a real
class, made in the trace. The body's names are the frame's `space`. What a
metaclass or an `__init_subclass__` would run is a graph break. PyTorch's
is torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import types

import torch

from ..frame import OPCODES, Frame, opcode
from ..names import load_cell, load_global
from ..reasons import Raised, unsupported
from ..rules import rule

#: Metaclasses that only keep books.
PLAIN_METACLASSES = (type, abc.ABCMeta, type(torch.autograd.Function))


@rule(builtins.__build_class__)
def _build_class(tracer, body, name, *bases, **more):
    frame = Frame(tracer, body, {})
    frame.run()
    names = frame.space
    hooks = [k for k in bases if tracer.python_method(
        k, "__init_subclass__") or type(k) not in PLAIN_METACLASSES]
    if more or hooks or any(tracer.python_method(value, "__set_name__")
                            for value in names.values()):
        raise unsupported("builtin", f"the class {name}, being made,")
    return tracer.own(tracer.native(types.new_class, (
        name, bases, {}, lambda space: space.update(names))))


@rule(dataclasses._process_class)
def _dataclass(tracer, kind, *args):
    if not tracer.is_made(kind):
        raise unsupported("effect", f"dataclass of {kind.__qualname__}")
    return tracer.native(dataclasses._process_class, (kind, *args))


# Opcodes

OPCODES |= {
    "LOAD_BUILD_CLASS": (0, 1, lambda frame, _: builtins.__build_class__),
    "LOAD_LOCALS": (0, None, lambda frame, _: frame.stack.append(
        frame.space)),
    "LOAD_FROM_DICT_OR_DEREF": (1, None, lambda frame, name, _: (
        LOAD_CLASSDEREF(frame, name))),
    "LOAD_FROM_DICT_OR_GLOBALS": (1, None, lambda frame, name, _: (
        LOAD_NAME(frame, name))),
    "STORE_NAME": (1, None, lambda frame, name, value: (
        frame.space.update({name: value}))),
    "SETUP_ANNOTATIONS": (0, None, lambda frame, _: frame.space.update(
        {"__annotations__": {}})),
}


@opcode(0, None)
def LOAD_NAME(frame, name):
    frame.stack.append(
        frame.space[name] if name in frame.space else
        load_global(frame.tracer, frame.globals, name))


@opcode(0, None)
def DELETE_NAME(frame, name):
    if name not in frame.space:
        raise Raised(NameError(f"name {name!r} is not defined"))
    del frame.space[name]


@opcode(0, None)
def LOAD_CLASSDEREF(frame, name):
    frame.stack.append(
        frame.space[name] if name in frame.space else
        load_cell(frame.tracer, frame.names[name], name))
