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
from ..core.source import Attribute, Item, Source
from .constant_types import ABSENT, trusted
from .reasons import Raised, unsupported
from .interpreter_objects import StandIn
from .symbolic_shapes import settled

#: Attributes of tensors that a fake tensor would answer differently.
TENSOR_CONSTANTS = {
    "is_cuda": lambda t: t.device.type == "cuda",
    "is_cpu": lambda t: t.device.type == "cpu",
    "is_meta": lambda t: t.device.type == "meta",
    "__class__": lambda t: tensor_type(t),
}

#: Attributes of tensors that tell what a trace does not know.
TENSOR_SECRETS = {"_version", "_cdata", "_base", "_backward_hooks",
                  "output_nr", "name", "grad_fn", "is_leaf", "__dict__",
                  "retains_grad", "_post_accumulate_grad_hooks"}

#: Descriptors implemented in C: bound without running Python.
NATIVE = (types.MethodDescriptorType, types.WrapperDescriptorType,
          types.ClassMethodDescriptorType, types.BuiltinFunctionType)
SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)

#: Where nn.Module keeps what `__getattr__` finds.
MODULE_PARTS = ("_parameters", "_buffers", "_modules")


def load(tracer, owner, name: str):
    """`owner.name`; raises Raised(AttributeError) as Python would."""
    owner = settled(owner) if isinstance(owner, SYMBOLIC) else owner
    if isinstance(owner, type):
        return _of_class(tracer, owner, name)
    if isinstance(owner, StandIn):
        return tracer.native(getattr, (owner, name))
    if isinstance(owner, torch.Tensor):
        return _of_tensor(tracer, owner, name)
    if type(owner) is super:
        return _of_super(tracer, owner, name)
    if type(owner) is types.MethodType and name not in (
            "__self__", "__func__"):
        return load(tracer, owner.__func__, name)
    custom, _ = lookup(tracer, type(owner), "__getattribute__")
    if type(custom) is types.FunctionType:
        return tracer.call(custom, (owner, name))
    return generic(tracer, owner, name)


def lookup(tracer, kind: type, name: str, after: type | None = None):
    """(value, class) of a name in a class's MRO, or (ABSENT, None).

    `after` begins behind that class, as super() does.
    """
    key, known = (id(kind), name, id(after)), tracer.found
    if key not in known:
        found = _search(tracer, kind, name, after)
        if tracer.is_made(kind):
            return found
        known[key] = found
    return known[key]


def _search(tracer, kind: type, name: str, after: type | None):
    """The same, guarded: no class before the one that has it does."""
    order = kind.__mro__
    rely_on(tracer, kind)
    if after is not None:
        order = order[order.index(after) + 1:]
    for each in order:
        if name in each.__dict__:
            return each.__dict__[name], each
        if (names := kept_in(tracer, each)) is not None:
            tracer.outside.lacks(names, name)
    return ABSENT, None


def rely_on(tracer, kind: type) -> None:
    """Guard that a user's class keeps its bases."""
    if (names := kept_in(tracer, kind)) is not None:
        tracer.outside.guard(Attribute(names.base, "__mro__"), "keys",
                             kind.__mro__)


def kept_in(tracer, kind: type, found=None) -> Source | None:
    """Where a class keeps an attribute; None if it never changes.

    A library's classes stay as they are, but not what is in a list.
    """
    if tracer.is_made(kind) or trusted(kind.__module__) and not isinstance(
            found, (list, dict, set)):
        return None
    return Attribute(tracer.outside.constant(kind, kind.__name__),
                     "__dict__")


def from_class(tracer, found, where: type, name: str):
    """A class attribute as a value, guarded unless a library's own."""
    names = kept_in(tracer, where, found)
    return found if names is None else tracer.outside.admit(
        found, Item(names, name))


def method(tracer, kind: type, name: str):
    """What a class makes of an operation such as `__call__`, guarded."""
    found, where = lookup(tracer, kind, name)
    return found if where is None else from_class(
        tracer, found, where, name)


def _missing(kind: type, name: str) -> Raised:
    return Raised(AttributeError(
        f"{kind.__name__!r} object has no attribute {name!r}"))


def generic(tracer, owner, name: str):
    """Data descriptor, instance dict, class attribute, __getattr__."""
    kind = tensor_type(owner) if isinstance(
        owner, torch.Tensor) else type(owner)
    found, where = lookup(tracer, kind, name)
    if name == "__dict__" and not isinstance(owner, types.ModuleType):
        return (tracer.outside.namespace(owner)
                if existed(tracer, owner) else owner.__dict__)
    if name == "__class__":
        return kind
    if found is ABSENT or not _is_data(found):
        value = own(tracer, owner, name)
        if value is not ABSENT:
            names = found is not ABSENT and kept_in(tracer, where)
            if names:
                tracer.outside.guard(Item(names, name), "type",
                                     type(found))
            return value
    if found is not ABSENT:
        return _bind(tracer, from_class(tracer, found, where, name),
                     owner, kind, name)
    return _fallback(tracer, owner, kind, name)


def existed(tracer, owner) -> bool:
    """Whether an object was there before, and may be another next time."""
    if type(owner) is types.FunctionType:
        return not (tracer.is_made(owner) or trusted(owner.__module__))
    if isinstance(owner, torch.Tensor):
        return tracer.outside.source(owner) is not None
    return tracer.outside.is_outside(owner)


def own(tracer, owner, name: str):
    """The instance attribute `name`, or ABSENT."""
    outside = tracer.outside
    if isinstance(owner, types.ModuleType):
        return outside.read(outside.globals(owner.__dict__), name)
    if existed(tracer, owner) and hasattr(owner, "__dict__"):
        return outside.read(outside.attributes(owner), name)
    if isinstance(owner, torch.Tensor):
        return ABSENT
    try:
        return object.__getattribute__(owner, "__dict__").get(name, ABSENT)
    except AttributeError:
        return ABSENT


def _fallback(tracer, owner, kind: type, name: str):
    """What `__getattr__` gives: a module's part, or the user's own."""
    if isinstance(owner, types.ModuleType):
        return tracer.native(getattr, (owner, name))
    hook = method(tracer, kind, "__getattr__")
    if hook is nn.Module.__getattr__:
        for part in MODULE_PARTS:
            value = _module_part(tracer, owner, part, name)
            if value is not ABSENT:
                return value
    if hook is ABSENT or hook is nn.Module.__getattr__:
        raise _missing(kind, name)
    return tracer.call(hook, (owner, name))


def _module_part(tracer, owner, part: str, name: str):
    """`owner._parameters[name]` and the like, or ABSENT."""
    names = own(tracer, owner, part)
    if names is ABSENT:
        return ABSENT
    if not tracer.outside.is_dict(names):
        return names.get(name, ABSENT)
    return tracer.outside.read(tracer.outside.items(names), name)


def _is_data(found) -> bool:
    """Whether a class attribute wins over an instance attribute."""
    return isinstance(found, (property, *SLOTS)) or (
        hasattr(type(found), "__set__"))


def _bind(tracer, found, owner, kind: type, name: str):
    """A class attribute as an instance shows it; ABSENT: as the class."""
    through = owner is not ABSENT
    match found:
        case types.FunctionType():
            return types.MethodType(found, owner) if through else found
        case staticmethod():
            return found.__func__
        case classmethod():
            return types.MethodType(found.__func__, kind)
        case property() if through:
            return tracer.call(found.fget, (owner,))
    if isinstance(found, SLOTS) and through:
        return _slot(tracer, found, owner, name)
    getter = method(tracer, type(found), "__get__")
    if getter is ABSENT or isinstance(found, type):
        return found
    if type(getter) is types.FunctionType:
        return tracer.call(getter, (found, owner if through else None,
                                    kind))
    if isinstance(found, NATIVE) and through:
        return tracer.native(found.__get__, (owner, kind))
    return tracer.native(getattr, (owner if through else kind, name))


def _slot(tracer, found, owner, name: str):
    """An attribute that C code stores: of `__slots__`, of a partial."""
    if not existed(tracer, owner):
        return tracer.native(getattr, (owner, name))
    if type(owner) is types.FunctionType and name in HIDDEN:
        raise unsupported("attribute", f"a function's {name}")
    return _read_once(tracer, owner, name, lambda: tracer.native(
        found.__get__, (owner, type(owner))))


#: What a function is made of: it is read, and guarded, at its calls.
HIDDEN = {"__defaults__", "__kwdefaults__", "__closure__", "__globals__"}


def _read_once(tracer, owner, name: str, read):
    """What `read()` gives the first time, as an attribute from outside."""
    space = tracer.outside.attributes(owner)
    if name in space.now:
        return space.now[name]
    if name not in space.before:
        source = tracer.outside.found_at(owner)
        try:
            space.before[name] = tracer.outside.admit(
                read(), Attribute(source, name))
        except Raised:
            tracer.outside.guard(source, "has", (name, False))
            raise
    return space.before[name]


def _of_class(tracer, owner: type, name: str):
    """An attribute of a class, methods unbound."""
    kind = type(owner)
    meta, above = lookup(tracer, kind, name)
    if isinstance(meta, SLOTS):
        value = tracer.native(getattr, (owner, name))
        return value if kept_in(tracer, owner) is None else (
            tracer.outside.admit(value, Attribute(
                tracer.outside.constant(owner, owner.__name__), name)))
    found, where = lookup(tracer, owner, name)
    if found is not ABSENT:
        return _bind(tracer, from_class(tracer, found, where, name),
                     ABSENT, owner, name)
    if meta is ABSENT:
        return _fallback(tracer, owner, kind, name)
    return _bind(tracer, from_class(tracer, meta, above, name), owner,
                 kind, name)


def _of_super(tracer, owner: super, name: str):
    """`super().name`: the MRO after the class, bound to the object."""
    target, kind = owner.__self__, owner.__self_class__
    found, where = lookup(tracer, kind, name, owner.__thisclass__)
    if found is ABSENT:
        raise _missing(super, name)
    return _bind(tracer, from_class(tracer, found, where, name),
                 ABSENT if target is kind else target, kind, name)


def tensor_type(tensor: torch.Tensor) -> type:
    """The class a fake tensor stands for."""
    return (nn.Parameter if isinstance(tensor, nn.Parameter)
            else torch.Tensor)


def _of_tensor(tracer, tensor: torch.Tensor, name: str):
    """A constant, a recorded value, or a bound method."""
    if name in TENSOR_CONSTANTS:
        return TENSOR_CONSTANTS[name](tensor)
    found, _ = lookup(tracer, tensor_type(tensor), name)
    if name == "grad":
        return _gradient(tracer, tensor)
    if found is ABSENT:
        return generic(tracer, tensor, name)
    if isinstance(found, (types.FunctionType, *NATIVE)):
        return getattr(tensor, name)
    if name in ("grad_fn", "is_leaf") and not tensor.requires_grad:
        return name == "is_leaf" or None
    if name in TENSOR_SECRETS:
        raise unsupported("attribute", f"a tensor's {name}")
    return tracer.recorder.function(getattr, (tensor, name), {})


def _gradient(tracer, tensor: torch.Tensor):
    """`tensor.grad`: only an input has one."""
    if tracer.outside.source(tensor) is None:
        return None
    return _read_once(tracer, tensor, "grad",
                      lambda: tracer.recorder.real(tensor).grad)


def store(tracer, owner, name: str, value=ABSENT) -> None:
    """`owner.name = value`, or `del owner.name`; outside, it waits."""
    given = () if value is ABSENT else (value,)
    hook = method(tracer, type(owner),
                  "__setattr__" if given else "__delattr__")
    if type(hook) is not types.FunctionType:
        store_plain(tracer, owner, name, value)
    elif hook is not nn.Module.__setattr__ or not _store_part(
            tracer, owner, name, value):
        tracer.call(hook, (owner, name, *given))


def store_plain(tracer, owner, name: str, value=ABSENT) -> None:
    """The same as `object.__setattr__` or `object.__delattr__` does it."""
    outside, (found, _) = tracer.outside, lookup(tracer, type(owner), name)
    is_outside = outside.is_outside(owner)
    if isinstance(owner, torch.Tensor) and name == "grad" and value is None:
        if outside.source(owner) is not None:
            outside.write(outside.attributes(owner), name, value)
        return
    _refuse_kinds(tracer, owner, name)
    given = () if value is ABSENT else (value,)
    hook = method(tracer, type(found), "__set__" if given
                  else "__delete__")
    accessor = isinstance(found, property) and (
        found.fset if given else found.fdel)
    if accessor:
        tracer.call(accessor, (owner, *given))
    elif type(hook) is types.FunctionType:
        tracer.call(hook, (found, owner, *given))
    elif is_outside and not isinstance(found, property) and (
            found is not ABSENT or type(owner).__dictoffset__):
        if not given and found is not ABSENT and _is_data(found):
            raise unsupported("effect", f"deleting {name}")
        if not given and own(tracer, owner, name) is ABSENT:
            raise _missing(type(owner), name)
        outside.write(outside.attributes(owner), name, value)
    elif not given:
        tracer.native(delattr, (owner, name))
    else:
        tracer.native(setattr if isinstance(
            owner, (type, types.FunctionType)) else object.__setattr__,
            (owner, name, value))


def _refuse_kinds(tracer, owner, name: str) -> None:
    """Refuse to change tensors, modules, classes, functions from outside.
    """
    if tracer.is_made(owner) or not isinstance(owner, (
            torch.Tensor, types.ModuleType, type, types.FunctionType)):
        return
    tracer.recorder.sizes.history.counters.add(name)
    raise unsupported("effect",
                      f"setting {name} of a {type(owner).__name__}")


def _store_part(tracer, owner, name: str, value) -> bool:
    """Set a module's attribute where `Module.__setattr__` would."""
    if not tracer.outside.is_outside(owner):
        return False
    if isinstance(value, (nn.Module, nn.Parameter)):
        raise unsupported("effect", f"setting the module part {name}")
    for part in MODULE_PARTS:
        names = own(tracer, owner, part)
        if not tracer.outside.is_dict(names):
            return False
        if name in names:
            if part != "_buffers":
                raise unsupported("effect", f"setting {name}")
            tracer.outside.write(tracer.outside.items(names), name, value)
            return True
    store_plain(tracer, owner, name, value)
    return True
