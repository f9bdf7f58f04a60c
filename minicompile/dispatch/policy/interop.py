"""The rest of torch.compile: wrappers, modules in place, backends.

In: a module, or the name of a backend that is not ours. Out: a wrapper
that libraries take for torch.compile's, the module itself with compiled
calls, or a function of a graph and its example inputs; and ours as such a
function. Without this file libraries do not know a wrapper, what
`torch.vmap` gives is not entered, and compile() takes our own names and
functions.
PyTorch's are OptimizedModule in torch/_dynamo/eval_frame.py, Module.compile
in torch/nn/modules/module.py and torch/_dynamo/backends/registry.py.
"""

import functools
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

import torch
from torch import fx, nn

from ...core.errors import BackendError, OptionError, one_of
from ...core.graph import placeholders
from ...pipeline import (BACKENDS, OTHERS, OURS, Settings, as_traced,
                         compile_graph)
from ...trace.rules import registered
from ...trace.tracer import is_marked
from .. import driver, wrap
from ..driver import CALLABLES, as_method, compile

# Modules


class OptimizedModule(driver.CompiledModule):
    """A wrapper that libraries take for torch.compile's, by its name too.

    The hooks of all modules are left to the user's module.
    """

    _call_impl = types.FunctionType(nn.Module._call_impl.__code__, {
        name: {} if name.startswith("_global_") else value
        for name, value in vars(nn.modules.module).items()})

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, place: object) -> object:
        return self._orig_mod[place]  # iter(), too

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

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


def of_function(model: types.FunctionType, settings: Settings) -> Callable:
    """A function. If it has a rule, as what `torch.vmap` gives, or is
    compiled already, then a call of it is what is traced."""
    if not (registered(model) or is_marked(model)):
        return wrap(model, settings)

    @functools.wraps(model)
    def call(*args, **kwargs):
        return model(*args, **kwargs)
    return wrap(call, settings)


def of_class(model: type, settings: Settings) -> Callable:
    """A class whose objects are compiled; or what makes them, if they
    cannot be called."""
    if not isinstance(model.__call__, types.FunctionType):
        return as_method(model, settings)
    model.__call__ = wrap(model.__call__, settings, model.__qualname__)
    return model


CALLABLES |= {nn.Module: OptimizedModule, types.FunctionType: of_function,
              type: of_class}


def compile_module_(module: nn.Module, *,
                    regions: bool | Iterable[nn.Module] = False,
                    **arguments: object) -> None:
    """Have `module`'s own calls compiled, with the arguments of compile().

    Unlike compile(module), nothing is wrapped: state_dict() keeps its
    keys.

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

# Backends


def register_backend(name: str | Callable,
                     function: Callable | None = None) -> Callable:
    """Let compile(backend=name) hand its graphs to `function`.

    `function(graph_module, example_inputs)` returns a callable on the
    same inputs, as a backend of torch.compile does. Without `function`
    it is a decorator; a bare one takes the function's own name.
    """
    if callable(name):
        name, function = name.__name__, name
    if function is None:
        return functools.partial(register_backend, name)
    if name in OURS or not callable(function):
        raise OptionError("register_backend() takes a name that is not in "
                          f"{[*OURS]} and a function, not {name!r} and "
                          f"{function!r}")
    BACKENDS[name] = function
    return function


def list_backends(exclude_tags: Sequence[str] | None = ()) -> list[str]:
    """The names compile(backend=...) takes: ours, then PyTorch's.

    PyTorch tags its own with "debug" or "experimental".
    """
    theirs = torch.compiler.list_backends(exclude_tags=exclude_tags)
    return [*dict.fromkeys([*OURS, *BACKENDS, *theirs])]


def of_torch(name: str) -> Callable:
    """A backend that hands each graph to one of torch.compile's."""
    one_of("backend", name, list_backends())
    return lambda graph, inputs, **given: torch.compile(
        graph, backend=name, **given)


OTHERS.append(of_torch)


def backend(graph: fx.GraphModule, example_inputs: Sequence, *,
            mode: str | None = None, options: dict | None = None
            ) -> Callable[..., tuple]:
    """Everything after the trace, as a backend of torch.compile.

    `torch.compile(f, backend="minicompile")` comes here. Takes and
    returns what any backend does: a graph with its example inputs, and a
    callable on such inputs that returns a tuple.
    """
    symbolic = (node.meta.get("example_value")  # Dynamo's
                for node in placeholders(graph.graph))
    inputs = [held if getattr(held, "_has_symbolic_sizes_strides", False)
              else each for held, each in zip(symbolic, example_inputs)]
    asked = Settings(mode=mode, options=options)
    try:
        run = compile_graph(graph, inputs, asked).call
    except BackendError as fault:
        run = as_traced(graph, fault, asked.chosen).call
    return lambda *given: run(list(given))
