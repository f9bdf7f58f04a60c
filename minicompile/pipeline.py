"""From a traced graph to something that runs: split, fuse, emit, replay.

In: an FX graph in PyTorch's own operators, and example inputs. Out: a
callable on lists of tensors, with what each stage made of the graph.
This is everything after the trace, and so a backend in PyTorch's sense;
theirs is torch/_inductor/compile_fx.py.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import fx

from . import budget, emit, fusion, replay, split
from .core import log
from .core.errors import (BackendError, CompileError, MinicompileError,
                          brief, one_of, where_of)
from .core.graph import Boxed, bare, holds_graphs
from .core.options import Options, make_options
from .core.schedule import Schedule, Step


@dataclass(frozen=True)
class CompiledGraph:
    """A compiled graph, with the result of each stage of the pipeline.

    `call` runs it on a list of tensors. Schedules and programs are named
    "forward" and "backward"; a backend may leave some out.
    """

    call: Boxed
    joint: split.Joint | None = None
    pair: split.Pair | None = None
    schedules: dict[str, Schedule] = field(default_factory=dict)
    programs: dict[str, emit.Program] = field(default_factory=dict)
    graphed: replay.GraphedFunction | None = None  # reduce-overhead
    fallback: str = ""  # why a shallower backend was taken, if one was
    notes: Counter[str] = field(default_factory=Counter)  # calls not run so


def lower_ours(graph: fx.GraphModule, inputs: Sequence, depth: str,
               options: Options) -> CompiledGraph:
    """The graph brought down to a depth of OURS.

    "eager" runs it as it was traced, "split" its halves operator by
    operator, "fused" their programs. A graph that the split refuses runs
    as it was traced, with a warning.
    """
    if depth == "eager":
        return CompiledGraph(_boxed(graph))
    fuse = depth == "fused"
    try:
        log.begin("split")
        joint = split.record(graph, inputs,
                             fuse and not options.fallback_random)
        log.show("joint_graph", joint)
        pair = split.partition(joint, saved_within(joint, options))
        runs = {name: _boxed(half) for name, half in pair.halves().items()}
        made = CompiledGraph(_boxed(graph), joint, pair)
        if fuse:
            made = fused(made, options)
            runs |= {name: each.run for name, each in made.programs.items()}
        if made.programs and options.cudagraphs:
            graphed = replay.graphed(
                runs, made.schedules, options.replay_check,
                visible=joint.forward_outputs, programs=made.programs,
                static=[k for k, given in enumerate(inputs)
                        if isinstance(given, torch.nn.Parameter)],
                written=joint.mutated)
            runs = {name: getattr(graphed, name) for name in runs}
            made = replace(made, graphed=graphed)
        return replace(made, call=split.make_runtime(
            joint, pair, **runs, notes=made.notes))
    except BackendError as refusal:
        return as_traced(graph, refusal)
    finally:
        log.begin("")


def saved_within(joint: split.Joint, options: Options) -> frozenset[str]:
    """The names of the values to save within the budget."""
    return budget.choose(
        joint, options.activation_memory_budget, cut=split.cut,
        bound=options.memory, fused=partial(fused_halves, joint))


def fused_halves(joint: split.Joint, saved: frozenset[str]
                 ) -> dict[str, Schedule]:
    """The schedules of both halves if these values are saved."""
    pair = split.partition(joint, saved)
    return {name: fusion.fuse(half, pair.donated) for name, half
            in pair.halves().items()}


split.CHOOSE.append(saved_within)


def as_traced(graph: fx.GraphModule, error: BackendError) -> CompiledGraph:
    """The traced graph itself, since a stage failed, with a warning."""
    where = next(filter(None, map(where_of, graph.graph.nodes)), None)
    place = f" of {where.function} at {where}" if where else ""
    log.warn_once(f"minicompile runs the graph{place} as traced: "
                  f"{brief(error)}")
    return CompiledGraph(_boxed(graph), fallback=brief(error))


def fused(lowered: CompiledGraph, options: Options) -> CompiledGraph:
    """The halves as compiled programs, with what fusion made of them.

    If a kernel does not compile, there are none, with a warning.
    """
    schedules, programs = {}, {}
    try:
        for name, half in lowered.pair.halves().items():
            schedules[name], programs[name] = program_of(
                half, options, lowered.pair.donated)
        for program in programs.values():
            program.ready()
    except CompileError as failed:
        log.warn_once(f"minicompile does not fuse: {failed}")
        return replace(lowered, fallback=str(failed))
    return replace(lowered, schedules=schedules, programs=programs)


def program_of(graph: fx.GraphModule, options: Options,
               dying: Collection[str] = ()
               ) -> tuple[Schedule, emit.Program]:
    """The graph as kernels, and as a program; the graphs that an operator
    runs are programs, too."""
    def compiled(step: Step) -> Step:
        if not holds_graphs(getattr(step, "target", None)):
            return step
        return replace(step, target=step.target.compiled(
            lambda branch: program_of(branch, options)[1].ready().run))

    log.begin("fusion")
    schedule = fusion.fuse(graph, dying)
    schedule = replace(schedule, steps=tuple(map(compiled, schedule.steps)))
    log.show("fusion", schedule)
    log.begin("emit")
    program = emit.emit(schedule, options)
    log.show("output_code", program.source)
    return schedule, program


#: Our names for compile(backend=...), and how far each goes down.
OURS = {"eager": "eager", "split": "split", "fused": "fused",
        "minicompile": "fused"}

#: The backends that users have registered.
BACKENDS: dict[str, Callable] = {}

#: Each is told of every graph that was compiled.
COMPILED: list[Callable[[fx.GraphModule, CompiledGraph, Options],
                        None]] = []


def register_backend(name: str, function: Callable | None = None
                     ) -> Callable:
    """Let compile(backend=name) hand its graphs to `function`.

    `function(graph_module, example_inputs)` returns a callable on the
    same inputs, as a backend of torch.compile does. Without `function`
    it is a decorator.
    """
    if function is None:
        return partial(register_backend, name)
    BACKENDS[name] = function
    return function


def list_backends(exclude_tags: Sequence[str] = ()) -> list[str]:
    """The names compile(backend=...) takes: ours, then PyTorch's.

    PyTorch tags its own with "debug" or "experimental".
    """
    theirs = torch.compiler.list_backends(exclude_tags=tuple(exclude_tags))
    return [*dict.fromkeys([*OURS, *BACKENDS, *theirs])]


@dataclass(frozen=True)
class Settings:
    """The arguments of compile(); a wrong name is an OptionError."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable = "fused"
    mode: str | None = None
    options: dict | None = None

    def __post_init__(self):
        if not callable(self.backend) and (
                self.backend not in (*OURS, *BACKENDS)):
            one_of("backend", self.backend, list_backends())
        _ = self.chosen  # a wrong option is an error now

    @cached_property
    def chosen(self) -> Options:
        """The options; those of a backend that is not ours are its own."""
        if self.backend in (*OURS, *BACKENDS):
            return make_options(self.mode, self.options)
        return Options()


def compile_graph(graph: fx.GraphModule, inputs: Sequence,
                  backend: str | Callable, mode: str | None = None,
                  options: dict | None = None) -> CompiledGraph:
    """The graph made runnable by a backend: ours, PyTorch's, or yours.

    An exception that no stage of ours expects is a BackendError.
    """
    call = backend if callable(backend) else BACKENDS.get(backend)
    if call is not None:
        return CompiledGraph(_boxed(call(graph, list(inputs))))
    if backend not in OURS:
        return CompiledGraph(_boxed(torch.compile(
            graph, backend=backend, mode=mode, options=options)))
    chosen = make_options(mode, options)
    try:
        made = lower_ours(graph, inputs, OURS[backend], chosen)
    except MinicompileError:
        raise
    except Exception as error:
        log.show("perf_hints", traceback.format_exc())
        raise BackendError(brief(error)) from error
    for tell in COMPILED:
        tell(graph, made, chosen)
    return made


def _boxed(function: Callable) -> Boxed:
    """A function of tensors, or a graph, as a boxed call."""
    if isinstance(function, fx.GraphModule):
        function = bare(function)
    return lambda given: tuple(function(*given))


def backend(graph: fx.GraphModule, example_inputs: Sequence, *,
            mode: str | None = None, options: dict | None = None
            ) -> Callable[..., tuple]:
    """Everything after the trace, as a backend of torch.compile.

    `torch.compile(f, backend="minicompile")` comes here. Takes and
    returns what any backend does: a graph with its example inputs, and a
    callable on such inputs that returns a tuple.
    """
    try:
        run = compile_graph(graph, example_inputs, "fused", mode,
                            options).call
    except BackendError as fault:
        run = as_traced(graph, fault).call
    return lambda *given: run(list(given))
