"""Functions written in C: recorded, run as they are, or refused.

In: a C function and its arguments. Out: its result. Torch's operators
are recorded. Others run natively if they are known to be harmless, after
their arguments were looked at: C code must not read what was not read
before, nor call Python unseen. PyTorch's is
torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import functools
import types

import torch

from ..core.scalars import SCALARS
from ..core.sizes import SYMBOLIC
from .library import ask
from .reasons import unsupported
from .recorder import storage
from .rules import (HARMLESS, SAFE_OWNERS, apply, method_rule,
                    type_of)
from .stand_ins import Callback
from .symbolic_shapes import SYMBOLIC_FORMS, settled

#: Builtins that are operators when given a tensor.
ARITHMETIC = {abs, divmod, pow, round}

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested"}


def run(tracer, function, args, kwargs):
    """The result of a C function, or of a C method bound to its object."""
    owner, name = function.__self__, function.__name__
    module = getattr(function, "__module__", None)
    if module in OPERATORS or (owner is None and module == "torch"):
        return tracer.recorder.function(function, args, kwargs)
    if name == "__new__" and isinstance(owner, type):
        return new(tracer, function, *args)
    if owner is not None and not isinstance(owner, (types.ModuleType,
                                                    type)):
        return _bound(tracer, function, args, kwargs)
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    if {function, owner} & HARMLESS or home in SAFE_OWNERS:
        return natively(tracer, function, args, kwargs)
    raise unsupported("builtin", f"{module}.{function.__qualname__}")


def new(tracer, make, kind: type, *args):
    """`make(kind)` for a `__new__` written in C."""
    if make is object.__new__:
        args = ()
    elif make not in (dict.__new__, list.__new__, tuple.__new__,
                      set.__new__):
        raise unsupported("builtin", f"{kind.__qualname__}.__new__")
    return tracer.own(tracer.native(make, (kind, *args)))


def _bound(tracer, function, args, kwargs):
    """A method written in C, as its class and its object."""
    owner, name = function.__self__, function.__name__
    for kind in type(owner).__mro__:
        unbound = kind.__dict__.get(name)
        if hasattr(unbound, "__objclass__") and (
                unbound.__get__(owner, type(owner)) == function):
            return method(tracer, unbound, (owner, *args), kwargs)
    raise unsupported("builtin", function.__qualname__)


def method(tracer, unbound, args, kwargs):
    """A method written in C, `args[0]` being its object."""
    name, owner = unbound.__name__, args[0] if args else None
    if (rule := method_rule(tracer, owner, unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, name, args, kwargs)
    if name in ("format", "format_map", "__mod__"):
        tracer.as_text([*args, *kwargs.values()])
    if not tracer.outside.is_outside(owner):
        return natively(tracer, unbound, args, kwargs)
    raise unsupported("builtin", unbound.__qualname__)


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
        "to_sparse", "__hash__", "__dir__", "__setattr__", "swap"}}


def tensor_method(tracer, name: str, args, kwargs):
    """A method of a tensor as a node."""
    if name == "requires_grad_" and args[0].requires_grad is (
            [*args[1:], *kwargs.values(), True][0]):
        return args[0]
    for kind, names in REFUSED.items():
        if name in names:
            raise unsupported(kind, f"Tensor.{name}")
    if name == "storage_offset":
        return _offset(tracer, args[0])
    return tracer.recorder.method(name, args, kwargs)


def _offset(tracer, tensor: torch.Tensor) -> int:
    """Where a tensor starts in its memory, guarded for an input."""
    question = torch.Tensor.storage_offset
    for each in tracer.recorder.inputs:
        if each.storage == storage(tensor):
            ask(tracer, each.fake, "storage_offset", question)
    return question(tensor)


#: C functions that compare what they are given.
COMPARING = {"sorted", "min", "max", "sort", "index", "remove", "count",
             "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}

#: C functions that hash what is in their later arguments.
HASHING = {"fromkeys", "update", "union", "difference", "issubset",
           "issuperset", "isdisjoint", "intersection",
           "intersection_update",
           "symmetric_difference", "difference_update", "_count_elements",
           "symmetric_difference_update"}

#: C methods of dicts and sets that look up their first argument.
KEYED = {"add", "discard", "setdefault", "get", "pop", "__getitem__",
         "__setitem__", "__delitem__", "__contains__"}

#: C functions that go through what they are given, one by one; and of
#: which argument alone.
CONSUMING = HASHING | {
    "list", "tuple", "zip", "map", "filter", "enumerate", "any", "all",
    "sorted", "min", "max", "reduce", "deque", "extend", "extendleft",
    "__iadd__", "join", "fsum", "prod", "countOf", "indexOf", "Size",
    "bytes", "bytearray", "OrderedDict"}
ALONE = {"reduce": 1, "fromkeys": 0}

#: C methods that keep an argument, or look it up, without reading it.
HOLDING = {"append", "insert", "appendleft", "add", "setdefault", "get",
           "__setitem__", "pop", "discard", "send", "throw", "callable",
           "issubclass", "__getitem__", "heappush", "heappushpop",
           "heapreplace", "partial", "repeat", "slice", "__contains__",
           "_has_torch_function", "_has_torch_function_unary",
           "_has_torch_function_variadic"}

def closed(tracer, function, args: tuple) -> tuple:
    """The arguments as a C function may have them.

    NumPy's numbers meet no symbols.
    """
    for value in args:
        tracer.pin(value)
    if function in (complex, divmod) or not SCALARS.keys().isdisjoint(
            map(type, args)) or getattr(
            function, "__module__", None) == "_struct":
        return settled(tuple(args))
    return args


def natively(tracer, function, args, kwargs):
    """Run a harmless C function; its callbacks are interpreted."""
    name = getattr(function, "__name__", "")
    if function in SYMBOLIC_FORMS and not kwargs and any(
            isinstance(a, SYMBOLIC) for a in args) and (
            len({*map(type_of, args)}) == 1):
        form = functools.partial(tracer.native, SYMBOLIC_FORMS[function])
        return functools.reduce(lambda a, b: form((a, b)), args) if (
            len(args) > 1) else form(args)
    if function in ARITHMETIC and any(
            isinstance(a, torch.Tensor) for a in args):
        return tracer.recorder.function(function, args, kwargs)
    if name in COMPARING:
        tracer.comparable(list(args[:0 if "key" in kwargs else None]))
    if name in HASHING:
        tracer.comparable([a for a in args if not isinstance(
            a, (dict, set, frozenset))])
    if name in KEYED and len(args) > 1:
        tracer.key(args[1])
    if name not in HOLDING:
        owners = isinstance(function, (types.MethodDescriptorType,
                                       types.WrapperDescriptorType))
        given, only = args[owners:], ALONE.get(name)
        goes = (name in CONSUMING or getattr(
            function, "__module__", None) == "itertools") and (
            len(given) == 1 or name not in ("min", "max"))
        args = [*args[:owners], *(
            a if only is not None and at > only else adapt(
                tracer, a, name, goes) for at, a in enumerate(given))]
        kwargs = {k: adapt(tracer, a, name, k == "key")
                  if k in ("key", "default_factory")
                  else a for k, a in kwargs.items()}
    return tracer.native(function, args, kwargs)


def adapt(tracer, value, name: str, goes: bool = False):
    """An argument as C code may read it, that may go through it."""
    if isinstance(value, torch.Tensor) and not goes:
        if name in COMPARING - {"min", "max"}:
            return value
        raise unsupported("data-dependent", f"{name} of a tensor")
    if goes and (isinstance(value, torch.Tensor) or any(
            tracer.python_method(value, name)
            for name in ("__iter__", "__getitem__"))):
        return tracer.iterate(value)
    if isinstance(value, (types.FunctionType, types.MethodType,
                          functools.partial)) or goes and callable(value):
        return Callback(tracer, value)
    value = tracer.outside.resolve(value)
    if tracer.outside.is_outside(value):
        raise unsupported("builtin", f"reading a {type(value).__name__}")
    return value
