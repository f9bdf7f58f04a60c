"""compile(): what can be compiled, and with which arguments.

In: a function, a module, or anything that can be called. Out: the same,
compiled at its first call. Everything becomes a function first; its
entries do the work. PyTorch's is torch/__init__.py.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

from torch import nn

from .core import log
from .core.module import OptimizedModule
from .entries import CACHES, Settings, wrap


def _call(target, *args, **kwargs):
    """Any callable, called: what is traced for a module or an object."""
    return target(*args, **kwargs)


def compile(model: Callable | None = None, *, fullgraph: bool = False,
            dynamic: bool | None = None, backend: str | Callable = "fused",
            mode: str | None = None, options: dict | None = None,
            disable: bool = False) -> Callable:
    """`model`, compiled at its first call; also a decorator.

    Takes a function, a method, a module or any callable, and the
    arguments of torch.compile:

    fullgraph: a graph break is an `Unsupported` at the call, not a detour
        through Python.
    dynamic: None makes a size a symbol when its second value comes; True
        starts with symbols, False compiles each size.
    backend: "fused" is the whole pipeline, "split" stops before fusion,
        "eager" before the split; or a name of `list_backends()`, or a
        function of a graph and its example inputs.
    mode: "default", or "reduce-overhead" to replay CUDA graphs;
        `list_mode_options()` has all.
    options: a dict of names in `list_options()`, in place of a mode, such
        as `{"activation_memory_budget": 0.5}`.
    disable: return `model` as it is.

    The result has `stats()`. A wrong option, mode or backend raises
    OptionError here, not at the first call.

        step = minicompile.compile(step, mode="reduce-overhead")
        @minicompile.compile(fullgraph=True)
        def loss(x, y): ...
    """
    settings = Settings(fullgraph, dynamic, backend, mode, options)
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic,
            backend=backend, mode=mode, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile() takes a callable, not {model!r}")
    if disable:
        return model
    match model:
        case nn.Module():
            return OptimizedModule(model, functools.partial(
                wrap, _call, settings, type(model).__qualname__))
        case types.MethodType():
            compiled = wrap(model.__func__, settings)
            bound = functools.partial(compiled, model.__self__)
        case types.FunctionType():
            return wrap(model, settings)
        case _:
            name = getattr(model, "__qualname__", type(model).__qualname__)
            compiled = wrap(_call, settings, name)
            bound = functools.partial(compiled, model)
    bound.cache, bound.stats = compiled.cache, compiled.stats
    return bound


def compile_module_(module: nn.Module, **arguments) -> None:
    """Have `module`'s own calls compiled, with the arguments of compile().

    Unlike compile(module), nothing is wrapped: state_dict() keeps its
    keys. PyTorch's is Module.compile in torch/nn/modules/module.py.
    """
    module._compiled_call_impl = compile(module._call_impl, **arguments)


def reset() -> None:
    """Forget every compiled entry and every warning shown."""
    for cache in list(CACHES):
        cache.clear()
    log.forget_warnings()
