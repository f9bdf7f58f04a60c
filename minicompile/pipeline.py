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
from functools import partial

import torch
from torch import fx

from . import budget, emit, fusion, replay, split
from .core import log
from .core.branches import Branches
from .core.errors import (BackendError, CompileError,
                          MinicompileError, StageFailed, brief,
                          where_of)
from .core.graph import bare
from .core.options import Options, make_options
from .core.schedule import Schedule

Boxed = Callable[[list], tuple]


@dataclass(frozen=True)
class Lowered:
    """A graph brought down the pipeline, with what each stage made of it.

    `call` runs it on a list of tensors. Schedules and programs are named
    "forward" and "backward"; what a backend does not make is absent.
    """

    call: Boxed
    joint: split.Joint | None = None
    pair: split.Pair | None = None
    schedules: dict[str, Schedule] = field(default_factory=dict)
    programs: dict[str, emit.Program] = field(default_factory=dict)
    graphed: replay.GraphedFunction | None = None  # reduce-overhead
    fallback: str = ""  # why a shallower backend was taken, if one was
    notes: Counter[str] = field(default_factory=Counter)  # calls not run so


def lower_eager(graph: fx.GraphModule, inputs: Sequence,
                options: Options) -> Lowered:
    """The traced graph itself, operator by operator."""
    return Lowered(_boxed(graph))


def lower_split(graph: fx.GraphModule, inputs: Sequence,
                options: Options, fuse: bool = False) -> Lowered:
    """Forward and backward graphs, run operator by operator or fused.

    What the split cannot express runs as it was traced, and says so.
    """
    try:
        joint = split.record(graph, inputs,
                             fuse and not options.fallback_random)
        if options.double_backward:
            split.require_twice(joint)
        log.show("joint_graph", str(joint))
        pair = split.partition(joint, saved_names(joint, options))
    except BackendError as refusal:
        return as_traced(graph, refusal)
    runs = {name: _boxed(half) for name, half in pair.halves().items()}
    made = Lowered(_boxed(graph), joint, pair)
    if fuse:
        made = fused(made, options)
        runs |= {name: each.run for name, each in made.programs.items()}
    if made.programs and options.cudagraphs:
        graphed = replay.graphed(
            runs, made.schedules, visible=joint.returned,
            static=[k for k, given in enumerate(inputs)
                    if isinstance(given, torch.nn.Parameter)],
            written=[each.input for each in joint.mutations])
        runs = {name: getattr(graphed, name) for name in runs}
        made = replace(made, graphed=graphed)
    try:
        return replace(made, call=split.make_runtime(
            joint, pair, **runs, notes=made.notes,
            twice=options.double_backward))
    except BackendError as refusal:  # sizes that the inputs do not decide
        return as_traced(graph, refusal)


def saved_names(joint: split.Joint, options: Options) -> frozenset[str]:
    """The values to save, as the budget or the bound on the peak says."""
    if options.peak_bound is None:
        return budget.choose(joint, options.activation_memory_budget,
                             cut=split.cut)
    return budget.bound_peak(joint, options.peak_bound, cut=split.cut,
                             peak_of=simulated_peak(joint))


def simulated_peak(joint: split.Joint) -> Callable[[frozenset[str]], int]:
    """What gives the peak of both halves by the values that are saved."""
    def peak_of(saved: frozenset[str]) -> int:
        pair = split.partition(joint, saved)
        return budget.peak({name: fusion.fuse(half, pair.donated) for name,
                            half in pair.halves().items()}, pair.donated)
    return peak_of


def as_traced(graph: fx.GraphModule, error: BackendError) -> Lowered:
    """The traced graph itself, since a stage failed, with a warning."""
    where = next(filter(None, map(where_of, graph.graph.nodes)), None)
    place = f" of {where.function} at {where}" if where else ""
    log.warn_once(f"minicompile runs the graph{place} as traced: "
                  f"{brief(error)}")
    return Lowered(_boxed(graph), fallback=brief(error))


def expected(lowering: Callable[..., Lowered]) -> Callable[..., Lowered]:
    """The same; an exception that no stage expects is StageFailed."""
    def run(graph, inputs, options) -> Lowered:
        try:
            return lowering(graph, inputs, options)
        except MinicompileError:
            raise
        except Exception as error:
            log.show("perf_hints", traceback.format_exc())
            raise StageFailed(brief(error)) from error
    return run


def fused(lowered: Lowered, options: Options) -> Lowered:
    """The halves as compiled programs, with what fusion made of them.

    If a kernel does not compile, there are none, with a warning.
    """
    schedules, programs, halves = {}, {}, lowered.pair.halves()
    try:
        for name, half in halves.items():
            set_branches(half, lambda branch: program_of(
                branch, options)[1].ready().run)
            schedules[name], programs[name] = program_of(
                half, options, lowered.pair.donated)
        for program in programs.values():
            program.ready()
    except CompileError as failed:
        for half in halves.values():
            set_branches(half, _boxed)
        log.warn_once(f"minicompile does not fuse: {failed}")
        return replace(lowered, fallback=str(failed))
    return replace(lowered, schedules=schedules, programs=programs)


def program_of(graph: fx.GraphModule, options: Options,
               dying: Collection[str] = ()
               ) -> tuple[Schedule, emit.Program]:
    """The graph as kernels, and as a program."""
    schedule = fusion.fuse(graph, dying)
    log.show("fusion", str(schedule))
    program = emit.emit(schedule, options)
    log.show("output_code", program.source)
    return schedule, program


def set_branches(graph: fx.GraphModule,
                 make: Callable[[fx.GraphModule], Boxed]) -> None:
    """Let the branches in a graph, and in these, run as `make` says."""
    def made(branch: fx.GraphModule) -> Boxed:
        set_branches(branch, make)
        return make(branch)

    for node in graph.graph.nodes:
        if isinstance(node.target, Branches):
            node.target = node.target.compiled(made)


#: What compile(backend=...) names: the pipeline, cut off at three depths.
BACKENDS: dict[str, Callable[..., Lowered]] = {
    "eager": lower_eager, "split": expected(lower_split),
    "fused": expected(partial(lower_split, fuse=True))}
BACKENDS["minicompile"] = BACKENDS["fused"]

#: Those that are ours, and take our modes and options.
OURS = tuple(BACKENDS)


def register_backend(name: str, function: Callable | None = None):
    """Let compile(backend=name) hand its graphs to `function`.

    `function(graph_module, example_inputs)` returns a callable on the
    same inputs, as a backend of torch.compile does. Without `function`
    it is a decorator.
    """
    def register(function: Callable) -> Callable:
        BACKENDS[name] = lambda graph, inputs, options: Lowered(
            _boxed(function(graph, list(inputs))))
        return function

    return register if function is None else register(function)


def list_backends(exclude_tags: Sequence[str] = ()) -> list[str]:
    """The names compile(backend=...) takes: ours, then PyTorch's.

    PyTorch tags its own with "debug" or "experimental".
    """
    theirs = torch.compiler.list_backends(exclude_tags=tuple(exclude_tags))
    return [*BACKENDS, *(name for name in theirs if name not in BACKENDS)]


def lower(graph: fx.GraphModule, inputs: Sequence, backend: str | Callable,
          mode: str | None = None, options: dict | None = None) -> Lowered:
    """The graph lowered by a backend: one of ours, PyTorch's, or yours."""
    if callable(backend):
        return Lowered(_boxed(backend(graph, list(inputs))))
    if backend in BACKENDS:
        return BACKENDS[backend](graph, inputs, make_options(mode, options))
    return Lowered(_boxed(torch.compile(
        graph, backend=backend, mode=mode, options=options)))


def _boxed(function: Callable) -> Boxed:
    """A function of tensors, or a graph, as a boxed call."""
    if isinstance(function, fx.GraphModule):
        function = bare(function)
    return lambda given: tuple(function(*given))


def backend(graph: fx.GraphModule, example_inputs: Sequence, *,
            mode: str | None = None, options: dict | None = None):
    """Everything after the trace, as a backend of torch.compile.

    `torch.compile(f, backend="minicompile")` comes here. Takes and
    returns what any backend does: a graph with its example inputs, and a
    callable on such inputs that returns a tuple.
    """
    try:
        run = lower(graph, example_inputs, "fused", mode, options).call
    except StageFailed as fault:
        run = as_traced(graph, fault).call
    return lambda *given: run(list(given))
