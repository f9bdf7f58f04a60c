"""Each stage in a line, in a few lines, and in full.

In: a compiled entry. Out: one StageView a stage: what went in and what
came out, with the text that the stage itself prints. The tour shows
excerpts, `--stage NAME` and a saved page the whole.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from ...core.cost import is_free
from ...core.graph import nbytes, placeholders, render, tensors_of, value
from ...core.loops import Buffer, Kernel
from ...core.options import Options
from ...core.schedule import Schedule, View, made_by, views_in
from ...core.sizes import hint
from ...dispatch import Entry, operations
from ...fusion.values import elements, touched
from ...pipeline import CompiledGraph
from ..gather import VIEWS, Report, printed

#: So many buffers a kernel may have to be shown as an example.
FEW = 7

#: The lines of an excerpt.
HEAD = 12


@dataclass(frozen=True)
class StageView:
    """One stage: `summary` in a line, `excerpt` in ten, `full` in all.

    Of its texts, the first tells most.
    """

    name: str
    summary: str
    texts: tuple[str, ...] = ()

    @property
    def excerpt(self) -> str:
        """The first lines of the first text."""
        every = [line for text in self.texts[:1]
                 for line in text.splitlines() if line.strip()]
        left = len(every) - HEAD
        return "\n".join([*every[:HEAD], f"… {left} more lines"]
                         if left > 1 else every)

    @property
    def full(self) -> str:
        """All texts."""
        return "\n\n\n".join(self.texts)


def views(report: Report, entry: Entry) -> list[StageView]:
    """The work of each stage on one call, in the pipeline's order."""
    lowered, options = entry.lowered, report.options
    made = [trace_view(entry, report.function),
            guards_view(entry, report.costs.get(id(entry), ()))]
    if lowered.pair is None:
        return [*made, StageView("split", lowered.fallback or (
            "another backend runs the graph"))]
    made.append(split_view(lowered))
    if lowered.programs:
        made += [fusion_view(lowered), emit_view(lowered, options),
                 replay_view(lowered)]
    else:
        made.append(StageView("fusion", lowered.fallback or (
            "the halves run as ATen operators")))
    return [*made, budget_view(lowered, options)]


VIEWS.append(views)


def trace_view(entry: Entry, function: Callable) -> StageView:
    """Bytecode to graph."""
    function = inspect.unwrap(getattr(
        getattr(function, "_orig_mod", function), "forward", function))
    try:
        code = dis.Bytecode(function).dis().strip("\n")
    except TypeError:  # not a Python function
        code = ""
    graph = entry.trace.graph
    size = sum(bool(line.strip()) for line in code.splitlines())
    start = f"{size} bytecodes and all they call -> " if size else ""
    return StageView(
        "trace", f"{start}{len(operations(graph))} operators on "
        f"{len(placeholders(graph.graph))} tensors",
        (render(graph), code, entry.trace.finish))


def guards_view(entry: Entry, costs: Sequence[float]) -> StageView:
    """Guards to one check; in full, what each costs by itself."""
    check = entry.check
    asked = sorted(zip(costs, map(str, check.guards)), reverse=True)
    return StageView(
        "guards", f"{len(check.guards)} guards -> one check of "
        f"{len(check.source.splitlines())} lines",
        (check.source, "\n".join(f"# {cost:6.2f} us  {guard}"
                                 for cost, guard in asked)))


def split_view(lowered: CompiledGraph) -> StageView:
    """The joint graph, its halves, and what is kept between them."""
    joint, pair = lowered.joint, lowered.pair
    ahead = len(operations(pair.forward))
    if pair.backward is None:
        return StageView("split", f"no gradient wanted: {ahead} ATen "
                         "operators", (str(joint),))
    kept = [(nbytes(value(node)), node.name)
            for node in placeholders(pair.backward.graph)
            if node.name in pair.saved.keys() & pair.donated]
    table = "\n".join([f"# {len(kept)} values saved for the backward:", *(
        f"# {size / 2**10:9.1f} KiB  {name}"
        for size, name in sorted(kept, reverse=True))])
    return StageView(
        "split", f"{len(operations(joint.graph))} ATen operators -> "
        f"{ahead} forward, {len(operations(pair.backward))} backward, "
        f"saving {pair.saved_bytes / 2**20:.2f} MiB",
        (table, str(joint), str(pair)))


def budget_view(lowered: CompiledGraph, options: Options) -> StageView:
    """The operators that run again, in place of saved values."""
    pair = lowered.pair
    if pair.backward is None:
        return StageView("budget", "nothing to save")
    first = {node.name for node in operations(pair.forward)}
    again = [node.name for node in operations(pair.backward)
             if node.name in first]
    share = options.activation_memory_budget
    asked = (f"memory={options.memory!r}" if options.memory else
             f"activation_memory_budget={share:g}")
    return StageView(
        "budget", f"{asked}: {len(again)} operators run again in the "
        "backward", ("# computed again: " + ", ".join(again),))


def fusion_view(lowered: CompiledGraph) -> StageView:
    """Operators run one by one, against kernels."""
    schedules = lowered.schedules
    alone = sum(hint(tensor.numel())
                for half in lowered.pair.halves().values()
                for node in operations(half) if not is_free(node)
                for each in (node, *node.all_input_nodes)
                for tensor in tensors_of(value(each)))
    kernels, externs = (sum(map(len, each)) for each in zip(*(
        (each.kernels, each.externs) for each in schedules.values())))
    return StageView(
        "fusion", f"{kernels} kernels + {externs} operators, moving "
        f"{alone / 1e6:.2f}M -> "
        f"{sum(map(moved, schedules.values())) / 1e6:.2f}M elements",
        (str(telling(schedules) or ""), *(
            f"# {name}\n\n{each}" for name, each in schedules.items())))


def moved(schedule: Schedule) -> int:
    """Elements read and written by all steps together.

    A kernel reads each element of its inputs once, however many loops ask
    for it, and writes its results; an operator reads its arguments and
    writes its results. PyTorch counts so in its test_perf.py.
    """
    sizes = {name: memory(buffer)
             for name, buffer in schedule.buffers.items()}
    total = 0
    for step in schedule.steps:
        total += sum(map(memory, (*made_by(step), *views_in(step))))
        if isinstance(step, Kernel):
            places = {(load.buffer, load.index)
                      for loop in step.loops for load in loop.loads}
            total += sum(min(sizes.get(name, inf), sum(
                touched(where) for read, where in places if read == name))
                for name in step.read)
    return total


def memory(view: Buffer | View) -> int:
    """How many elements lie there, repeated ones counted once."""
    return elements(size for size, step in zip(
        view.shape, view.stride, strict=True) if step != 0)


def telling(schedules: dict[str, Schedule]) -> Kernel | None:
    """The kernel that tells most: few buffers, rows, many loops."""
    found = [kernel for schedule in schedules.values()
             for kernel in schedule.kernels]
    return max(found, default=None, key=lambda kernel: (
        len(kernel.read) + len(kernel.written) <= FEW,
        kernel in schedules["forward"].kernels,
        bool(kernel.reduced and kernel.ranges), len(kernel.loops)))


def emit_view(lowered: CompiledGraph, options: Options) -> StageView:
    """One kernel as it is printed, and the programs."""
    programs, kernel = lowered.programs, telling(lowered.schedules)
    text = printed(kernel, options).source if kernel else ""
    printer = "C++" if text.startswith('extern "C"') else "Triton"
    lines = sum(p.source.count("\n") for p in programs.values())
    return StageView(
        "emit", f"{printer} kernels in {len(programs)} programs of {lines} "
        "lines", (text, *(f"# {program.path}\n{program.source}"
                          for program in programs.values())))


def replay_view(lowered: CompiledGraph) -> StageView:
    """Whether launches are recorded, and what became of the calls."""
    graphed = lowered.graphed
    if graphed is None or graphed.blocked:
        return StageView("replay", f"off: {graphed.blocked}" if graphed else
                         'off (mode="reduce-overhead" turns it on)')
    steps = sum(len(s.steps) for s in lowered.schedules.values())
    became = ", ".join(f"{why}: {count}"
                       for why, count in graphed.stats.items())
    return StageView("replay", f"{steps} steps to record as CUDA graphs; "
                     f"calls: {became}")
