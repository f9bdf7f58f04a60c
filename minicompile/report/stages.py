"""Each stage in a line, in a few lines, and in full.

In: a compiled entry. Out: one View a stage: what went in and what came
out, with the text that the stage itself prints. The tour shows excerpts,
`--stage NAME` and a saved page the whole.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import dedent

from torch import fx

from .. import fusion
from ..core.graph import nbytes, placeholders, render, value
from ..core.loops import Kernel
from ..core.options import Options
from ..core.schedule import Extern, Schedule
from ..dispatch import Entry
from ..emit import cpp
from ..emit.program import device_of
from ..fusion.lower import lower

#: So many buffers a kernel may have to be shown as an example.
FEW = 7


@dataclass(frozen=True)
class StageView:
    """One stage: `summary` in a line, `excerpt` in ten, `full` in all."""

    name: str
    summary: str
    excerpt: str = ""
    full: str = ""
    language: str = "python"


def views(entry: Entry, options: Options, function: Callable,
          costs: Sequence[float] = ()) -> tuple[StageView, ...]:
    """What each stage made of one call, in the order of the pipeline."""
    made = [trace_view(entry, function), guards_view(entry, costs)]
    lowered = entry.lowered
    if lowered.pair is None:
        why = lowered.fallback or "another backend runs the graph"
        return (*made, StageView("split", why))
    made.append(split_view(entry))
    if lowered.programs:
        made += [fusion_view(entry), emit_view(entry, options),
                 replay_view(entry, options)]
    else:
        why = lowered.fallback or "the halves run as ATen operators"
        made.append(StageView("fusion", why))
    return (*made, budget_view(entry, options))


def trace_view(entry: Entry, function: Callable) -> StageView:
    """Bytecode to graph."""
    function = inspect.unwrap(getattr(
        getattr(function, "_orig_mod", function), "forward", function))
    try:
        code = dis.Bytecode(function).dis().strip("\n")
    except TypeError:  # not a Python function
        code = ""
    graph, text = entry.trace.graph, render(entry.trace.graph)
    body = dedent("\n".join(text.splitlines()[1:]))
    size = sum(bool(line.strip()) for line in code.splitlines())
    start = f"{size} bytecodes and all they call -> " if size else ""
    return StageView(
        "trace", f"{start}{len(calls(graph))} operators on "
        f"{len(placeholders(graph.graph))} tensors",
        f"{head_of(code, 5)}\n\n{head_of(body, 6)}".strip("\n"),
        f"{code}\n\n\n{text}\n\n\n{entry.trace.finish}")


def guards_view(entry: Entry, costs: Sequence[float]) -> StageView:
    """Guards to one check; in full, what each costs by itself."""
    check = entry.check
    lines = dedent(check.source).splitlines()
    first = next((n for n, line in enumerate(lines)
                  if "strides" in line), 0)
    asked = sorted(zip(costs, map(str, check.guards)), reverse=True)
    table = [f"# {cost:6.2f} us  {guard}" for cost, guard in asked]
    return StageView(
        "guards", f"{len(check.guards)} guards -> one check of "
        f"{len(lines)} lines",
        head_of(dedent("\n".join(lines[first:])), 11),
        "\n".join([check.source, *table]))


def split_view(entry: Entry) -> StageView:
    """The joint graph, its halves, and what is kept between them."""
    joint, pair = entry.lowered.joint, entry.lowered.pair
    ahead = len(calls(pair.forward))
    if pair.backward is None:
        return StageView(
            "split", f"no gradient wanted: {ahead} ATen operators",
            head_of(str(joint), 12), str(joint))
    saved = {kept.name for kept in pair.saved if kept.place != "input"}
    kept = [(nbytes(value(node)), node.name)
            for node in placeholders(pair.backward.graph)
            if node.name in saved]
    table = "\n".join([f"{len(kept)} values saved for the backward:", *(
        f"{size / 2**10:9.1f} KiB  {name}"
        for size, name in sorted(kept, reverse=True))])
    return StageView(
        "split", f"{len(calls(joint.graph))} ATen operators -> {ahead} "
        f"forward, {len(calls(pair.backward))} backward, saving "
        f"{pair.saved_bytes / 2**20:.2f} MiB",
        head_of(table, 7), f"{table}\n\n\n{joint}\n\n\n{pair}", "text")


def budget_view(entry: Entry, options: Options) -> StageView:
    """What is computed again rather than saved."""
    pair = entry.lowered.pair
    if pair.backward is None:
        return StageView("budget", "nothing to save")
    first = set(calls(pair.forward))
    again = [name for name in calls(pair.backward) if name in first]
    share = options.activation_memory_budget
    asked = (f"activation_memory_budget={share:g}" if options.memory is None
             else f"memory={options.memory!r}")
    return StageView(
        "budget", f"{asked}: {len(again)} operators run again in the "
        "backward", "", "computed again: " + ", ".join(again), "text")


def calls(graph: fx.GraphModule) -> list[str]:
    """The names of a graph's operators."""
    return [node.name for node in graph.graph.nodes
            if node.op.startswith("call_")]


def fusion_view(entry: Entry) -> StageView:
    """Loops before and after they are merged."""
    schedules = entry.lowered.schedules
    steps = {name: lower(half).steps
             for name, half in entry.lowered.pair.halves().items()}
    alone = tuple(step if isinstance(step, Extern) else
                  Kernel("", step.ranges, step.reduced, (step,))
                  for made in steps.values() for step in made)
    loops = sum(isinstance(step, Kernel) for step in alone)
    before = fusion.moved(Schedule((), alone, (), (), {}))
    after = sum(map(fusion.moved, schedules.values()))
    kernels = sum(len(s.kernels) for s in schedules.values())
    externs = sum(len(s.externs) for s in schedules.values())
    full = [f"# {name}, before\n\n" + "\n\n".join(map(str, made))
            + f"\n\n\n# {name}, after\n\n{schedules[name]}"
            for name, made in steps.items()]
    return StageView(
        "fusion", f"{loops} loops -> {kernels} kernels + "
        f"{externs} operators, {before / 1e6:.2f}M -> {after / 1e6:.2f}M "
        "elements",
        head_of(str(telling(schedules) or ""), 12), "\n\n\n".join(full))


def telling(schedules: dict[str, Schedule]) -> Kernel | None:
    """The kernel that tells most: few buffers, rows, many loops."""
    found = [nest for schedule in schedules.values()
             for nest in schedule.kernels]
    return max(found, default=None, key=lambda nest: (
        len(nest.read) + len(nest.written) <= FEW,
        nest in schedules["forward"].kernels,
        bool(nest.reduced and nest.ranges), len(nest.loops)))


@dataclass(frozen=True)
class PrintedKernel:
    """One generated kernel, as its device's printer writes it."""

    name: str
    source: str
    ops: tuple[str, ...]  # the graph nodes it computes
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def __str__(self) -> str:
        return (f"{self.name}({', '.join(self.reads)}) -> "
                f"{', '.join(self.writes)}")


def printed(nest: Kernel, options: Options) -> PrintedKernel:
    """A kernel of the loop language, with its printed text."""
    if device_of(nest).type == "cpu" and options.cpu_backend == "cpp":
        source = cpp.function(nest)
    else:
        from ..emit.triton import print_kernel
        source = print_kernel(nest)
    ops = dict.fromkeys(
        name for loop in nest.loops for name in loop.origin.split())
    return PrintedKernel(nest.name, source, tuple(ops), nest.read,
                         tuple(nest.written))


def emit_view(entry: Entry, options: Options) -> StageView:
    """One kernel as it is printed, and the programs."""
    lowered = entry.lowered
    programs, nest = lowered.programs, telling(lowered.schedules)
    text = printed(nest, options).source if nest else ""
    language, printer = ("cpp", "C++") if text.startswith(
        'extern "C"') else ("python", "Triton")
    lines = sum(p.source.count("\n") for p in programs.values())
    return StageView(
        "emit", f"{printer} kernels in {len(programs)} programs of {lines} "
        "lines", head_of(text, 14), "\n\n\n".join(
            f"# {program.path}\n{program.source}"
            for program in programs.values()), language)


def replay_view(entry: Entry, options: Options) -> StageView:
    """Whether launches are recorded, and what became of the calls."""
    if not options.cudagraphs:
        why = 'off (mode="reduce-overhead" turns it on)'
        return StageView("replay", why)
    region = entry.lowered.graphed
    if region.blocked:
        return StageView("replay", f"off: {region.blocked}")
    steps = sum(len(s.steps) for s in entry.lowered.schedules.values())
    became = ", ".join(f"{why}: {count}"
                       for why, count in region.stats.items())
    return StageView("replay", f"{steps} steps to record as CUDA graphs; "
                     f"calls: {became}")


def head_of(text: str, lines: int) -> str:
    """The first lines of a text, and how many are left out."""
    every = [line for line in text.splitlines() if line.strip()]
    left = len(every) - lines
    if left <= 1:
        return text
    return "\n".join([*every[:lines], f"… {left} more lines"])
