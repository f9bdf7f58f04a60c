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

from ..frame import OPCODES, Frame, opcodes_in
from ..names import load_global
from ..opcodes import LOAD_DEREF
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


def LOAD_NAME(frame, name):
    frame.stack.append(
        frame.space[name] if name in frame.space else
        load_global(frame.tracer, frame.globals, name))


def STORE_NAME(frame, name):
    frame.space[name] = frame.stack.pop()


def DELETE_NAME(frame, name):
    if name not in frame.space:
        raise Raised(NameError(f"name {name!r} is not defined"))
    del frame.space[name]


def LOAD_CLASSDEREF(frame, name):
    if name in frame.space:
        frame.stack.append(frame.space[name])
    else:
        LOAD_DEREF(frame, name)


def LOAD_LOCALS(frame, _):
    frame.stack.append(frame.space)


def LOAD_FROM_DICT_OR_DEREF(frame, name):
    frame.stack.pop()
    LOAD_CLASSDEREF(frame, name)


def LOAD_FROM_DICT_OR_GLOBALS(frame, name):
    frame.stack.pop()
    LOAD_NAME(frame, name)


def SETUP_ANNOTATIONS(frame, _):
    frame.space["__annotations__"] = {}


OPCODES |= opcodes_in(globals())
