"""From a traced graph to something that runs: split, fuse, emit, replay.

In: an FX graph in PyTorch's own operators, and example inputs. Out: a
callable on lists of tensors, with what each stage made of the graph.
This is everything after the trace, and so a backend in PyTorch's sense;
theirs is torch/_inductor/compile_fx.py.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from torch import fx

from . import emit, fusion, replay, split
from .core import log
from .core.errors import (BackendError, CompileError, MinicompileError,
                          brief, one_of, where_of)
from .core.graph import Boxed, boxed, holds_graphs
from .core.options import Options, make_options
from .core.schedule import Schedule, Step
from .core.sizes import SYMBOLIC
from .core.state import kept, set_default_devices, turns


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
    graphed: object = None  # what replays its halves, if that is asked
    fallback: str = ""  # why a shallower backend was taken, if one was
    notes: Counter[str] = field(default_factory=Counter)  # calls not run so
    kernels: int = 0  # in its programs


def lower_ours(graph: fx.GraphModule, inputs: Sequence, depth: str,
               options: Options) -> CompiledGraph:
    """The graph brought down to a depth of OURS.

    "eager" runs it as it was traced, "split" its halves operator by
    operator, "fused" their programs. A graph on which a stage fails runs
    as it was traced, with a warning; with symbols that is a BackendError,
    and always without `suppress_errors`.
    """
    if depth == "eager":
        return CompiledGraph(_boxed(graph))
    fuse = depth == "fused"
    try:
        log.enter("split")
        joint = split.record(graph, inputs,
                             fuse and not options.fallback_random)
        log.show("joint_graph", joint)
        saved = frozenset(split.CHOOSE[-1](joint, options))
        pair = joint.plans.get(saved) or split.partition(
            joint, saved, joint.likely)
        joint.plans.clear()  # the others
        runs = {name: _boxed(half) for name, half in pair.halves().items()}
        made = CompiledGraph(_boxed(graph), joint, pair)
        if fuse:
            made = fused(made, options)
            runs |= {name: each.run for name, each in made.programs.items()}
        if made.programs and options.cudagraphs:
            graphed = replay.GRAPHED[-1](
                made.programs, inputs, joint.forward_outputs, joint.mutated,
                options.replay_check)
            runs = {name: getattr(graphed, name) for name in runs}
            made = replace(made, graphed=graphed)
        return replace(made, call=split.make_runtime(
            joint, pair, **runs, notes=made.notes, others=partial(
                backward_from, lambda: joint, pair.saved, options,
                made.graphed) if fuse else None))
    except BackendError as refusal:
        return as_traced(graph, refusal, options)
    except MinicompileError:
        raise
    except Exception as fault:
        log.show("perf_hints", traceback.format_exc())
        if any(isinstance(each, SYMBOLIC) for each in inputs):
            raise BackendError(brief(fault)) from fault
        return as_traced(graph, fault, options)
    finally:
        log.enter("")


def as_traced(graph: fx.GraphModule, error: Exception,
              options: Options) -> CompiledGraph:
    """The traced graph itself, since a stage failed, with a warning; or a
    BackendError, if errors are not to be suppressed."""
    if not options.suppress_errors:
        raise BackendError(brief(error)) from error
    log.warn_once(f"minicompile runs the graph{place_of(graph)} as traced: "
                  f"{brief(error)}")
    return CompiledGraph(_boxed(graph), fallback=brief(error))


def place_of(graph: fx.GraphModule) -> str:
    """Where a graph begins, as a message says it."""
    where = next(filter(None, map(where_of, graph.graph.nodes)), None)
    return f" of {where.function} at {where}" if where else ""


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
        if not options.suppress_errors:
            raise
        log.warn_once(f"minicompile does not fuse: {failed}")
        return replace(lowered, fallback=str(failed))
    return replace(lowered, schedules=schedules, programs=programs,
                   kernels=sum(len(each.kernels) for each
                               in schedules.values()))


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

    log.enter("fusion")
    schedule = graph.meta.pop("fused", None) or fusion.fuse(graph, dying)
    schedule = replace(schedule, steps=tuple(map(compiled, schedule.steps)))
    log.show("fusion", schedule)
    log.enter("emit")
    program = emit.emit(schedule, options)
    log.show("output_code", program.source)
    return schedule, program


#: What runs the backward of a Pair, made of a joint graph; the last row
#: decides, and the first runs it operator by operator.
BACKWARDS: list[Callable[..., Boxed]] = [
    lambda pair, *_: boxed(pair.backward)]


def backward_from(joint: Callable[[], split.Joint], saved: dict[str, int],
                  options: Options, graphed: object,
                  tangents: tuple[int, ...], watched: bool) -> Boxed:
    """The backward from the tangents of these results, after a forward
    that saved those values. Operators that are watched run one by one."""
    pair = split.partition(joint(), saved.keys(), tangents)
    if pair.saved != saved:
        raise BackendError("the graph is recorded in another way now")
    return BACKWARDS[0 if watched else -1](pair, joint(), options, graphed)


#: Our names for compile(backend=...), and how far each goes down.
OURS = {"eager": "eager", "split": "split", "fused": "fused",
        "minicompile": "fused"}

#: The backends that users have registered: functions of a graph and its
#: example inputs.
BACKENDS: dict[str, Callable] = {}

#: Gives such a function for any other name; the last is asked.
OTHERS: list[Callable[[str], Callable]] = [
    lambda name: one_of("backend", name, (*OURS, *BACKENDS))]

#: What brings a graph down to a depth of OURS; the last row decides.
LOWER: list[Callable[[fx.GraphModule, Sequence, str, Options],
                     CompiledGraph]] = [lower_ours]


@dataclass(frozen=True)
class Settings:
    """The arguments of compile(); a wrong name is an OptionError."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable = "fused"
    mode: str | None = None
    options: dict | None = None

    def __post_init__(self):
        for name in "fullgraph", "dynamic":
            one_of(name, getattr(self, name), (None, False, True))
        if not callable(self.backend) and (
                self.backend not in (*OURS, *BACKENDS)):
            OTHERS[-1](self.backend)
        _ = self.chosen  # a wrong option is an error now

    @cached_property
    def chosen(self) -> Options:
        """The options; those of a backend that is not ours are its own."""
        return make_options(self.mode, self.options) if (
            self.backend in OURS) else Options()


def compile_graph(graph: fx.GraphModule, inputs: Sequence,
                  asked: Settings = Settings()) -> CompiledGraph:
    """The graph made runnable by a backend: ours, PyTorch's, or yours,
    which is given the mode and the options that it is asked for with."""
    if (backend := asked.backend) not in OURS:
        call = backend if callable(backend) else BACKENDS.get(
            backend) or OTHERS[-1](backend)
        given = {"mode": asked.mode, "options": asked.options}
        return CompiledGraph(_boxed(graph, call(graph, list(inputs), **{
            name: each for name, each in given.items()
            if each and each != "default"})))
    with kept([(set_default_devices, None)]):  # each call has its own
        return LOWER[-1](graph, inputs, OURS[backend], asked.chosen)


def _boxed(graph: fx.GraphModule, made: Callable | None = None) -> Boxed:
    """The graph, or what a backend made of it, as a boxed call, which puts
    back the switches that the graph turns."""
    made = graph if made is None else made
    run = boxed(made) if isinstance(made, fx.GraphModule) else (
        lambda given: tuple(made(*given)))
    turned = any(turns(node.target) for node in graph.graph.nodes)
    return kept()(run) if turned else run
