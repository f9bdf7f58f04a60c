"""Functions written in C: recorded, run as they are, or refused.

In: a C function and its arguments. Out: its result. Torch's operators
are recorded. Others run only if a list names them: they compute and have
no effects. They see constants, tensors and plain containers; the ways to
look at other objects, and to run what may call Python, are rows of the
reference. Dynamo's functions are in torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import functools
import operator
import types

import torch

from ..core.sizes import SCALARS, SYMBOLIC
from .constant_types import CONSTANTS
from .reasons import WAYS, unsupported
from .rules import HARMLESS, SAFE_OWNERS, apply, registered
from .symbolic_shapes import settled

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested"}

#: Modules whose classes have methods that change no more than their object.
HOMES = SAFE_OWNERS - {"operator"} | {
    "builtins", "collections", "re", "types", "torch", "numpy"}

#: Methods that make an object or tell more than which one it is, and
#: functions that ask for its truth or its hash.
TELLING = {"__new__", "__reduce_ex__", "__reduce__", "__getstate__",
           "__dir__", "__sizeof__", "__subclasses__", "__getattribute__",
           "filterfalse", "takewhile", "dropwhile", "fromkeys"}

#: Methods that read a dict; a real one that holds the same may run them.
READING = {"keys", "values", "items", "copy", "__iter__", "__len__",
           "__reversed__"}


def call_native(tracer, function, args, kwargs):
    """The result of a C function, or of a C method bound to its object."""
    owner, name = function.__self__, function.__name__
    module = getattr(function, "__module__", None)
    if module in OPERATORS or (owner is None and module == "torch"):
        return tracer.recorder.function(function, args, kwargs)
    if type(function) is types.MethodWrapperType or not isinstance(
            owner, (types.NoneType, types.ModuleType, type)):
        for kind in type(owner).__mro__:
            unbound = kind.__dict__.get(name)
            if hasattr(unbound, "__objclass__") and (
                    unbound.__get__(owner, type(owner)) == function):
                return call_unbound(tracer, unbound, (owner, *args), kwargs)
    elif isinstance(owner, type) and (
            rule := registered(vars(owner).get(name))) is not None:
        return apply(tracer, rule, args, kwargs)
    elif is_allowed(function):
        return natively(tracer, function, args, kwargs)
    raise unsupported("builtin", f"{module}.{function.__qualname__}")


def call_unbound(tracer, unbound, args, kwargs):
    """The result of a method written in C; `args[0]` is its object."""
    owner, outside = args[0] if args else None, tracer.outside
    if (rule := registered(unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, unbound.__name__, args, kwargs)
    if is_allowed(unbound) and (
            not outside.is_dict(owner) or unbound.__name__ in READING
            and isinstance(outside.resolve(owner), unbound.__objclass__)):
        return natively(tracer, unbound, args, kwargs)
    raise unsupported("builtin", unbound.__qualname__)


def is_allowed(function) -> bool:
    """Whether C code is known to compute, and to do no more."""
    if function.__name__ in TELLING:
        return False
    if hasattr(function, "__objclass__"):
        return function.__objclass__.__module__ in HOMES
    owner = function if isinstance(function, type) else function.__self__
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    return home in SAFE_OWNERS or not HARMLESS.isdisjoint((function, owner))


#: Tensor methods that no node can stand for, by the kind of reason.
REFUSED = {
    "data-dependent": {
        "item", "tolist", "numpy", "data_ptr", "__bool__", "__int__",
        "__float__", "__index__", "__complex__", "is_nonzero", "cpu_",
        "__contains__", "__format__", "__repr__", "__str__", "__array__",
        "is_shared", "is_pinned", "is_set_to", "is_inference", "_is_view"},
    "gradient": {
        "backward", "register_hook", "retain_grad", "requires_grad_",
        "register_post_accumulate_grad_hook", "detach_"},
    "builtin": {
        "set_", "resize_", "resize_as_", "share_memory_", "storage",
        "untyped_storage", "__deepcopy__", "__reduce_ex__", "apply_",
        "map_", "map2_", "as_subclass", "__setstate__", "to_dense",
        "to_sparse", "storage_offset", "__hash__", "__dir__",
        "__setattr__", "swap"}}


def tensor_method(tracer, name: str, args, kwargs):
    """A method of a tensor as a node."""
    if name == "requires_grad_" and args[0].requires_grad is (
            [*args[1:], *kwargs.values(), True][0]):
        return args[0]
    for kind, names in REFUSED.items():
        if name in names:
            raise unsupported(kind, f"Tensor.{name}")
    return tracer.recorder.method(name, args, kwargs)


# The values that C functions see


def look(tracer, value, depth: int = 1):
    """`value` as C code may see it: nothing in it can change unseen.

    At depth 0 that is the object alone; at 1 it may compare and hash what
    is in it, however deep; at 2 it may print it, too.
    """
    value = settled(value) if depth > 1 else value
    if type(value) in CONSTANTS or isinstance(
            value, (torch.Tensor, *SYMBOLIC)):
        return value
    return WAYS["look"](tracer, value, depth)


def alone(tracer, value, depth: int):
    """A container of constants, or one whose elements C code never sees."""
    if tracer.outside.is_dict(value):
        value = tracer.outside.resolve(value)
    is_plain = isinstance(value, tuple) and CONSTANTS.issuperset(
        map(type, tuple.__iter__(value)))
    if depth and not is_plain or tracer.outside.is_outside(value):
        raise unsupported("builtin", f"reading a {type(value).__name__}")
    return value


def natively(tracer, function, args, kwargs=None, depth: int = 1):
    """Run a C function that only computes, on guarded arguments.

    It looks at its arguments to a depth, at those of a method's object
    alone if there are no others.
    """
    if hasattr(function, "__objclass__") and len(args) == 1:
        depth = 0
    elif not SCALARS.keys().isdisjoint(map(type, args)):
        depth = 2  # NumPy's numbers meet no symbols
    return tracer.native(function, *WAYS["prepare"](
        tracer, function, args, kwargs or {}, depth))


def prepared(tracer, function, args, kwargs: dict, depth: int) -> tuple:
    """The arguments of a C function that looks at all of them."""
    return [look(tracer, value, depth) for value in args], {
        key: look(tracer, value, depth) for key, value in kwargs.items()}


#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)

#: Classes whose methods in C make no callbacks.
LEAVES = CONSTANTS - {slice} | {type(iter(each)) for each in (
    (), [], range(0), {}, {}.values(), {}.items())}

#: Functions that make no callbacks, if given such containers.
CONTAINERS = LEAVES | {tuple, list, dict, torch.Size, *map(type, (
    {}.keys(), {}.values(), {}.items()))}
MOVING = {iter, len, list, tuple, dict, operator.getitem, list.append,
          dict.keys, dict.values, dict.items}

#: What makes a method of C's of an object.
BINDING = {types.MethodDescriptorType.__get__,
           types.WrapperDescriptorType.__get__}


def careful(function, args, kwargs):
    """A C function's result, if it can call no code of the program's."""
    kinds = {*map(type, args)}
    if (kinds <= LEAVES or function in MOVING and kinds <= CONTAINERS
            or isinstance(function, PYTHON) or function in BINDING
            or not kinds.isdisjoint(SYMBOLIC)):
        return function(*args, **kwargs)
    return WAYS["run"](function, args, kwargs)


WAYS |= {"look": alone, "prepare": prepared,
         "step": lambda tracer, iterator: iterator}
