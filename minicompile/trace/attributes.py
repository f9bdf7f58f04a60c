"""Attribute access as Python does it: the type's MRO, then the instance.

In: an object and a name. Out: the value, with properties and descriptors
written in Python run by the interpreter. Every search goes through
`lookup` and `own`, which guard what they find and also where they find
nothing. Tensors give constants (`shape`), recorded values (`T`) or bound
methods. PyTorch's are the `var_getattr` methods in
torch/_dynamo/variables/.
"""

from __future__ import annotations

import types

import torch
from torch import nn

from ..core.sizes import SYMBOLIC
from ..core.guard import ABSENT, Attribute, Item, Source, trusted
from .reasons import WAYS, Raised, unsupported
from .recorder import settled

#: Attributes of tensors that tell what a trace does not know.
TENSOR_SECRETS = {"_version", "_cdata", "_base", "_backward_hooks",
                  "output_nr", "name", "grad_fn", "is_leaf", "__dict__",
                  "retains_grad", "_post_accumulate_grad_hooks"}

#: Methods of a class, and descriptors for what C code stores.
METHOD_TYPES = (types.FunctionType, types.MethodDescriptorType,
                types.WrapperDescriptorType,
                types.ClassMethodDescriptorType, types.BuiltinFunctionType)
SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)

#: Where nn.Module keeps what `__getattr__` finds.
MODULE_PARTS = ("_parameters", "_buffers", "_modules")

#: The flag of classes made in C, which errors name with their module.
IMMUTABLE = 1 << 8

#: The class that a program sees, for objects that are of another.
KINDS = {torch.SymInt: int, torch.SymFloat: float}


class StandIn:
    """An object that the interpreter must not look into."""


def type_of(value) -> type:
    """The class of a value, or of what it stands for."""
    kind = type(value)  # an object may run Python if asked for __class__
    if issubclass(kind, torch.Tensor):
        return nn.Parameter if isinstance(
            value, nn.Parameter) else torch.Tensor
    return KINDS.get(kind, kind)


def load_attr(tracer, owner, name: str):
    """`owner.name`; raises Raised(AttributeError) as Python would."""
    owner = settled(owner) if type(owner) in SYMBOLIC else owner
    kind = type(owner)
    if issubclass(kind, StandIn):
        return tracer.native(getattr, (owner, name))
    if kind is super:
        return WAYS["super"](tracer, owner, name)
    if kind is types.MethodType and name not in ("__self__", "__func__"):
        return load_attr(tracer, owner.__func__, name)
    custom, _ = lookup(tracer, kind, "__getattribute__")
    if type(custom) is types.FunctionType:
        return tracer.call(custom, (owner, name))
    return generic(tracer, owner, name)


def lookup(tracer, kind: type, name: str, after: type | None = None):
    """(value, place) of a name in a class's MRO, or (ABSENT, None).

    Guarded: no class before the one that has it does. The place is None
    if it never changes. `after` begins behind that class, as super() does.
    """
    key, order = (id(kind), name, id(after)), kind.__mro__
    if key in tracer.found:
        return tracer.found[key]
    rely_on(tracer, kind)
    found, place = ABSENT, None
    for each in order[0 if after is None else order.index(after) + 1:]:
        found = each.__dict__.get(name, ABSENT)
        names = kept_in(tracer, each, found)
        if found is not ABSENT:
            place = names and Item(names, name)
            break
        if names is not None:
            tracer.outside.lacks(names, name)
    if not tracer.is_made(kind):
        tracer.found[key] = found, place
    return found, place


def rely_on(tracer, kind: type) -> None:
    """Guard that a user's class keeps its bases."""
    if (names := kept_in(tracer, kind)) is not None:
        tracer.outside.guard(Attribute(names.base, "__mro__"), "keys",
                             kind.__mro__)


def kept_in(tracer, kind: type, found=None) -> Source | None:
    """Where a class keeps an attribute; None if it never changes.

    A library's classes never change, but the elements of a list can.
    """
    if tracer.is_made(kind) or trusted(kind.__module__) and not isinstance(
            found, (list, dict, set)):
        return None
    return Attribute(tracer.outside.constant(kind, kind.__name__),
                     "__dict__")


def method(tracer, kind: type, name: str):
    """A class's method for an operation such as `__call__`, guarded."""
    found, place = lookup(tracer, kind, name)
    return found if place is None else tracer.outside.admit(found, place)


def bound(tracer, owner, name: str):
    """The same, bound to an object as its class's `__get__` says."""
    kind = type(owner)
    return as_shown(tracer, *lookup(tracer, kind, name), owner, kind)


def no_attribute(kind: type, name: str) -> Raised:
    text = repr(kind)[8:-2] if kind.__flags__ & IMMUTABLE else kind.__name__
    return Raised(AttributeError(
        f"{text!r} object has no attribute {name!r}", name=name))


def generic(tracer, owner, name: str):
    """Data descriptor, own attribute, class attribute, `__getattr__`."""
    kind = type_of(owner)
    if name == "__class__":
        return kind
    found, place = lookup(tracer, kind, name)
    if issubclass(kind, torch.Tensor):
        value = _of_tensor(tracer, owner, name, found)
        if value is not ABSENT:
            return value
    if not hasattr(type(found), "__set__"):
        value = own(tracer, owner, name)
        if value is not ABSENT:
            if place is not None:
                tracer.outside.guard(place, "type", type(found))
            return value
    if found is ABSENT:
        return _fallback(tracer, owner, kind, name)
    return as_shown(tracer, found, place, owner, kind)


def existed(tracer, owner) -> bool:
    """Whether an object was there before, and may be another next time."""
    if issubclass(type(owner), (type, types.FunctionType)):
        return not (tracer.is_made(owner) or trusted(owner.__module__))
    if issubclass(type(owner), torch.Tensor):
        return tracer.outside.source(owner) is not None
    return tracer.outside.is_outside(owner)


def own(tracer, owner, name: str):
    """An object's own attribute, apart from its class's, or ABSENT.

    A class inherits some of its own.
    """
    outside, kind = tracer.outside, type(owner)
    if issubclass(kind, type):
        return as_shown(tracer, *lookup(tracer, owner, name), ABSENT, owner)
    if issubclass(kind, types.ModuleType):
        return outside.read(outside.globals(owner.__dict__), name)
    if existed(tracer, owner) and kind.__dictoffset__:
        return outside.read(outside.space("attributes", owner), name)
    if issubclass(kind, torch.Tensor):
        return ABSENT
    try:
        return object.__getattribute__(owner, "__dict__").get(name, ABSENT)
    except AttributeError:
        return ABSENT


def _fallback(tracer, owner, kind: type, name: str):
    """The result of `__getattr__`: a module's part, or the user's own."""
    if isinstance(owner, types.ModuleType):
        own(tracer, owner, "__getattr__")  # guarded, found or not
        return tracer.native(getattr, (owner, name))
    hook, _ = lookup(tracer, kind, "__getattr__")
    if hook is nn.Module.__getattr__:
        for part in MODULE_PARTS:
            names = own(tracer, owner, part)
            value = names if names is ABSENT else tracer.stored(names, name)
            if value is not ABSENT:
                return value
    if hook is ABSENT or hook is nn.Module.__getattr__:
        raise no_attribute(kind, name)
    return tracer.call(bound(tracer, owner, "__getattr__"), (name,))


def as_shown(tracer, found, place: Source | None, owner, kind: type):
    """A class attribute as an instance shows it; ABSENT: as the class."""
    if place is not None:
        found = tracer.outside.admit(found, place)
    if owner is not ABSENT:
        if type(found) is types.FunctionType:
            return types.MethodType(found, owner)
        if isinstance(found, property):
            return tracer.call(found.fget, (owner,))
        if isinstance(found, SLOTS) and existed(tracer, owner):
            return WAYS["stored"](
                tracer, owner, found.__name__, lambda: tracer.native(
                    found.__get__, (owner, type(owner))))
    getter = method(tracer, type(found), "__get__")
    if getter is ABSENT:
        return found
    given = found, None if owner is ABSENT else owner, kind
    return (tracer.call if type(getter) is types.FunctionType
            else tracer.native)(getter, given)


def _of_tensor(tracer, tensor: torch.Tensor, name: str, found):
    """A constant, a recorded value, a bound method; ABSENT if unknown."""
    if name == "grad":  # only an input has one
        if tracer.outside.source(tensor) is None:
            return None
        return WAYS["stored"](tracer, tensor, name, lambda: (
            tracer.recorder.real(tensor).grad))
    if found is ABSENT:
        return ABSENT
    if isinstance(found, METHOD_TYPES):
        return getattr(tensor, name)
    if name in ("grad_fn", "is_leaf") and not tensor.requires_grad:
        return name == "is_leaf" or None
    if name in TENSOR_SECRETS:
        raise unsupported("attribute", f"a tensor's {name}")
    return tracer.recorder.function(getattr, (tensor, name), {})
