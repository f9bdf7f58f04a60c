"""Stage 1, trace: a Python function and its arguments become a graph.

In: a function and the real values of its local variables. Out: a `Trace`
with the FX graph over fake tensors, the guards under which it holds, the
sources of its inputs and the recipe for the Python result. If tracing
fails, `Unsupported` is raised before anything outside was touched.
PyTorch's is torch/_dynamo/convert_frame.py.
"""

import types
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, fx, inference_mode
from torch._C import _set_grad_enabled
from torch.compiler import is_compiling

from ..core import load
from ..core.errors import Unsupported
from ..core.graph import render
from ..core.guard import Guard, Local, Source
from ..core.state import kept
from .frame import RETURN, Frame
from .reasons import WAYS, Raised, Stopped, internal, unsupported
from .reconstruct import Rebuild
from .recorder import ConstantSizes, History, storage
from .tracer import Tracer, rely_on_code

__all__ = ["CONTINUATIONS", "History", "Trace", "is_compiling", "trace",
           "traced_by"]

#: Functions of frames' values that are the rest of a call, compiled, too.
CONTINUATIONS: set[types.FunctionType] = set()


@dataclass(frozen=True)
class Trace:
    """The result of tracing a call. `finish` is source text; see Rebuild.

    `constants` holds the objects that sources and `finish` name.
    """

    graph: fx.GraphModule
    example_inputs: tuple[torch.Tensor, ...]
    sources: tuple[Source, ...]
    guards: tuple[Guard, ...]
    finish: str
    constants: dict[str, object]
    sizes: ConstantSizes | None = None  # and what is learnt of them
    breaks: tuple[Unsupported, ...] = ()
    writes: bool = True  # whether the graph may write to its inputs

    def __str__(self) -> str:
        return f"{render(self.graph)}\n\n{self.finish}"


def trace(function: types.FunctionType, locals: tuple, *,
          breaks: bool = False, history: History | None = None) -> Trace:
    """Trace one call of `function`, with the arguments in `locals`.

    `locals` holds the values of `co_varnames` up to the last parameter,
    `*args` as a tuple and `**kwargs` as a dict. With `breaks`, a trace
    that cannot go on is cut there. `history` says which sizes are
    symbols; without one, none is. Raises Unsupported, placed at the
    user's line, if the call cannot become one graph, or begin with one.
    """
    if not isinstance(function, types.FunctionType):
        raise unsupported("code", repr(function))
    return WAYS["attempts"](
        function, locals, breaks, history or History())


#: Without a row of the reference, a trace is tried once, and never cut.
WAYS |= {"attempts": lambda function, locals, _, history: traced_by(
    Tracer(function, history), locals), "stops": lambda *_: []}


def traced_by(tracer: Tracer, locals: tuple) -> Trace:
    """The trace, up to where the tracer is to stop."""
    with kept(), ExitStack() as stack:
        if tracer.inference:  # it hides what is written
            stack.enter_context(inference_mode(False))
            _set_grad_enabled(False)
        stack.enter_context(tracer.recorder.fake_mode)
        try:
            return _traced(tracer, *_run(tracer, locals))
        except Exception as error:
            raise _refusal(tracer, error) from getattr(
                error, "exception", None)
        finally:
            tracer.left = []


# CPython keeps frames in chunks of 16 KB, and maps one each time that a
# call crosses the end of the last: a quarter of the time of a trace. A
# frame this large gets a chunk with as much room again for its callees.
traced_by.__code__ = traced_by.__code__.replace(co_stacksize=1 << 15)


def _refusal(tracer: Tracer, error: Exception) -> Unsupported:
    """Why the trace could not go on, at the user's line; and its stops."""
    place = getattr(error, "place", None)
    if isinstance(error, Raised):
        kind = type(error.exception).__name__
        error = unsupported("exception", f"{kind}: {error.exception}")
    elif isinstance(error, RecursionError):
        error = unsupported("recursion", "Python allows")
    elif not isinstance(error, Unsupported):
        error = internal(error)
    refusal = error.at(place) if place else error
    refusal.stops = WAYS["stops"](tracer, error)
    return refusal


def _run(tracer: Tracer, locals: tuple) -> tuple:
    """Run the code on stand-ins of its arguments, up to `finish`."""
    rely_on_code(tracer, tracer.function)
    names = {name: WAYS["grown"](tracer.outside, value, Local(name, at))
             for at, (name, value) in enumerate(zip(
                 tracer.function.__code__.co_varnames, locals))}
    try:
        how, result = Frame(tracer, tracer.function, names).run()
    except Stopped as stopped:
        return WAYS["breaking"](tracer, *stopped.args)
    assert how is RETURN
    rebuild = Rebuild(tracer)
    returned = rebuild.value(result)
    return rebuild, rebuild.function(
        tracer.outside.statements(rebuild), f"return {returned}")


def _traced(tracer: Tracer, rebuild, finish: str, breaks=()) -> Trace:
    """The graph and all that belongs to it, with what comes after it."""
    recorder, outside = tracer.recorder, tracer.outside
    for check in tracer.checks:
        check(rebuild)
    recorder.graph.output(tuple(map(recorder.node, rebuild.outputs)))
    groups: dict[int, list[Source]] = {}
    placed, recorder.placed = recorder.placed, []
    for node, source in placed:
        if isinstance(fake := node.meta["val"], Tensor):
            if not node.users:  # the graph does not read it
                recorder.graph.erase_node(node)
                continue
            groups.setdefault(storage(fake), []).append(source)
            if fake.requires_grad and not outside.real(fake).requires_grad:
                node.meta["val"] = fake.detach()  # a write changed it
        recorder.placed.append((node, source))
    if written := recorder.written.keys() & groups:
        _keep_apart(outside, groups, written)
    graph = fx.GraphModule(recorder.modules, recorder.graph)
    return Trace(graph, tuple(n.meta["val"] for n, _ in recorder.placed),
                 tuple(source for _, source in recorder.placed),
                 tuple(outside.guards.values()), finish,
                 outside.identifiers.values,
                 recorder.sizes, breaks, bool(written))


def _keep_apart(outside, groups: dict, written: set[int]) -> None:
    """Guard that no tensor that is written to shares its memory."""
    for first, *others in map(groups.__getitem__, written):
        if others:
            raise unsupported("aliasing", f"{first} and {others[0]}")
    alone = [each[0] for each in groups.values() if len(each) == 1]
    shared = [(at,) for each in groups.values() for at in each[1:] and each]
    for more in shared or [()]:
        outside.relate("disjoint_memory({})", *alone, *more)


load(__name__, __path__)
