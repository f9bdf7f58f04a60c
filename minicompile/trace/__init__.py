"""Stage 1, trace: a Python function and its arguments become a graph.

In: a function and the real values of its local variables. Out: a `Trace`
with the FX graph over fake tensors, the guards under which it holds, the
sources of its inputs and the recipe for the Python result; or
`Unsupported`, before anything outside was touched. PyTorch's is
torch/_dynamo/convert_frame.py.
"""

from __future__ import annotations

import types
from dataclasses import dataclass

import torch
from torch import fx

from ..core.errors import Unsupported
from ..core.graph import render
from ..core.guard import Guard
from ..core.source import Local, Source
from .control import RETURN
from .frame import Frame
from .reasons import Raised, unsupported
from .rebuild import Rebuild
from .switches import current_state, kept
from .tracer import Tracer

__all__ = ["Trace", "trace"]


@dataclass(frozen=True)
class Trace:
    """What one call became. `finish` is source text; see Rebuild.

    `constants` holds the objects that sources and `finish` name.
    """

    graph: fx.GraphModule
    example_inputs: tuple[torch.Tensor, ...]
    sources: tuple[Source, ...]
    guards: tuple[Guard, ...]
    finish: str
    constants: dict[str, object]

    def __str__(self) -> str:
        return f"{render(self.graph)}\n\n{self.finish}"


def trace(function: types.FunctionType, locals: tuple, *,
          fake_mode=None) -> Trace:
    """Trace one call of `function`, its arguments being `locals`.

    `locals` holds the values of `co_varnames` up to the last parameter,
    `*args` as a tuple and `**kwargs` as a dict. Raises Unsupported,
    placed at the user's line, if the call cannot become one graph.
    """
    if not isinstance(function, types.FunctionType):
        raise unsupported("code", repr(function))
    tracer = Tracer(function, fake_mode)
    with kept(), tracer.recorder.fake_mode:
        try:
            result = _run(tracer, locals)
            return _finished(tracer, result)
        except Unsupported as error:
            place = getattr(error, "place", None)
            raise (error.at(place) if place else error) from None
        except Raised as raised:
            error = raised.exception
            what = f"{type(error).__name__}: {error}"
            raise unsupported("exception", what).at(raised.place) from error
        except RecursionError as error:
            raise unsupported("recursion", "Python allows").at(
                error.place) from None


def _run(tracer: Tracer, locals: tuple):
    """Run the function on stand-ins of its arguments: what it returns."""
    if torch._C._len_torch_function_stack():
        raise unsupported("mode", "a torch function mode")
    tracer.outside.guard(None, "state", current_state())
    code = tracer.function.__code__
    names = {name: tracer.outside.admit(value, Local(name, position))
             for position, (name, value) in enumerate(
                 zip(code.co_varnames, locals))}
    how, result = Frame(tracer, tracer.function, names).run()
    assert how is RETURN
    return result


def _finished(tracer: Tracer, result) -> Trace:
    """The trace of a call that has come to its end."""
    recorder, outside = tracer.recorder, tracer.outside
    rebuild = Rebuild(tracer)
    finish = rebuild.text(result)
    recorder.graph.output(tuple(map(recorder.node, rebuild.outputs)))
    _keep_apart(tracer)
    graph = fx.GraphModule(torch.nn.Module(), recorder.graph)
    return Trace(graph, tuple(i.fake for i in recorder.inputs),
                 tuple(i.source for i in recorder.inputs),
                 tuple(outside.guards.values()), finish, outside.constants)


def _keep_apart(tracer: Tracer) -> None:
    """Guard that what is written to is not something else, too."""
    recorder, outside = tracer.recorder, tracer.outside
    for owner in outside.written():
        for source in outside.alike(owner):
            outside.guard(outside.source(owner), "different", source)
    written = recorder.written_inputs()
    for one in written:
        for other in recorder.inputs:
            if one is not other and one.storage == other.storage:
                raise unsupported("aliasing",
                                  f"{one.source} and {other.source}")
    if written and len(recorder.inputs) > 1:
        outside.guard(None, "apart", tuple(
            i.source for i in recorder.inputs))
