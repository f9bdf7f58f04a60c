"""Writes to attributes: `owner.name = value`, as Python does it.

In: an object, a name, a value or none. Out: nothing; a `__setattr__` or a
descriptor written in Python is followed. An object that the trace made is
written to as it is; for one from outside, the write waits for the end of
the call. PyTorch's are in torch/_dynamo/side_effects.py.
"""

from __future__ import annotations

import types

import torch

from .. import attributes
from ..attributes import existed, lookup, method, no_attribute
from ..constant_types import ABSENT
from ..frame import OPCODES
from ..reasons import unsupported
from ..rules import rule
from ..symbolic_shapes import settled

#: Classes whose objects a program may change only if it made them.
FIXED = torch.Tensor, types.ModuleType, type, types.FunctionType


def store_attr(tracer, owner, name: str, value=ABSENT) -> None:
    """`owner.name = value`, or `del owner.name`; outside, it waits."""
    given, owner = () if value is ABSENT else (value,), settled(owner)
    hook = method(tracer, type(owner),
                  "__setattr__" if given else "__delattr__")
    if type(hook) is types.FunctionType:
        tracer.call(hook, (owner, name, *given))
    else:
        store_plain(tracer, owner, name, value)


def store_plain(tracer, owner, name: str, value=ABSENT) -> None:
    """The same as `object.__setattr__` or `object.__delattr__` does it."""
    outside, given = tracer.outside, () if value is ABSENT else (value,)
    if isinstance(owner, torch.Tensor) and name == "grad" and value is None:
        if outside.source(owner) is not None:
            outside.write(outside.space("attributes", owner), name, value)
        return
    if isinstance(owner, FIXED) and not tracer.is_made(owner):
        tracer.recorder.sizes.history.counters.add(name)
        raise unsupported("effect",
                          f"setting {name} of a {type(owner).__name__}")
    found, _ = lookup(tracer, type(owner), name)
    hook, start = method(tracer, type(found), "__set__" if given
                         else "__delete__"), (found, owner)
    is_slot = hook is not ABSENT
    if isinstance(found, property):
        hook, start = found.fset if given else found.fdel, (owner,)
    if type(hook) is types.FunctionType:
        tracer.call(hook, (*start, *given))
    elif existed(tracer, owner) and not isinstance(found, property) and (
            found is not ABSENT or type(owner).__dictoffset__):
        if not given and is_slot:
            raise unsupported("effect", f"deleting {name}")
        if not given and attributes.own(tracer, owner, name) is ABSENT:
            raise no_attribute(type(owner), name)
        outside.write(outside.space("attributes", owner), name, value)
    elif not given:
        tracer.native(delattr, (owner, name))
    else:
        tracer.native(setattr if isinstance(owner, FIXED)
                      else object.__setattr__, (owner, name, value))


rule(setattr)(lambda tracer, owner, name, value: store_attr(
    tracer, owner, name, value))
rule(delattr)(lambda tracer, owner, name: store_attr(tracer, owner, name))
rule(object.__setattr__)(lambda tracer, owner, name, value: store_plain(
    tracer, owner, name, value))
rule(object.__delattr__)(lambda tracer, owner, name: store_plain(
    tracer, owner, name))

OPCODES |= {
    "STORE_ATTR": (2, 0, lambda f, name, value, owner: store_attr(
        f.tracer, owner, name, value)),
    "DELETE_ATTR": (1, 0, lambda f, name, owner: store_attr(
        f.tracer, owner, name))}
