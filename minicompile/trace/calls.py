"""Calls: torch operators are recorded, Python is followed, C is judged.

In: a callable of any kind with its arguments. Out: its result. The
tracer looks up its meaning by the callable (`RULES`), then by its kind. C
functions run natively only if they are known to be harmless. PyTorch's
is torch/_dynamo/variables/builtin.py, functions.py and torch.py.
"""

from __future__ import annotations

import functools
import inspect
import types
from dataclasses import dataclass

import torch
from torch import nn

from ..core.errors import Unsupported
from ..core.guard import Attribute, Item
from . import attributes, native
from .constant_types import ABSENT, is_constant, trusted
from .frame import Frame
from .reasons import WAYS, Raised, unsupported
from .rules import apply, registered, rule

#: Libraries whose insides are never followed.
OPAQUE = {"warnings", "importlib", "threading",
          "random", "time", "io", "subprocess", "socket", "pickle",
          "numpy", "torch._dynamo", "torch._inductor", "torch._functorch",
          "torch.utils.checkpoint", "torch.utils.hooks",
          "torch.autograd", "torch.jit", "torch.library",
          "torch._higher_order_ops", "torch.distributed.fsdp"}

#: Modules among them that only say in Python what others do.
FOLLOWED = {"torch.autograd.function", "torch.autograd.grad_mode",
            "torch._functorch.functional_call",
            "torch._higher_order_ops.associative_scan"}

#: The attributes of functions that are compiled, or left alone.
MARKS = {"_torchdynamo_orig_callable", "_torchdynamo_disable"}

DEEPEST = 120

#: nn.Module's own hooks; with none set, a call is its forward.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
         "_backward_pre_hooks")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks",
                "_global_backward_hooks", "_global_backward_pre_hooks")


def call(tracer, function, args=(), kwargs=None):
    """The result of `function(*args, **kwargs)`, for any callable."""
    made = enter(tracer, function, args, kwargs)
    return made.run()[1] if type(made) is Frame else made


def enter(tracer, function, args=(), kwargs=None):
    """The result of a call, or the frame that will return it."""
    args, kwargs = tuple(args), kwargs or {}
    if (rule := registered(function)) is not None:
        return apply(tracer, rule, args, kwargs)
    match function:
        case types.FunctionType():
            return _python(tracer, function, args, kwargs)
        case types.MethodType():
            return enter(tracer, function.__func__,
                         (function.__self__, *args), kwargs)
        case type() if native.is_allowed(function):
            return native.natively(tracer, function, args, kwargs)
        case types.BuiltinFunctionType() | types.MethodWrapperType():
            return native.call_native(tracer, function, args, kwargs)
        case types.MethodDescriptorType() | types.WrapperDescriptorType():
            return native.call_unbound(tracer, function, args, kwargs)
        case torch._ops.OpOverload() | torch._ops.OpOverloadPacket():
            return tracer.recorder.function(function, args, kwargs)
    target = attributes.bound(tracer, function, "__call__")
    if target is ABSENT:
        raise Raised(TypeError(
            f"{type(function).__name__!r} object is not callable"))
    return enter(tracer, target, args, kwargs)


# Python functions


def _python(tracer, function: types.FunctionType, args, kwargs):
    """A Python function: one node if it is torch's operator, else run."""
    if not MARKS.isdisjoint(vars(function)) or (
            function.__globals__.get("__name__") == "torch._compile"):
        return WAYS["marked"](tracer, function, args, kwargs)
    module = function.__module__ or ""
    if module in native.OPERATORS:
        try:
            return tracer.recorder.function(function, args, kwargs)
        except Unsupported as refusal:  # a callable given as argument, say
            if refusal.kind != "argument":
                raise
    if module == "torch._tensor":
        return native.tensor_method(tracer, function.__name__, args, kwargs)
    if module == "torch":  # where it is shown, not where it is written
        module = function.__globals__["__name__"]
    if _is_opaque(module):
        raise unsupported("library",
                          f"{module}.{function.__qualname__}")
    return begin(tracer, function, args, kwargs)


@functools.cache
def _is_opaque(module: str) -> bool:
    """Whether a module's functions are never followed."""
    return module not in FOLLOWED and any(
        module == name or module.startswith(name + ".") for name in OPAQUE)


def begin(tracer, function: types.FunctionType, args, kwargs) -> Frame:
    """The frame of a Python function that is called."""
    if len(tracer.frames) > DEEPEST:
        raise unsupported("recursion", f"{DEEPEST} levels")
    if function.__code__.co_flags & (
            inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise unsupported("code", f"{function.__qualname__}, async,")
    rely_on_code(tracer, function)
    return Frame(tracer, function, bind(tracer, function, args, kwargs))


def rely_on_code(tracer, function: types.FunctionType) -> None:
    """Guard that a user's function keeps its code."""
    if not (tracer.is_made(function) or trusted(function.__module__)):
        tracer.outside.guard(
            Attribute(tracer.outside.found_at(function), "__code__"), "is",
            function.__code__)


def bind(tracer, function: types.FunctionType, args, kwargs) -> dict:
    """The local variables a call starts with; TypeError as Python's."""
    code = function.__code__
    taker = types.FunctionType(taking(code), {}, function.__name__, tuple(
        Default("__defaults__", index)
        for index in range(len(function.__defaults__ or ()))))
    taker.__kwdefaults__ = {name: Default("__kwdefaults__", name)
                            for name in function.__kwdefaults__ or ()}
    try:
        values = taker(*args, **kwargs)
    except TypeError as error:
        raise Raised(error) from None
    return {name: value.of(tracer, function) if type(value) is Default
            else value for name, value in zip(code.co_varnames, values)}


@functools.cache
def taking(code: types.CodeType) -> types.CodeType:
    """Code that takes what `code` takes, and returns it as a tuple.

    The values come in the order of `co_varnames`: positional,
    keyword-only, then the tuple and the dict of those left over.
    """
    stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + stars.bit_count()
    names = "".join(f"a{index}, " for index in range(count))
    plain = eval(f"lambda {names}: ({names})").__code__
    return plain.replace(
        co_argcount=code.co_argcount, co_flags=plain.co_flags | stars,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=code.co_varnames[:count],
        co_name=code.co_name, co_qualname=code.co_qualname)


@dataclass(frozen=True)
class Default:
    """The placeholder of an argument that was not given."""

    place: str
    key: int | str

    def of(self, tracer, function: types.FunctionType):
        """The default, guarded unless it cannot have changed."""
        defaults = getattr(function, self.place)
        value, library = defaults[self.key], trusted(function.__module__)
        if tracer.is_made(function) or library and is_constant(value):
            return value
        source = Attribute(tracer.outside.found_at(function), self.place)
        if self.place == "__defaults__":
            tracer.outside.guard(source, "length", len(defaults))
        return tracer.outside.admit(value, Item(source, self.key), library)


# Modules


@rule(nn.Module.__call__)
def _module(tracer, module: nn.Module, /, *args, **kwargs):
    """A module's call: its forward, if no hook is set; guarded."""
    outside, own, every = tracer.outside, vars(module), vars(
        nn.modules.module)
    for name in GLOBAL_HOOKS:
        outside.guard(outside.constant(every[name], name), "length",
                      len(every[name]))
    for name in HOOKS if outside.is_outside(module) else ():
        outside.guard(Attribute(outside.source(module), name), "length",
                      len(own[name]))
    if any(own[name] for name in HOOKS) or any(
            every[name] for name in GLOBAL_HOOKS):
        return begin(tracer, nn.Module.__call__, (module, *args), kwargs)
    forward = attributes.load_attr(tracer, module, "forward")
    return enter(tracer, forward, args, kwargs)
