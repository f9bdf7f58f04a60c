"""compile(): what can be compiled, and with which arguments.

In: a function, a module, or anything that can be called. Out: the same,
compiled at its first call. Everything becomes a function first; its
entries do the work. PyTorch's are torch/__init__.py, and OptimizedModule
in torch/_dynamo/eval_frame.py.
"""

import functools
import types
from collections.abc import Callable

from torch import nn

from . import CACHES, wrap
from ..core import log
from ..pipeline import Settings
from ..trace.tracer import is_marked


def _call(target, /, *args, **kwargs):
    """Any callable, called: what is traced for a module or an object."""
    return target(*args, **kwargs)


class CompiledModule(nn.Module):
    """A module whose calls are compiled; all else is `_orig_mod`'s.

    The wrapper has hooks, and all that nn.Module keeps, of its own. Its
    `forward` has the signature of the user's. Copies and pickles hold no
    compiled code: they are compiled again.
    """

    def __init__(self, module: nn.Module, settings: Settings):
        super().__init__()
        del self.__dict__["training"]
        (modules := self._modules)["_orig_mod"] = module
        compiled = wrap(_call, settings, type(module).__qualname__)

        @functools.wraps(module.forward, updated=())
        def forward(*args, **kwargs):
            return compiled(modules["_orig_mod"], *args, **kwargs)

        self.__dict__.update(_compiled=compiled, forward=forward,
                             _compile_settings=settings)

    def __reduce__(self) -> tuple:
        return type(self), (self._orig_mod, self._compile_settings), {
            name: value for name, value in self.__dict__.items()
            if name not in ("_compiled", "_compiled_call_impl", "_modules",
                            "forward")}

    def __getattr__(self, name: str):
        """A name of the module's; then of its compiled calls'."""
        held = self.__dict__["_modules"]["_orig_mod"]
        if name == "_orig_mod":
            return held
        ours = name in ("cache", "stats") and not hasattr(held, name)
        return getattr(self._compiled if ours else held, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_orig_mod", "__class__", "__dict__", *self.__dict__):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)


def as_method(model: Callable, settings: Settings) -> types.MethodType:
    """A method or an object: a method of what it is bound to."""
    function, owner = (model.__func__, model.__self__) if isinstance(
        model, types.MethodType) and not is_marked(model.__func__) else (
            _call, model)
    return types.MethodType(wrap(function, settings, getattr(
        model, "__qualname__", type(model).__qualname__)), owner)


#: How callables of a class are compiled; the last row that fits decides.
CALLABLES: dict[type, Callable[[Callable, Settings], Callable]] = {
    object: as_method, types.FunctionType: wrap, nn.Module: CompiledModule}


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
    mode: "default"; "reduce-overhead" and "max-autotune" replay CUDA
        graphs, and "max-autotune-no-cudagraphs" is as the default.
    options: a dict, in place of a mode, of
        activation_memory_budget=0.5, to save this share of the bytes;
        memory="12GiB", to bound the peak;
        cudagraphs=True, to replay CUDA graphs;
        cpu_backend="triton", for Triton's interpreter on a CPU;
        fallback_random=True, for eager's random numbers;
        numerics="fast", for kernels on a GPU that do not round as eager;
        recompile_limit=8 and accumulated_recompile_limit=256, the graphs
        of a function, and those that died included;
        suppress_errors=False, for a BackendError where a stage fails,
        in place of a warning and a graph that runs as traced;
        replay_check=True, to compare each replay with its program;
        trace_enabled=True, to write what each stage made to a folder.
    disable: return `model` as it is.

    The result has `stats()`. A wrong option, mode or backend raises
    OptionError here, not at the first call.

        step = minicompile.compile(step, mode="reduce-overhead")
        @minicompile.compile(fullgraph=True)
        def loss(x, y): ...
    """
    settings = Settings(fullgraph, dynamic, backend, mode, options)

    def compiled(model: Callable) -> Callable:
        if not callable(model):
            raise TypeError(f"compile() takes a callable, not {model!r}")
        if disable:
            return model
        *_, make = (make for kind, make in CALLABLES.items()
                    if isinstance(model, kind))
        return make(model, settings)

    return compiled if model is None else compiled(model)


def reset() -> None:
    """Forget every compiled entry and every warning shown."""
    for cache in list(CACHES):
        cache.clear()
    log.warn_once.cache_clear()
