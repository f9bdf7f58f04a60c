"""explain(): one call compiled, and everything that was made of it.

In: a function and a call of it. Out: a Report: graphs, guards, kernels,
breaks, bytes. It prints itself for a terminal, and saves itself as one
HTML page that needs nothing but a browser. The reference adds the texts
of each stage, and the tour.
PyTorch's is torch/_dynamo/backends/debugging.py (explain).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from torch import fx

from .. import fusion
from ..core.guard import Guard
from ..core.loops import Kernel
from ..core.options import Options
from ..dispatch import NOTHING, Cache, Entry, operations
from ..driver import compile
from ..emit import cpp
from ..emit.program import device_of
from ..trace import GraphBreak

#: Each makes views of an entry, given also the options, the function and
#: the costs of the guards: a name, a summary and a full text.
VIEWS: list[Callable[[Entry, Options, Callable, tuple], Iterable]] = []

#: The commands of `python -m minicompile`, given its arguments.
COMMANDS: list[Callable[[list[str] | None], None]] = []

#: What the reference offers to users, by its name in minicompile.
TOOLS: dict[str, Callable] = {}

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ overflow-x: auto; font: 13px/1.45 ui-monospace, monospace }}
</style><h1>{title}</h1>
{body}
</html>
"""


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


@dataclass(frozen=True)
class Report:
    """The compiled forms of one function; `str()` is for a terminal.

    `elements_moved` counts the elements that kernels and operators read
    and write in one forward and backward; `saved_bytes` the bytes kept in
    between, without inputs. `guard_costs` are microseconds of each guard
    by itself, None for those of other calls.
    """

    name: str
    graphs: tuple[fx.GraphModule, ...]
    graph_breaks: tuple[GraphBreak, ...]
    guards: tuple[Guard, ...]
    guard_costs: tuple[float | None, ...]
    recompiles: tuple[str, ...]
    dynamic: tuple[str, ...]
    kernels: tuple[PrintedKernel, ...]
    externs: tuple[str, ...]
    elements_moved: int
    saved_bytes: int
    stages: tuple[tuple, ...] = field(repr=False)

    def __str__(self) -> str:
        counts = {"graph": self.graphs, "graph break": self.graph_breaks,
                  "recompile": self.recompiles}
        lines = [f"{self.name}: " + ", ".join(
            f"{len(things)} {name}{'s' * (len(things) != 1)}"
            for name, things in counts.items())]
        lines += [f"  {line}" for reason in (
            *self.graph_breaks, *self.recompiles, *self.dynamic)
                  for line in str(reason).splitlines()]
        for number, views in enumerate(self.stages):
            lines.append(f"graph {number}")
            lines += [f"  {view.name:<8}{view.summary}" for view in views]
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the report as one page: its text, then every stage."""
        body = [f"<pre>{escape(str(self))}</pre>"]
        for number, views in enumerate(self.stages):
            body.append(f"<h2>Graph {number}</h2>")
            body += [f"<details><summary><b>{view.name}</b> "
                     f"{escape(view.summary)}</summary>"
                     f"<pre>{escape(view.full)}</pre></details>"
                     for view in views]
        path = Path(path)
        path.write_text(PAGE.format(
            title=escape(f"minicompile: {self.name}"),
            body="\n".join(body)), encoding="utf-8")
        return path


def explain(function: Callable, **options: object) -> Callable[..., Report]:
    """`explain(f)(*args)` calls `f` compiled and returns its Report.

    `options` are those of compile(). A function that is compiled already
    is reported with every entry it has. Where a trace ends early, the
    report has the graph break.
    """
    def explained(*args, **kwargs) -> Report:
        compiled = function if hasattr(function, "cache") else (
            compile(function, **options))
        cache, costs = compiled.cache, {}

        def watch(entry: Entry, L: tuple, F: object) -> None:
            costs[id(entry)] = entry.check.explain(L, F, "costs")

        for each in cache.family():
            each.first = NOTHING  # so that it looks among its entries
        cache.watch = watch
        try:
            compiled(*args, **kwargs)
        finally:
            cache.watch = None
        return report_of(cache, function, costs)
    return explained


def report_of(cache: Cache, function: Callable,
              costs: dict[int, tuple[float, ...]]) -> Report:
    """A report on a function's caches, oldest entry first.

    `costs` has those of the guards, by id of each entry that held.
    """
    entries = [entry for each in cache.family()
               for entry in each.entries[::-1]
               if operations(entry.trace.graph)
               or each is cache and not entry.trace.breaks]
    options, stats = cache.settings.chosen, cache.stats()
    schedules = [schedule for entry in entries
                 for schedule in entry.lowered.schedules.values()]
    pairs = [entry.lowered.pair for entry in entries]
    return Report(
        cache.name, tuple(entry.trace.graph for entry in entries),
        tuple(cache.breaks),
        tuple(guard for entry in entries for guard in entry.check.guards),
        tuple(cost for entry in entries for cost in costs.get(
            id(entry), [None] * len(entry.check.guards))),
        tuple(stats.reasons), tuple(stats.dynamic),
        tuple(printed(kernel, options) for schedule in schedules
              for kernel in schedule.kernels),
        tuple(str(call.target) for schedule in schedules
              for call in schedule.externs),
        sum(map(fusion.moved, schedules)),
        sum(pair.saved_bytes for pair in pairs if pair and pair.backward),
        tuple(tuple(view for views in VIEWS for view in views(
            entry, options, function, costs.get(id(entry), ())))
              for entry in entries))


def printed(kernel: Kernel, options: Options) -> PrintedKernel:
    """A kernel of the loop language, with its printed text."""
    if device_of(kernel).type == "cpu" and options.cpu_backend == "cpp":
        source = cpp.text_of(kernel)
    else:
        from ..emit.triton import print_kernel
        source = print_kernel(kernel)
    ops = dict.fromkeys(
        name for loop in kernel.loops for name in loop.origin.split())
    return PrintedKernel(kernel.name, source, tuple(ops), kernel.read,
                         tuple(kernel.written))
