"""Each stage in a line, in a few lines, and in full.

In: a compiled entry. Out: one StageView a stage: a line about what went
in and what came out, and the texts that the stage itself prints. A report
shows the line, the tour an excerpt, a saved page the whole, and the debug
folder has a file for each text. PyTorch's is torch/_inductor/debug.py
(DebugContext).
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import torch
from torch import fx
from torch.fx.node import _get_qualified_name

from ...core.machines.cost import kind
from ...core.errors import where_of
from ...core.index import enclosed
from ...core.graph import (PRINTERS, nbytes, placeholders, render,
                           tensors_of, value)
from ...core.loops import Buffer, Kernel
from ...core.options import Options
from ...core.schedule import (Schedule, Step, View, made_by, reads_of,
                              views_in)
from ...core.sizes import hint
from ...dispatch import Entry, operations
from ...emit.program import FINISHES, Text, device_of
from ...fusion.group import MOST_BUFFERS, IterationDomain, unite
from ...fusion.lowerings import elements
from ...fusion.passes.memory import touched
from ...guards.explain.reasons import describe
from ...pipeline import CompiledGraph
from ...split import Pair

#: So many buffers a kernel may have to be shown as an example.
FEW = 7

#: The lines of an excerpt.
HEAD = 12


@dataclass(frozen=True)
class PrintedKernel:
    """One generated kernel, as its device's printer writes it."""

    name: str
    source: str
    ops: tuple[str, ...]  # the graph nodes it computes
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def printed(kernel: Kernel, text: Text) -> PrintedKernel:
    """A kernel of a program, as its device's printer writes it."""
    source = text.printers[device_of(kernel)].text(kernel)
    ops = dict.fromkeys(
        name for loop in kernel.loops for name in loop.origin.split())
    return PrintedKernel(kernel.name, source, tuple(ops), kernel.read,
                         tuple(kernel.written))


@dataclass(frozen=True)
class StageView:
    """One stage: `summary` in a line, `excerpt` in a few, `full` in all.

    Of its texts, each with a name, the first tells most.
    """

    name: str
    summary: str
    texts: dict[str, object] = field(default_factory=dict)

    @property
    def excerpt(self) -> str:
        """The first lines of the first text."""
        every = [line for text in [*self.texts.values()][:1]
                 for line in str(text).splitlines() if line.strip()]
        left = len(every) - HEAD
        return "\n".join([*every[:HEAD], f"… {left} more lines"]
                         if left > 1 else every)

    @property
    def full(self) -> str:
        """All texts, each but the first under its name."""
        return "\n\n\n".join(
            f"# {name}\n\n{text}" if number else str(text)
            for number, (name, text) in enumerate(self.texts.items()))


def views(entry: Entry, options: Options) -> Iterator[StageView]:
    """The work of each stage on one call, in the pipeline's order."""
    check, graph = entry.check, entry.trace.graph
    yield StageView(
        "trace", f"{len(operations(graph))} operators on "
        f"{len(placeholders(graph.graph))} tensors", {
            "graph": render(graph), "results": entry.trace.finish})
    yield StageView(
        "guards", f"{len(check.guards)} guards -> one check of "
        f"{len(check.source.splitlines())} lines", {
            "check": check.source, "guards": "\n".join(
                f"# {guard}" for guard in check.guards)})
    if operations(graph):
        yield from compiled_views(entry.lowered, options)


def compiled_views(lowered: CompiledGraph, options: Options
                   ) -> Iterator[StageView]:
    """The stages after the trace, as far down as they went."""
    if lowered.pair is None:
        yield StageView("split", lowered.fallback or (
            "another backend runs the graph"))
        return
    yield split_view(lowered)
    if lowered.programs:
        programs, (kernel, source) = lowered.programs, telling(lowered)
        yield fusion_view(lowered, kernel)
        lines = sum(p.source.count("\n") for p in programs.values())
        yield StageView(
            "emit", f"{len(programs)} programs of {lines} lines",
            {"kernel": source} | programs)
        yield StageView("replay", replayed(lowered))
    else:
        yield StageView("fusion", lowered.fallback or (
            "the halves run as ATen operators"))
    yield budget_view(lowered.pair, options)


def split_view(lowered: CompiledGraph) -> StageView:
    """The joint graph, its halves, and what is kept between them."""
    joint, pair = lowered.joint, lowered.pair
    texts, saving = {"joint": joint, "halves": pair}, "no gradient wanted"
    if pair.backward:
        mine = pair.saved.keys() & pair.donated
        kept = sorted(((nbytes(value(node)), node.name)
                       for node in placeholders(pair.backward.graph)
                       if node.name in mine), reverse=True)
        saving = f"saving {sum(size for size, _ in kept) / 2**20:.2f} MiB"
        texts = {"saved": "\n".join([
            f"# {len(kept)} values saved for the backward:",
            *(f"# {size / 2**10:9.1f} KiB  {name}"
              for size, name in kept)])} | texts
    halves = ", ".join(f"{len(operations(half))} {name}"
                       for name, half in pair.halves().items())
    return StageView("split", f"{len(operations(joint.graph))} ATen "
                     f"operators -> {halves}, {saving}", texts)


def budget_view(pair: Pair, options: Options) -> StageView:
    """The operators that run again, in place of saved values."""
    if pair.backward is None:
        return StageView("budget", "nothing to save")
    first = {node.name for node in operations(pair.forward)}
    again = [node.name for node in operations(pair.backward)
             if node.name in first]
    asked = f"memory={options.memory!r}" if options.memory else (
        f"activation_memory_budget={options.activation_memory_budget:g}")
    return StageView(
        "budget", f"{asked}: {len(again)} operators run again in the "
        "backward", {"again": "# computed again: " + ", ".join(again)})


def fusion_view(lowered: CompiledGraph, kernel: object) -> StageView:
    """Operators run one by one, against kernels."""
    schedules = lowered.schedules
    alone = sum(hint(tensor.numel())
                for half in lowered.pair.halves().values()
                for node in operations(half) if kind(node) != "free"
                for each in (node, *node.all_input_nodes)
                for tensor in tensors_of(value(each)))
    externs = sum(len(each.externs) for each in schedules.values())
    return StageView(
        "fusion", f"{lowered.kernels} kernels + {externs} operators, "
        f"moving {alone / 1e6:.2f}M -> "
        f"{sum(map(moved, schedules.values())) / 1e6:.2f}M elements",
        {"kernel": kernel} | schedules | {
            f"{half}_apart": "\n".join(
                f"# {line}" for line in apart(schedule))
            for half, schedule in schedules.items()})


def moved(schedule: Schedule) -> int:
    """Elements read and written by all steps together."""
    buffers = schedule.buffers
    return sum(count for step in schedule.steps
               for count, _ in accesses(step, buffers))


def accesses(step: Step, buffers: dict[str, Buffer]
             ) -> Iterator[tuple[int, torch.dtype]]:
    """The elements that a step moves: how many, and their type.

    A kernel reads each element of its inputs once, however many loops ask
    for it, and writes its results; an operator reads its arguments and
    writes its results. PyTorch counts so in its test_perf.py.
    """
    for each in (*made_by(step), *views_in(step)):
        yield memory(each), each.dtype
    for name in step.read if isinstance(step, Kernel) else ():
        places = {load.index: load.dtype for loop in step.loops
                  for load in loop.loads if load.buffer == name}
        most = memory(buffers[name]) if name in buffers else inf
        yield (min(most, sum(map(touched, places))),
               next(iter(places.values())))


def memory(view: Buffer | View) -> int:
    """How many elements lie there, repeated ones counted once."""
    return elements(size for size, step in zip(
        view.shape, view.stride, strict=True) if step != 0)


def apart(schedule: Schedule) -> Iterator[str]:
    """Why a kernel that reads another's result is not one with it."""
    steps, makers, before = schedule.steps, {}, []
    for number, step in enumerate(steps):
        near = {makers[name]: name for name in reads_of(step)
                if name in makers}
        before.append({*near}.union(*map(before.__getitem__, near)))
        makers |= {buffer.name: number for buffer in made_by(step)}
        for k, name in near.items():
            if not isinstance(step, Kernel) or not isinstance(
                    steps[k], Kernel):
                continue
            sizes = [*map(IterationDomain.of, (steps[k], step))]
            between = [steps[m] for m in near if k in before[m]]
            why = "it reads them at other places than they are stored"
            if between:
                why = "between them runs " + getattr(
                    between[0], "name", str(between[0]).split("(")[0])
            elif unite(*sizes) is None:
                why = "{0.rows} rows of {0.row} do not fit {1.rows} of " \
                      "{1.row}".format(*sizes)
            elif len({*steps[k].read, *steps[k].written, *step.read,
                      *step.written}) > MOST_BUFFERS:
                why = f"they have more than {MOST_BUFFERS} buffers"
            yield f"{step.name} reads {name} of {steps[k].name}: {why}"


def as_function(graph: fx.GraphModule, name: str) -> str:
    """The graph as a Python function: types, and the user's lines.

    The graphs it holds come first.
    """
    lines, last = [], None
    inner = [as_function(getattr(graph, node.target), node.target) + "\n\n"
             for node in graph.graph.find_nodes(op="get_attr")
             if isinstance(getattr(graph, node.target), fx.GraphModule)]
    for node in operations(graph):
        where = where_of(node)
        if where is not None and where != last and where.text:
            lines.append(f"    # {where.text}")
            last = where
        lines.append(f"    {statement(node)}")
    inputs = ", ".join(f"{node.name}: {describe(value(node))}"
                       for node in placeholders(graph.graph))
    returned = graph.graph.output_node().args[0]
    return "".join(inner) + "\n".join([
        f"def {name}({inputs}):", *lines, f"    return {returned}"])


def statement(node: fx.Node) -> str:
    """One node as `name: type = call`."""
    if node.op == "get_attr":
        return f"{node.name} = self.{node.target}"
    arguments = [*map(repr, node.args), *(
        f"{key}={each!r}" for key, each in node.kwargs.items())]
    if node.op == "call_method":
        called = f"{arguments.pop(0)}.{node.target}"
    elif isinstance(node.target, torch._ops.OpOverload):
        called = str(node.target)
    else:  # as it is written: `torch.relu`
        called = _get_qualified_name(node.target).removeprefix("_")
    kind = describe(value(node)) if value(node) is not None else "None"
    return f"{node.name}: {kind} = {called}({', '.join(arguments)})"


PRINTERS.append(as_function)


def folded(source: str) -> str:
    """A program, its long calls broken after their first brackets, if
    nothing follows what these enclose."""
    def broken(call: re.Match) -> str:
        rest = "(" + call[2].removesuffix(":")
        whole = len(call[0]) <= 79 or enclosed(rest) != rest
        return call[0] if whole else "\n".join([
            call[1], textwrap.fill(
                call[2], 79, initial_indent=" " * 8, break_long_words=False,
                subsequent_indent=" " * 8, break_on_hyphens=False)])
    return re.sub(r"^(    [^\s#(][^#(\n]*\()([^'\"\n]*)$", broken, source,
                  flags=re.MULTILINE)


FINISHES.append(folded)


def telling(lowered: CompiledGraph) -> tuple[object, str]:
    """The kernel that tells most, and its text: one with few buffers, a
    reduction, many loops."""
    every = [(kernel, program.text) for program in lowered.programs.values()
             for kernel in program.kernels]
    kernel, text = max(every, default=("", None), key=lambda each: (
        len(each[0].read) + len(each[0].written) <= FEW,
        bool(each[0].reduced), len(each[0].loops)))
    return kernel, printed(kernel, text).source if text else ""


def replayed(lowered: CompiledGraph) -> str:
    """Whether launches are recorded, and what became of the calls."""
    graphed = lowered.graphed
    if graphed is None or graphed.blocked:
        return f"off: {graphed.blocked}" if graphed else (
            'off (mode="reduce-overhead" turns it on)')
    steps = sum(len(s.steps) for s in lowered.schedules.values())
    became = ", ".join(f"{why}: {count}"
                       for why, count in graphed.stats.items())
    return f"{steps} steps to record as CUDA graphs; calls: {became}"
