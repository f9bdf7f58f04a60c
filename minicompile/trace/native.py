"""Functions written in C: recorded, run as they are, or refused.

In: a C function and its arguments. Out: its result. Torch's operators
are recorded. Others run only if they are on a list of those that compute
and do no more. Before they run, `look` guards what they will see; while
they run, `watched` lets them call no Python of the program's. PyTorch's
is torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque

import torch

from ..core.scalars import SCALARS
from ..core.sizes import SYMBOLIC
from .constant_types import CONSTANTS, IDENTITIES
from .reasons import unsupported
from .rules import (HARMLESS, SAFE_OWNERS, apply, method_rule, registered,
                    type_of)
from .interpreter_objects import Callback, StandIn
from .symbolic_shapes import SYMBOLIC_FORMS, settled

#: Builtins that are operators when given a tensor.
ARITHMETIC = {abs, divmod, pow, round}

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested"}

#: Modules whose classes have methods that change no more than their object.
HOMES = SAFE_OWNERS - {"operator"} | {
    "builtins", "collections", "re", "types", "torch", "numpy"}


#: Methods that tell more of an object than which one it is.
TELLING = {"format", "format_map", "__mod__", "__format__", "__repr__",
           "__str__", "__reduce_ex__", "__reduce__", "__getstate__",
           "__dir__", "__sizeof__", "__subclasses__", "__getattribute__"}


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
    if isinstance(owner, type) and (
            rule := registered(vars(owner).get(name))) is not None:
        return apply(tracer, rule, args, kwargs)
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    if name != "fromkeys" and ({function, owner} & HARMLESS
                               or home in SAFE_OWNERS):
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
    owner = args[0] if args else None
    if (rule := method_rule(tracer, owner, unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, unbound.__name__, args, kwargs)
    if unbound.__objclass__.__module__ in HOMES and (
            unbound.__name__ not in TELLING):
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


# What C functions see

#: Those that look at their first argument alone, and keep the others.
HOLDING = {"append", "appendleft", "insert", "setdefault", "get", "pop",
           "send", "throw", "partial", "repeat", "slice", "__setitem__",
           "_has_torch_function", "_has_torch_function_unary",
           "_has_torch_function_variadic", "issubclass", "__get__"}

#: Those that go through what they are given, and keep what they find.
STEPPING = {"list", "tuple", "zip", "map", "enumerate", "deque", "extend",
            "extendleft", "__iadd__", "join", "fsum", "prod", "Size",
            "bytes", "bytearray", "defaultdict"}

#: Those of itertools that ask for the truth of what a function says.
TESTING = {"filterfalse", "takewhile", "dropwhile"}

TABLES, SETS = (dict, OrderedDict, defaultdict), (set, frozenset)


def closed(tracer, function, args: tuple) -> tuple:
    """The arguments as a C function may have them.

    NumPy's numbers meet no symbols.
    """
    if function in (complex, divmod) or not SCALARS.keys().isdisjoint(
            map(type, args)) or getattr(
            function, "__module__", None) == "_struct":
        return settled(tuple(args))
    return args


def natively(tracer, function, args, kwargs=None, depth: int = 1):
    """Run a C function that only computes, on what it may see.

    It looks at its arguments down to a depth: see `look`.
    """
    name, kwargs = getattr(function, "__name__", ""), kwargs or {}
    if function in SYMBOLIC_FORMS and not kwargs and any(
            isinstance(a, SYMBOLIC) for a in args) and (
            len({*map(type_of, args)}) == 1):
        form = functools.partial(tracer.native, SYMBOLIC_FORMS[function])
        return functools.reduce(lambda a, b: form((a, b)), args) if (
            len(args) > 1) else form(args)
    if function in ARITHMETIC and any(
            isinstance(a, torch.Tensor) for a in args):
        return tracer.recorder.function(function, args, kwargs)
    owned, values = getattr(function, "__objclass__", None), [*args]
    module = getattr(function, "__module__", None)
    if name in STEPPING or (
            module == "itertools" and name not in TESTING):
        depth, start = 0, bool(owned)
        values[start:] = [_stepped(tracer, a) for a in values[start:]]
        kwargs = {key: Callback(tracer, value) if callable(value) else value
                  for key, value in kwargs.items()}
    elif name in HOLDING or owned and len(values) == 1:
        depth = 0
    if owned in TABLES or owned in SETS and name in KEYED:
        values[1:2] = map(tracer.key, values[1:2])
    elif owned in SETS:
        values[1:] = [a if isinstance(a, SETS) else [
            *map(tracer.key, tracer.unpacked(a))] for a in values[1:]]
    count = 1 if name in HOLDING else len(values)
    seen = [look(tracer, a, depth) for a in values[:count]]
    if module not in KEEPING:
        values[:count] = seen
    return tracer.native(function, values, kwargs if depth == 0 else {
        key: look(tracer, value) for key, value in kwargs.items()})


#: Modules whose functions put what they are given into a list.
KEEPING = {"_heapq", "_bisect"}

#: Methods of sets that look up their argument.
KEYED = {"add", "discard", "remove", "__contains__"}


def _stepped(tracer, value):
    """What C code goes through, or calls, as it may do it."""
    if isinstance(value, (torch.Tensor, *SETS)) or any(
            tracer.python_method(value, each)
            for each in ("__iter__", "__getitem__")):
        return tracer.iterate(value)
    return Callback(tracer, value) if callable(value) else value


def look(tracer, value, depth: int = 1):
    """`value` as C code may see it: nothing in it can change unseen.

    At depth 0 that is the object alone; at 1 it may compare and hash what
    is in it, however deep; at 2 it may print it, too.
    """
    kind, outside = type(value), tracer.outside
    if kind in SYMBOLIC and depth > 1:
        return settled(value)
    if kind in CONSTANTS or isinstance(value, (torch.Tensor, *SYMBOLIC)):
        return value
    if isinstance(value, (*IDENTITIES, int, float, str, bytes)) or hasattr(
            kind, "__members__"):  # an enumeration
        if depth and outside.is_outside(value):
            outside.guard(outside.source(value), "is", value)
        return value
    if outside.is_dict(value):
        value = outside.resolve(value)
    if depth:
        _look_into(tracer, value, depth)
    if outside.is_outside(value):
        if depth > 1 or not is_plain(kind):
            raise unsupported("builtin", f"reading a {kind.__name__}")
        if depth:
            outside.guard(outside.source(value), "is", value)
    return value


def _look_into(tracer, value, depth: int) -> None:
    """Guard what is in a container; refuse what compares in Python."""
    if isinstance(value, StandIn) or hasattr(type(value), "__next__"):
        raise unsupported("builtin", "reading an iterator")
    for name in ("__eq__", "__lt__", "__hash__"):
        if tracer.python_method(value, name) is not None:
            raise unsupported("builtin", "comparing objects of "
                              f"{type(value).__name__} in C")
    parts = [*dict.keys(value), *dict.values(value)] if isinstance(
        value, dict) else next((base.__iter__(value) for base in (
            tuple, list, set, frozenset, deque) if isinstance(
                value, base)), ())
    for part in parts:
        if tracer.outside.is_dict(part):
            raise unsupported("builtin", "reading a dict from outside")
        look(tracer, part, depth)


def is_plain(kind: type) -> bool:
    """Whether C code can see no more of an object than which one it is."""
    return not any(isinstance(found, types.WrapperDescriptorType)
                   for each in kind.__mro__[:-1]
                   for found in vars(each).values())
