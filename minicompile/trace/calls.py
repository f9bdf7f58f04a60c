"""Calls: torch operators are recorded, Python is followed, C is judged.

In: a callable of any kind with its arguments. Out: its result. What a
call means is looked up by the callable (`RULES`), then by its kind. C
functions run natively only if they are known to be harmless. PyTorch's
is torch/_dynamo/variables/builtin.py, functions.py and torch.py.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..core.source import Attribute, Item
from . import attributes
from .chain import passes_on
from .frame import Frame
from .marks import refuse_disabled, uncompiled
from .outside import ABSENT, CONSTANTS, IDENTITIES, trusted
from .reasons import Raised, unsupported
from .recorder import storage
from .rules import HARMLESS, SAFE_OWNERS, ask, method_rule, registered
from .stand_ins import Callback

#: Builtins that are operators when given a tensor.
ARITHMETIC = {abs, divmod, pow, round}

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested"}

#: Libraries whose insides are never followed.
OPAQUE = {"warnings", "importlib", "threading",
          "random", "time", "io", "subprocess", "socket", "pickle",
          "numpy", "torch._dynamo", "torch._inductor", "torch._functorch",
          "torch.utils.checkpoint", "torch.autograd.function",
          "torch.autograd", "torch.jit", "torch.optim", "torch.library"}

DEEPEST = 120

#: nn.Module's own hooks; with none set, a call is its forward.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
         "_backward_pre_hooks")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks",
                "_global_backward_hooks", "_global_backward_pre_hooks")


@passes_on
def call(tracer, function, args: tuple, kwargs: dict):
    """The result of `function(*args, **kwargs)`."""
    if (rule := registered(function)) is not None:
        return apply(tracer, rule, args, kwargs)
    match function:
        case types.FunctionType():
            return _python(tracer, function, args, kwargs)
        case types.MethodType():
            return call(tracer, function.__func__,
                        (function.__self__, *args), kwargs)
        case type():
            return _make(tracer, function, args, kwargs)
        case types.BuiltinFunctionType() | types.MethodWrapperType():
            return _native_bound(tracer, function, args, kwargs)
        case types.MethodDescriptorType() | types.WrapperDescriptorType():
            return method(tracer, function, args, kwargs)
        case torch._ops.OpOverload() | torch._ops.OpOverloadPacket():
            return tracer.recorder.function(function, args, kwargs)
        case nn.Module():
            return _module(tracer, function, args, kwargs)
        case functools.partial():
            load = functools.partial(attributes.load, tracer, function)
            before = tracer.mapping(load("keywords"))
            return call(tracer, load("func"), (*load("args"), *args),
                        {**before, **kwargs})
        case Callback():
            return call(tracer, function.function, args, kwargs)
        case functools._lru_cache_wrapper():
            return _cached(tracer, function, args, kwargs)
    target, _ = attributes.lookup(type(function), "__call__")
    if target is ABSENT:
        raise Raised(TypeError(
            f"{type(function).__name__!r} object is not callable"))
    return call(tracer, target, (function, *args), kwargs)


def _cached(tracer, function, args: tuple, kwargs: dict):
    """A function with a cache, called for good, as eager would once."""
    result = ABSENT
    if _is_constant((args, *kwargs.values())):
        with unset_fake_temporarily():
            result = tracer.native(function, args, kwargs)
    if not _is_constant(result):
        raise unsupported("builtin", f"{function.__qualname__}, cached,")
    return result


def _is_constant(value) -> bool:
    """Whether a value never changes, at any depth."""
    if isinstance(value, tuple):
        return all(map(_is_constant, tuple.__iter__(value)))
    return type(value) in CONSTANTS or isinstance(value, IDENTITIES)


def apply(tracer, rule, args: tuple, kwargs: dict):
    """What a rule gives; wrong arguments are the program's TypeError."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError:
        try:
            inspect.signature(rule).bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise Raised(error) from None
        raise


# Python functions


@passes_on
def _python(tracer, function: types.FunctionType, args, kwargs):
    """A Python function: one node if it is torch's operator, else run."""
    refuse_disabled(function)
    if (original := uncompiled(function)) is not None:
        return call(tracer, original, args, kwargs)
    module = function.__module__ or ""
    if module in OPERATORS:
        return tracer.recorder.function(function, args, kwargs)
    if module.startswith("minicompile.trace"):
        return tracer.native(function, args, kwargs)
    if module == "torch._tensor":
        return tensor_method(tracer, function.__name__, args, kwargs)
    if _is_opaque(module):
        raise unsupported("library",
                          f"{module}.{function.__qualname__}")
    return inline(tracer, function, args, kwargs)


@functools.cache
def _is_opaque(module: str) -> bool:
    """Whether a module's functions are never followed."""
    return module != "torch.autograd.grad_mode" and any(
        module == name or module.startswith(name + ".") for name in OPAQUE)


@passes_on
def inline(tracer, function: types.FunctionType, args, kwargs):
    """Run a Python function in a frame of its own."""
    if len(tracer.frames) > DEEPEST:
        raise unsupported("recursion", f"{DEEPEST} levels")
    if function.__code__.co_flags & (
            inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise unsupported("code", f"{function.__qualname__}, async,")
    rely_on_code(tracer, function)
    names = bind(tracer, function, args, kwargs)
    return Frame(tracer, function, names).run()[1]


def rely_on_code(tracer, function: types.FunctionType) -> None:
    """Guard a user's function against being given other code."""
    if not (tracer.is_made(function) or trusted(function.__module__)):
        tracer.outside.guard(
            Attribute(tracer.function_source(function), "__code__"), "is",
            function.__code__)


def bind(tracer, function: types.FunctionType, args, kwargs) -> dict:
    """The local variables a call starts with; TypeError as Python's."""
    code = function.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    variables = code.co_varnames
    names = dict(zip(variables[:count], args))
    rest = dict(kwargs)
    for name in variables[code.co_posonlyargcount:count + only]:
        if name in rest:
            if name in names:
                raise _wrong(function, f"multiple values for {name!r}")
            names[name] = rest.pop(name)
    _defaults(tracer, function, names)
    missing = [n for n in variables[:count + only] if n not in names]
    if missing:
        raise _wrong(function, f"a missing argument: {missing[0]!r}")
    at = count + only
    if code.co_flags & inspect.CO_VARARGS:
        names[variables[at]] = tuple(args[count:])
        at += 1
    elif len(args) > count:
        raise _wrong(function, f"{len(args)} positional arguments")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        names[variables[at]] = rest
    elif rest:
        raise _wrong(function, f"an unexpected argument: {[*rest][0]!r}")
    return names


def _wrong(function, what: str) -> Raised:
    return Raised(TypeError(f"{function.__qualname__}() got {what}"))


def _defaults(tracer, function: types.FunctionType, names: dict) -> None:
    """Fill in the defaults of arguments that were not given."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    found = [(name, value, ("__defaults__", index)) for index, (
        name, value) in enumerate(zip(
            code.co_varnames[first:code.co_argcount], defaults))]
    found += [(name, value, ("__kwdefaults__", name)) for name, value in (
        function.__kwdefaults__ or {}).items()]
    library = trusted(function.__module__)
    for name, value, (place, key) in found:
        if name in names:
            continue
        if not tracer.is_made(function) and not (
                library and _is_constant(value)):
            source = Attribute(tracer.function_source(function), place)
            if place == "__defaults__":
                tracer.outside.guard(source, "length", len(defaults))
            value = tracer.outside.admit(value, Item(source, key), library)
        names[name] = value


# Modules and classes


@passes_on
def _module(tracer, module: nn.Module, args, kwargs):
    """A module's call: its forward, if no hook is set."""
    target, _ = attributes.lookup(type(module), "__call__")
    if target is not nn.Module.__call__ or _has_hooks(tracer, module):
        return call(tracer, target, (module, *args), kwargs)
    forward = attributes.load(tracer, module, "forward")
    return call(tracer, forward, args, kwargs)


def _has_hooks(tracer, module: nn.Module) -> bool:
    """Whether the module, or every module, has hooks; guarded."""
    outside = tracer.outside
    names = vars(nn.modules.module)
    for name in GLOBAL_HOOKS:
        source = outside.constant(names[name], name)
        outside.guard(source, "length", len(names[name]))
    hooks = [vars(module)[name] for name in HOOKS]
    if outside.is_outside(module):
        for name, found in zip(HOOKS, hooks):
            outside.guard(Attribute(outside.source(module), name),
                          "length", len(found))
    return any(hooks) or any(names[name] for name in GLOBAL_HOOKS)


def _make(tracer, kind: type, args, kwargs):
    """An instance of a class, its `__init__` followed."""
    meta, _ = attributes.lookup(type(kind), "__call__")
    if type(meta) is types.FunctionType and type(kind).__module__ != "enum":
        return call(tracer, meta, (kind, *args), kwargs)
    if kind is functools.partial or issubclass(
            kind, BaseException) and _is_native(kind, "__init__"):
        return tracer.own(tracer.native(kind, args, kwargs))
    if issubclass(kind, torch.Tensor) or issubclass(
            kind, torch.autograd.Function):
        raise unsupported("builtin", kind.__qualname__)
    if kind in HARMLESS or kind.__module__ in SAFE_OWNERS:
        return natively(tracer, kind, args, kwargs)
    if type(kind).__module__ == "enum":
        return tracer.native(kind, args, kwargs)
    make, _ = attributes.lookup(kind, "__new__")
    if isinstance(make, staticmethod):
        value = call(tracer, make.__func__, (kind, *args), kwargs)
    else:
        value = new(tracer, make, kind, *args)
    if isinstance(value, kind):
        start, _ = attributes.lookup(kind, "__init__")
        call(tracer, start, (value, *args), kwargs)
    return value


def _is_native(kind: type, name: str) -> bool:
    found, _ = attributes.lookup(kind, name)
    return type(found) is not types.FunctionType


def new(tracer, make, kind: type, *args):
    """`make(kind)` for a `__new__` written in C."""
    if make is object.__new__:
        args = ()
    elif make not in (dict.__new__, list.__new__, tuple.__new__,
                      set.__new__):
        raise unsupported("builtin", f"{kind.__qualname__}.__new__")
    return tracer.own(tracer.native(make, (kind, *args)))


# C functions


def _native_bound(tracer, function, args, kwargs):
    """A C function, or a C method bound to its object."""
    owner, name = function.__self__, function.__name__
    module = getattr(function, "__module__", None)
    if module in OPERATORS or (owner is None and module == "torch"):
        return tracer.recorder.function(function, args, kwargs)
    if name == "__new__" and isinstance(owner, type):
        return new(tracer, function, *args)
    if owner is not None and not isinstance(owner, (types.ModuleType,
                                                    type)):
        return _bound(tracer, function, args, kwargs)
    if function in HARMLESS or (isinstance(owner, types.ModuleType)
                                and owner.__name__ in SAFE_OWNERS):
        return natively(tracer, function, args, kwargs)
    if isinstance(owner, type) and (
            owner in HARMLESS or owner.__module__ in SAFE_OWNERS):
        return natively(tracer, function, args, kwargs)
    raise unsupported("builtin", f"{module}.{function.__qualname__}")


def _bound(tracer, function, args, kwargs):
    """A method written in C, as its class and its object."""
    owner, name = function.__self__, function.__name__
    if id(function) in tracer.outside.given and (
            type(owner) not in CONSTANTS) and (
            not isinstance(owner, IDENTITIES)):
        raise unsupported("builtin", function.__qualname__)
    for kind in type(owner).__mro__:
        unbound = kind.__dict__.get(name)
        if hasattr(unbound, "__objclass__") and (
                unbound.__get__(owner, type(owner)) == function):
            return method(tracer, unbound, (owner, *args), kwargs)
    raise unsupported("builtin", function.__qualname__)


def method(tracer, unbound, args, kwargs):
    """A method written in C, `args[0]` being its object."""
    name = unbound.__name__
    if not args:
        raise Raised(TypeError(f"{name} needs an argument"))
    owner = args[0]
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, name, args, kwargs)
    if (rule := method_rule(tracer, owner, unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if name in ("format", "format_map", "__mod__"):
        tracer.as_text([*args, *kwargs.values()])
    if not tracer.outside.is_outside(owner):
        return natively(tracer, unbound, args, kwargs)
    raise unsupported("builtin", unbound.__qualname__)


#: Callables that read what they are given.
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)

#: Tensor methods that leave the graph, or that need values.
VALUES = {"item", "tolist", "numpy", "data_ptr", "__bool__", "__int__",
          "__float__", "__index__", "__complex__", "is_nonzero", "cpu_",
          "__contains__", "__format__", "__repr__", "__str__", "__array__",
          "is_shared", "is_pinned", "is_set_to", "is_inference",
          "_is_view"}
GRADIENTS = {"backward", "register_hook", "retain_grad",
             "register_post_accumulate_grad_hook", "requires_grad_",
             "detach_"}
REFUSED = {"set_", "resize_", "resize_as_", "share_memory_", "storage",
           "untyped_storage", "__deepcopy__", "__reduce_ex__", "apply_",
           "map_", "map2_", "as_subclass", "__setstate__", "to_dense",
           "to_sparse", "__hash__", "__dir__", "__setattr__", "swap"}


def tensor_method(tracer, name: str, args, kwargs):
    """A method of a tensor as a node."""
    if name in VALUES:
        raise unsupported("data-dependent", f"Tensor.{name}")
    if name in GRADIENTS:
        raise unsupported("gradient", f"Tensor.{name}")
    if name in REFUSED:
        raise unsupported("builtin", f"Tensor.{name}")
    if not isinstance(args[0], torch.Tensor):
        raise Raised(TypeError(f"Tensor.{name} needs a tensor"))
    if name == "__len__":
        return args[0].shape[0]
    if name == "__iter__":
        return tracer.iterate(args[0])
    if name == "storage_offset":
        return _offset(tracer, args[0])
    return tracer.recorder.method(name, args, kwargs)


def _offset(tracer, tensor: torch.Tensor) -> int:
    """Where a tensor starts in its memory, guarded if that is an input's."""
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

#: What C functions may call on an argument.
PROTOCOL = ("__hash__", "__eq__", "__lt__", "__index__", "__int__",
            "__float__", "__complex__", "__bool__", "__len__", "__str__",
            "__getitem__", "__next__", "__fspath__", "__round__",
            "__floor__", "__ceil__", "__trunc__", "__abs__")

#: C methods that keep an argument, or look it up, without reading it.
HOLDING = {"append", "insert", "appendleft", "add", "setdefault", "get",
           "__setitem__", "pop", "discard", "send", "throw", "callable",
           "__getitem__", "partial", "repeat", "__contains__"}


def natively(tracer, function, args, kwargs):
    """Run a harmless C function; its callbacks are interpreted."""
    name = getattr(function, "__name__", "")
    if function in ARITHMETIC and tracer.holds_tensor(args):
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
        args = [*args[:owners],
                *(adapt(tracer, a) for a in args[owners:])]
        kwargs = {k: adapt(tracer, a) if k in ("key", "default_factory")
                  else a for k, a in kwargs.items()}
    return tracer.native(function, args, kwargs)


def adapt(tracer, value):
    """An argument as C code may read it."""
    if isinstance(value, (types.FunctionType, types.MethodType,
                          functools.partial, *GETTERS)):
        return Callback(tracer, value)
    if isinstance(value, torch.Tensor) or tracer.python_method(
            value, "__iter__"):
        return tracer.iterate(value)
    if tracer.outside.is_dict(value):
        return tracer.outside.resolve(value)
    kind = type(value)
    if tracer.outside.is_outside(value) or (
            not isinstance(value, IDENTITIES)
            and not trusted(kind.__module__)
            and any(tracer.python_method(value, n) for n in PROTOCOL)):
        raise unsupported("builtin", f"reading a {kind.__name__}")
    return value
