"""Attribute access as Python does it: the type's MRO, then the instance.

In: an object and a name. Out: the value, with properties and descriptors
written in Python run by the interpreter. Every search goes through
`lookup` and `own`, which guard what they find and also where they find
nothing. Tensors give constants (`shape`), recorded values (`T`) or bound
methods. PyTorch's are the `var_getattr` methods in
torch/_dynamo/variables/.
"""

import threading
import types
import weakref

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from ..core.sizes import SYMBOLIC
from ..core.guard import (ABSENT, IDENTITIES, Attribute, Item, Source,
                          home, is_a, trusted)
from .reasons import WAYS, Raised, unsupported
from .recorder import settled
from .rules import follows, rule
from .side_effects import SLOTS, contents

#: Attributes of tensors that a trace knows, or that are tensors.
TENSOR_FACTS = {"shape", "ndim", "dtype", "device", "layout", "T", "mT",
                "data", "requires_grad", "is_cuda"}

#: Classes whose C code looks further than `generic` does, and may find
#: something at one time and nothing at another.
FORWARDING = (types.MethodType, types.GenericAlias, types.ModuleType,
              threading.local, *weakref.ProxyTypes)

#: The flag of classes made in C, which errors name with their module.
MADE_IN_C = 1 << 8

#: The class that a program sees, for objects that are of another.
SEEN_AS = {}


def type_of(value) -> type:
    """The class of a value, or of what it stands for."""
    kind = type(value)  # an object may run Python if asked for __class__
    if kind is FakeTensor:
        return nn.Parameter if isinstance(
            value, nn.Parameter) else torch.Tensor
    return SEEN_AS.get(kind, kind)


def load_attr(tracer, owner, name: str):
    """`owner.name`; raises Raised(AttributeError) as Python would."""
    owner = settled(owner) if type(owner) in SYMBOLIC else owner
    kind = type(owner)
    custom = method(tracer, kind, "__getattribute__")
    try:
        return tracer.call(custom, (owner, name)) if follows(
            custom) else generic(tracer, owner, name)
    except Raised as raised:
        if not isinstance(raised.exception, AttributeError):
            raise
        if not follows(custom) and (issubclass(kind, FORWARDING) or (
                kind.__flags__ & MADE_IN_C and kind is not type
                and hasattr(owner, name))):
            raise unsupported(
                "attribute", f"what C code gives as {name},") from None
        if lookup(tracer, kind, "__getattr__")[0] is ABSENT:
            raise
        return tracer.call(bound(tracer, owner, "__getattr__"), (name,))


def lookup(tracer, kind: type, name: str, after: type | None = None):
    """(value, place) of a name in a class's MRO, or (ABSENT, None).

    Guarded: no class before the one that has it does. The place is None
    if it never changes. `after` begins behind that class, as super() does.
    """
    key, order = (id(kind), name, id(after)), kind.__mro__
    if key in tracer.found:
        return tracer.found[key]
    if not is_a(name, str):
        raise unsupported("attribute", f"the name {name!r}")
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
    return Attribute(tracer.outside.constant(kind), "__dict__")


def method(tracer, kind: type, name: str):
    """A class's method for an operation such as `__call__`, guarded."""
    found, place = (ABSENT, None) if kind in SYMBOLIC else lookup(
        tracer, kind, name)
    return found if place is None else tracer.outside.admit(found, place)


def bound(tracer, owner, name: str):
    """The same, bound to an object as its class's `__get__` says."""
    kind = type(owner)
    return as_shown(tracer, *lookup(tracer, kind, name), owner, kind)


def no_attribute(owner, name: str) -> Raised:
    kind, text = type_of(owner), "{!r} object"
    if issubclass(kind, type):
        kind, text = owner, "type object {!r}"
    text = text.format(repr(kind)[8:-2] if kind.__flags__ & MADE_IN_C
                       else kind.__name__)
    return Raised(AttributeError(
        f"{text} has no attribute {name!r}", name=name, obj=owner))


def generic(tracer, owner, name: str):
    """Data descriptor, own attribute, class attribute; or it raises."""
    kind = type_of(owner)
    if name == "__class__":
        return kind
    found, place = lookup(tracer, kind, name)
    if issubclass(kind, torch.Tensor) and found is not ABSENT and (
            found is lookup(tracer, torch.Tensor, name)[0]):
        if hasattr(type(found), "__set__"):
            return tracer.recorder.function(getattr, (owner, name), {}) if (
                name in TENSOR_FACTS) else WAYS["tensor"](
                    tracer, owner, name)
        if kind in (torch.Tensor, nn.Parameter):  # a method
            return as_shown(tracer, found, place, owner, kind)
    if not (hasattr(type(found), "__set__")
            and hasattr(type(found), "__get__")):
        value = own(tracer, owner, name)
        if value is not ABSENT:
            if place is not None:
                tracer.outside.guard(place, "type", type(found))
            return value
    if found is ABSENT:
        raise no_attribute(owner, name)
    return as_shown(tracer, found, place, owner, kind)


def existed(tracer, owner) -> bool:
    """Whether an object was there before, and may be another next time."""
    kind = type(owner)
    return tracer.outside.source(owner) is not None or (
        issubclass(kind, IDENTITIES) and kind.__dictoffset__ != 0
        and not (tracer.is_made(owner) or trusted(home(owner))))


def own(tracer, owner, name: str):
    """An object's own attribute, apart from its class's, or ABSENT.

    A class inherits some of its own.
    """
    outside, kind = tracer.outside, type(owner)
    if issubclass(kind, type):
        return as_shown(tracer, *lookup(tracer, owner, name), ABSENT, owner)
    if issubclass(kind, types.ModuleType):
        return outside.read(outside.globals(owner.__dict__), name)
    if existed(tracer, owner) and (
            kind.__dictoffset__ or kind is types.CellType):
        return outside.read(outside.space("attributes", owner), name)
    return ABSENT if issubclass(kind, torch.Tensor) else contents(
        owner).get(name, ABSENT)


@rule(nn.Module.__getattr__)
def part(tracer, module: nn.Module, name: str):
    """A module's parameter, buffer or module of this name."""
    for each in ("_parameters", "_buffers", "_modules"):
        names = own(tracer, module, each)
        value = names if names is ABSENT else tracer.stored(names, name)
        if value is not ABSENT:
            return value
    raise no_attribute(module, name)


def as_shown(tracer, found, place: Source | None, owner, kind: type):
    """A class attribute as an instance shows it; ABSENT: as the class."""
    if place is not None:
        found = WAYS["grown"](tracer.outside, found, place)
    if type(found) is types.FunctionType and owner is not ABSENT:
        return types.MethodType(found, owner)
    getter = method(tracer, type(found), "__get__")
    if getter is ABSENT:
        return found
    if isinstance(found, SLOTS) and not follows(getter):
        raise unsupported("attribute", "a value that C code keeps")
    given = found, None if owner is ABSENT else owner, kind
    return (tracer.call if follows(getter)
            else tracer.native)(getter, given)
