"""explain(): one call compiled, and everything that was made of it.

In: a function and a call of it. Out: a Report: graphs, guards, kernels,
breaks, bytes. It prints itself for a terminal, and saves itself as one
HTML page that needs nothing but a browser. The debug folder has such a
page of each graph, too. PyTorch's is
torch/_dynamo/backends/debugging.py (explain).
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import count
from pathlib import Path

from torch import Tensor, fx

from ...core import log
from ...core.errors import GraphBreak
from ...core.graph import render
from ...core.guard import Guard
from ...core.options import Options
from ...core.torch.options import asked
from ...dispatch import NOTHING, Cache, Entry, operations
from ...dispatch.driver import compile
from ...pipeline import LOWER, CompiledGraph
from ..debugging.timing import CLOCK
from .explorer import columns
from .stages import PrintedKernel as Kernel
from .stages import StageView, apart, compiled_views, printed, views

#: What the page of a report is filled into.
TEMPLATE = Path(__file__).with_name("explorer.html")

#: Numbers the debug folders of this process.
NUMBERS = count()


@dataclass(frozen=True, repr=False)
class Report:
    """The compiled forms of one function; `print` shows them.

    `inputs` has the graph's inputs, by the id of an entry that ran in this
    call.
    """

    name: str
    options: Options
    entries: tuple[Entry, ...]  # the oldest first
    graph_breaks: tuple[GraphBreak, ...]
    recompiles: tuple[str, ...]
    dynamic: tuple[str, ...]
    inputs: dict[int, list]

    @property
    def graphs(self) -> tuple[fx.GraphModule, ...]:
        """The traced graphs."""
        return tuple(entry.trace.graph for entry in self.entries)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards of all entries."""
        return tuple(guard for entry in self.entries
                     for guard in entry.check.guards)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, as they are printed."""
        return tuple(printed(kernel, program.text)
                     for entry in self.entries
                     for program in entry.lowered.programs.values()
                     for kernel in program.kernels)

    @property
    def externs(self) -> tuple[str, ...]:
        """The names of the operators that are called."""
        return tuple(str(call.target) for entry in self.entries
                     for schedule in entry.lowered.schedules.values()
                     for call in schedule.externs)

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for the backward, inputs not counted."""
        return sum(pair.saved_bytes for entry in self.entries
                   if (pair := entry.lowered.pair) and pair.backward)

    @cached_property
    def stages(self) -> list[list[StageView]]:
        """The views of each entry."""
        return [[*views(entry, self.options)] for entry in self.entries]

    def __repr__(self) -> str:
        counts = {"graph": self.graphs, "graph break": self.graph_breaks,
                  "recompile": self.recompiles}
        lines = [f"{self.name}: " + ", ".join(
            f"{len(things)} {name}{'s' * (len(things) != 1)}"
            for name, things in counts.items())]
        lines += [f"  {line}" for reason in (
            *self.graph_breaks, *self.recompiles, *self.dynamic)
                  for line in str(reason).splitlines()]
        for number, stages in enumerate(self.stages):
            lines.append(f"graph {number}")
            lines += [f"  {view.name:<8}{view.summary}" for view in stages]
        return "\n".join(lines)

    @cached_property
    def page(self) -> str:
        """The report as HTML: its text, the columns, then every stage.

        Making it may run the kernels once more.
        """
        return page(self.name, str(self), self.stages, [columns(
            entry.trace.graph, entry.lowered, self.inputs.get(id(entry)))
            for entry in self.entries])

    def _repr_html_(self) -> str:
        """The page in a frame, as a notebook shows it."""
        return (f'<iframe srcdoc="{escape(self.page)}" '
                'style="width:100%;height:40rem;border:0"></iframe>')

    def save(self, path: str | Path) -> Path:
        """Write the report as one page, which needs only a browser."""
        Path(path).write_text(self.page, encoding="utf-8")
        return Path(path)


def page(title: str, text: str, stages: list[list[StageView]],
         data: list[dict]) -> str:
    """The views and the columns of some graphs as one page of HTML."""
    details = "".join(
        f"<details><summary><b>graph {number}: {escape(view.name)}</b> "
        f"{escape(view.summary)}</summary><pre>{escape(view.full)}"
        "</pre></details>" for number, each in enumerate(stages)
        for view in each)
    parts = {"TITLE": escape(title), "DETAILS": details,
             "REPORT": escape(text),
             "DATA": json.dumps(data).replace("<", "\\u003c")}
    first, *rest = TEMPLATE.read_text(encoding="utf-8").split("@@")
    return first + "".join(parts.get(each, each) for each in rest)


def write(graph: fx.GraphModule, inputs: Sequence, depth: str,
          options: Options) -> CompiledGraph:
    """A graph as the row before brings it down. Log why kernels are apart,
    and write each text as a file, and the page of all, if asked for."""
    made = LOWER[LOWER.index(write) - 1](graph, inputs, depth, options)
    if asked() & {"perf_hints", "all"}:
        for schedule in made.schedules.values():
            for line in apart(schedule):
                log.show("perf_hints", line)
        if made.graphed and made.graphed.blocked:
            log.show("perf_hints", f"no replay: {made.graphed.blocked}")
    if not options.trace_enabled:
        return made
    folder = Path("minicompile_debug", f"{os.getpid()}_{next(NUMBERS)}")
    folder.mkdir(parents=True)
    stages = [StageView("trace", "", {"graph": render(graph)}),
              *compiled_views(made, options)]
    texts = {f"{number}_{view.name}_{name}.py": f"{text}\n"
             for number, view in enumerate(stages)
             for name, text in view.texts.items()}
    texts["seconds.txt"] = "".join(
        f"{stage:8}{seconds:8.3f}\n"
        for stage, seconds in CLOCK.seconds.items())
    texts["page.html"] = page(
        folder.name, "", [stages], [columns(graph, made)])
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return made


LOWER.append(write)


def explain(function: Callable, **options: object) -> Callable[..., Report]:
    """`explain(f)(*args)` calls `f` compiled and returns its Report.

    `options` are those of compile(). A function that is compiled already
    is reported with every entry it has. Where a trace ends early, the
    report has the graph break.
    """
    def explained(*args, **kwargs) -> Report:
        cache = getattr(
            getattr(function, "_compiled", function), "cache", None)
        if not isinstance(cache, Cache):  # the user's own, or there is none
            return explain(compile(function, **options))(*args, **kwargs)
        inputs = {}

        def watch(entry: Entry, given: list) -> None:
            inputs[id(entry)] = [
                each.detach().requires_grad_(each.requires_grad)
                if isinstance(each, Tensor) else each for each in given]

        for each in cache.family():
            each.first = NOTHING  # so that it looks among its entries
        cache.watch = watch
        try:
            function(*args, **kwargs)
        finally:
            cache.watch = None
        entries = [entry for each in cache.family()
                   for entry in each.entries[::-1]
                   if operations(entry.trace.graph)
                   or each is cache and not entry.trace.breaks]
        stats = cache.stats()
        return Report(cache.name, cache.settings.chosen,
                      tuple(entries), tuple(cache.breaks),
                      tuple(stats.reasons), tuple(stats.dynamic), inputs)
    return explained
