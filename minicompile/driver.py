"""compile(): what can be compiled, and with which arguments.

In: a function, a module, or anything that can be called. Out: the same,
compiled at its first call. Everything becomes a function first; its
entries do the work. PyTorch's are torch/__init__.py, and OptimizedModule
in torch/_dynamo/eval_frame.py.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import asdict

from torch import nn

from .core import log
from .dispatch import CACHES, Cache, Stats, wrap
from .pipeline import Settings


class OptimizedModule(nn.Module):
    """A module whose calls are compiled; all else is `_orig_mod`'s.

    The wrapper has hooks, and all that nn.Module keeps, of its own.
    Copies and pickles hold no compiled code: they are compiled again.
    """

    def __init__(self, module: nn.Module, settings: Settings):
        super().__init__()
        del self.__dict__["training"]
        self._modules["_orig_mod"] = module
        self._compile(settings)

    def _compile(self, settings: Settings) -> None:
        """Make `forward`, under the signature of the user's."""
        modules = self._modules
        compiled = wrap(_call, settings, type(self._orig_mod).__qualname__)

        @functools.wraps(self._orig_mod.forward, updated=())
        def forward(*args, **kwargs):
            return compiled(modules["_orig_mod"], *args, **kwargs)

        self.__dict__.update(_compile_settings=settings,
                             _compiled=compiled, forward=forward)

    def stats(self) -> Stats:
        """Counts of what has happened to this module's calls."""
        return self._compiled.stats()

    @property
    def cache(self) -> Cache:
        """The compiled entries."""
        return self._compiled.cache

    def __getattr__(self, name: str):
        held = self.__dict__["_modules"]["_orig_mod"]
        return held if name == "_orig_mod" else getattr(held, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_orig_mod", "__class__", "__dict__", *self.__dict__):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    @property
    def dynamo_ctx(self) -> Callable[[Callable], Callable]:
        """A function that compiles another as this module is compiled.

        Lightning compiles the steps of a module by it.
        """
        return functools.partial(compile, **asdict(self._compile_settings))

    def _shown_class(self) -> type:
        """For isinstance(), torch.compile's class if that is loaded:
        libraries ask for it before they unwrap a model."""
        theirs = sys.modules.get("torch._dynamo.eval_frame")
        return getattr(theirs, "OptimizedModule", type(self))

    def _derive(self, kind: type) -> None:
        """A class that fully_shard() derived, but from the real one."""
        bases = (type(self) if base is self.__class__ else base
                 for base in kind.__bases__)
        names = {name: value for name, value in vars(kind).items()
                 if name not in ("__dict__", "__weakref__")}
        object.__dict__["__class__"].__set__(
            self, type(kind.__name__, (*bases,), names))

    __class__ = property(_shown_class, _derive)

    def __reduce__(self) -> tuple:
        return object.__new__, (type(self),), self.__getstate__()

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items()
                if name not in ("_compiled", "_compiled_call_impl",
                                "forward")}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._compile(self._compile_settings)


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
        suppress_errors=True, to run as eager where a backend fails;
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
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend,
            mode=mode, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile() takes a callable, not {model!r}")
    if disable:
        return model
    if isinstance(model, nn.Module):
        return OptimizedModule(model, settings)
    if isinstance(model, types.FunctionType):
        return wrap(model, settings)
    function, owner = (model.__func__, model.__self__) if isinstance(
        model, types.MethodType) else (_call, model)
    compiled = wrap(function, settings, getattr(
        model, "__qualname__", type(model).__qualname__))
    bound = functools.partial(compiled, owner)
    bound.cache, bound.stats = compiled.cache, compiled.stats
    return bound


def compile_module_(module: nn.Module, *,
                    regions: bool | Iterable[nn.Module] = False,
                    **arguments: object) -> None:
    """Have `module`'s own calls compiled, with the arguments of compile().

    Unlike compile(module), nothing is wrapped: state_dict() keeps its
    keys. PyTorch's is Module.compile in torch/nn/modules/module.py.

    regions: compile these modules inside it, each by itself, and nothing
        else. Those that are alike share their graphs, so that the first
        call of a deep model is as short as that of a shallow one. True
        takes those of each ModuleList or Sequential that holds one class
        of modules; if there is none, the whole is compiled.
    """
    chosen = repeated(module) if regions is True else regions
    for each in chosen or [module]:
        each._compiled_call_impl = compile(each._call_impl, **arguments)


def repeated(module: nn.Module) -> list[nn.Module]:
    """The modules in lists of one class each, none inside another."""
    parts = [*module.children()]
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(
            parts) > 1 and len({*map(type, parts)}) == 1:
        return parts
    return [found for part in parts for found in repeated(part)]


def reset() -> None:
    """Forget every compiled entry and every warning shown."""
    for cache in list(CACHES):
        cache.clear()
    log.forget_warnings()
