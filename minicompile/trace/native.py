"""Functions written in C: recorded, run as they are, or refused.

In: a C function and its arguments. Out: its result. Torch's operators
are recorded. Others run only if a list names them: they compute and have
no effects. Before they run, `look` guards what they will see. While they
run, `watched` refuses before the first line of a user's `__eq__` or
`__index__`: it would run unseen, and once more after the graph. Callbacks
and iterators given to them are stand-ins, which interpret. Dynamo has no
such watch: it models each function (torch/_dynamo/variables/builtin.py).
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from itertools import chain, repeat

import torch

from ..core.errors import Unsupported
from ..core.sizes import SCALARS, SYMBOLIC
from .attributes import type_of
from .constant_types import CONSTANTS, IDENTITIES, StandIn, trusted
from .reasons import Raised, internal, unsupported
from .rules import HARMLESS, SAFE_OWNERS, apply, method_rule, registered
from .symbolic_shapes import SYMBOLIC_FORMS, settled

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested"}

#: Modules whose classes have methods that change no more than their object.
HOMES = SAFE_OWNERS - {"operator"} | {
    "builtins", "collections", "re", "types", "torch", "numpy"}

#: Methods that tell more of an object than which one it is, and functions
#: that ask for its truth or its hash.
TELLING = {"__reduce_ex__", "__reduce__", "__getstate__", "__dir__",
           "__sizeof__", "__subclasses__", "__getattribute__",
           "filterfalse", "takewhile", "dropwhile", "fromkeys"}


def call_native(tracer, function, args, kwargs):
    """The result of a C function, or of a C method bound to its object."""
    owner, name = function.__self__, function.__name__
    module = getattr(function, "__module__", None)
    if module in OPERATORS or (owner is None and module == "torch"):
        return tracer.recorder.function(function, args, kwargs)
    if name == "__new__" and isinstance(owner, type):
        return new(tracer, function, *args)
    if not isinstance(owner, (types.NoneType, types.ModuleType, type)):
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
    owner = args[0] if args else None
    if (rule := method_rule(tracer, owner, unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, unbound.__name__, args, kwargs)
    if is_allowed(unbound):
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


def new(tracer, make, kind: type, *args):
    """`make(kind)` for a `__new__` written in C."""
    if make is object.__new__:
        args = ()
    elif make not in (dict.__new__, list.__new__, tuple.__new__,
                      set.__new__):
        raise unsupported("builtin", f"{kind.__qualname__}.__new__")
    return tracer.own(tracer.native(make, (kind, *args)))


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
    outside = tracer.outside
    value = settled(value) if depth > 1 else value
    kind, is_value = type(value), isinstance(value, (
        int, float, complex, str, bytes))
    if kind in CONSTANTS or isinstance(value, (torch.Tensor, *SYMBOLIC)):
        return value
    if is_value or isinstance(value, IDENTITIES) or hasattr(
            kind, "__members__"):  # an enumeration
        if (depth or is_value) and outside.is_outside(value):
            outside.guard(outside.source(value), "is", value)
        return value
    if outside.is_dict(value):
        value = outside.resolve(value)
    if depth:
        _look_into(tracer, value, depth)
    if outside.is_outside(value):
        if depth > 1 or not is_featureless(kind):
            raise unsupported("builtin", f"reading a {kind.__name__}")
        if depth:
            outside.guard(outside.source(value), "is", value)
    return value


def _look_into(tracer, value, depth: int) -> None:
    """Guard a container's elements; refuse comparisons in Python."""
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


def is_featureless(kind: type) -> bool:
    """Whether C code can see no more of an object than which one it is."""
    return not any(isinstance(found, types.WrapperDescriptorType)
                   for each in kind.__mro__[:-1]
                   for found in vars(each).values())


TABLES, SETS = (dict, OrderedDict, defaultdict), (set, frozenset)

#: How C functions use the first argument, and the others.
SEEN = {name: row for names, row in (
    ("append appendleft insert setdefault get pop send throw partial "
     "repeat slice __setitem__ __get__ issubclass _has_torch_function "
     "_has_torch_function_unary _has_torch_function_variadic",
     (0, "kept")),
    ("extend extendleft __iadd__ join", (0, "stepped")),
    ("format format_map __mod__ __format__ __repr__ __str__ divmod",
     (2, 2)),
    ("list tuple zip map enumerate deque fsum prod Size bytes bytearray "
     "defaultdict", ("stepped", "stepped"))) for name in names.split()}

#: The same for all functions of a module.
SEEN_IN = {"itertools": ("stepped", "stepped"), "_struct": (2, 2),
           **dict.fromkeys(("_heapq", "_bisect"), ("compared", "compared"))}

#: Methods of sets that look up their argument.
KEYED = {"add", "discard", "remove", "__contains__"}


def seen(tracer, value, how: str | int):
    """An argument as C code may have it, which looks at it to a depth.

    Or it steps through it, or calls it, or looks it up, or keeps it.
    """
    if how == "stepped" and (
            isinstance(value, (torch.Tensor, *SETS)) or any(
                tracer.python_method(value, each)
                for each in ("__iter__", "__getitem__"))):
        return tracer.iterate(value)
    if how in ("stepped", "called") and callable(value):
        return Callback(tracer, value)
    match how:
        case "key":
            return tracer.key(value)
        case "elements" if not isinstance(value, SETS):
            return [*map(tracer.key, tracer.unpacked(value))]
        case "compared":
            look(tracer, value)
        case int() | "stepped":
            return look(tracer, value, 0 if how == "stepped" else how)
    return value


def natively(tracer, function, args, kwargs=None, depth: int = 1):
    """Run a C function that only computes, on guarded arguments.

    Unless a row says otherwise, it looks at its arguments to a depth.
    """
    name = getattr(function, "__name__", None)
    owner = getattr(function, "__objclass__", None)
    if function in SYMBOLIC_FORMS and not kwargs and any(
            isinstance(a, SYMBOLIC) for a in args) and (
            len({*map(type_of, args)}) == 1):
        form = functools.partial(tracer.native, SYMBOLIC_FORMS[function])
        return functools.reduce(lambda a, b: form((a, b)), args) if (
            len(args) > 1) else form(args)
    if owner and len(args) == 1:
        depth = 0
    elif not SCALARS.keys().isdisjoint(map(type, args)):
        depth = 2  # NumPy's numbers meet no symbols
    first, others = SEEN.get(name) or SEEN_IN.get(
        getattr(function, "__module__", None), (depth, depth))
    second = others
    if owner in TABLES or owner in SETS and name in KEYED:
        second = "key"
    elif owner in SETS:
        second = others = "elements"
    values = [seen(tracer, value, how) for value, how in zip(
        args, chain((first, second), repeat(others)))]
    named = "called" if others == "stepped" else others
    return tracer.native(function, values, {
        key: seen(tracer, value, named)
        for key, value in (kwargs or {}).items()})


# Callbacks from C functions

#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)

#: Classes whose methods in C make no callbacks.
LEAVES = CONSTANTS - {slice} | {type(iter(each)) for each in (
    (), [], range(0), {}, {}.values(), {}.items())}

#: Functions that make no callbacks, if given such containers.
CONTAINERS = LEAVES | {tuple, list, dict}
MOVING = {iter, len, list, tuple, operator.getitem, list.append}

#: Modules that C code calls to read tensors; methods that read no values.
VALUES = ("torch._tensor", "torch._subclasses")
MILD = {"__hash__", "__instancecheck__", "__subclasscheck__"}


class Watch:
    """A profiler for `sys.setprofile` that refuses calls of user code."""

    def __init__(self, function):
        self.function, self.asked = function, False

    def __call__(self, frame, event, _):
        if event != "call":
            return
        name, code = getattr(self.function, "__name__", ""), frame.f_code
        home = frame.f_globals.get("__name__") or ""
        if home.startswith(VALUES) and code.co_name not in MILD:
            self.asked = True  # raised later: C++ is not to be unwound
        elif not quiet(home):
            raise unsupported("builtin", f"{name}, which calls "
                              f"{code.co_qualname},")


def watched(function, args, kwargs):
    """A C function's result; refused if it calls the program's code.

    If a profiler is already active, it stays and nothing is watched.
    """
    kinds = {*map(type, args)}
    if kinds <= LEAVES or function in MOVING and kinds <= CONTAINERS or (
            isinstance(function, PYTHON) or sys.getprofile()
            or not kinds.isdisjoint(SYMBOLIC)):
        return function(*args, **kwargs)
    watch = Watch(function)
    sys.setprofile(watch)
    try:
        return function(*args, **kwargs)
    finally:
        sys.setprofile(None)
        if watch.asked:
            raise unsupported("data-dependent", getattr(
                function, "__name__", "a C function"))


def unwatched(function):
    """A method that C code may call, since it interprets."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        watch = sys.getprofile()
        if type(watch) is not Watch:
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(watch)
    return call


@functools.cache
def quiet(name: str | None) -> bool:
    """Whether a module's code is a library's, which has no effects."""
    root = (name or "").partition(".")[0]
    return trusted(name) or root in ("minicompile", "sympy", "mpmath") or (
        root.startswith("namedtuple_"))


class Callback(StandIn):
    """A function of the traced program that C code may call."""

    def __init__(self, tracer, function):
        self.tracer, self.function = tracer, function

    def __eq__(self, other):
        return self.function == getattr(other, "function", other)

    def __hash__(self):
        return hash(self.function)

    @unwatched
    def __call__(self, *args, **kwargs):
        try:
            return self.tracer.call(self.function, args, kwargs)
        except Raised as raised:
            error = raised.exception
        except (Unsupported, RecursionError):
            raise
        except Exception as failure:
            raise internal(failure) from failure
        raise error  # out here, where its context stays what it is


class Iteration(StandIn):
    """The iterator a user's class made, for C code to step."""

    def __init__(self, tracer, iterator):
        self.step = Callback(tracer, types.MethodType(
            type(iterator).__next__, iterator))

    def __iter__(self):
        return self

    def __next__(self):
        return self.step()
