"""explain(): one call compiled, and everything that was made of it.

In: a function and a call of it. Out: a Report: graphs, guards, kernels,
breaks, bytes. It prints itself for a terminal, and saves itself as one
HTML page that needs nothing but a browser.
PyTorch's is torch/_dynamo/backends/debugging.py (explain).
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import fx

from .. import fusion
from ..core.guard import Guard
from ..dispatch import NOTHING, Cache, Entry, operations
from ..driver import compile
from ..trace import GraphBreak
from .stages import PrintedKernel, StageView, printed, views

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       font: 16px/1.5 system-ui, sans-serif; }}
pre {{ overflow-x: auto; padding: .8rem; border-radius: .3rem;
      background: color-mix(in srgb, currentColor 7%, transparent);
      font: 13px/1.45 ui-monospace, monospace; }}
summary {{ cursor: pointer; }} details {{ margin: .4rem 0; }}
summary b {{ display: inline-block; min-width: 5rem; }}
</style></head><body>
{body}
</body></html>
"""


@dataclass(frozen=True)
class Report:
    """What became of one function: `str()` is for a terminal.

    `elements_moved` counts what kernels and operators read and write in
    one forward and backward; `saved_bytes` what is kept in between, the
    inputs aside. `guard_costs` are microseconds of each guard by itself,
    None for those of other calls.
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
    stages: tuple[tuple[StageView, ...], ...] = field(repr=False)

    def __str__(self) -> str:
        lines = [f"{self.name}: {count(self.graphs, 'graph')}, "
                 f"{count(self.graph_breaks, 'graph break')}, "
                 f"{count(self.recompiles, 'recompile')}"]
        lines += [f"  {line}" for reason in (
            *self.graph_breaks, *self.recompiles, *self.dynamic)
                  for line in str(reason).splitlines()]
        for number, made in enumerate(self.stages):
            lines.append(f"graph {number}")
            lines += [f"  {view.name:<8}{view.summary}" for view in made]
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the report as one page: its text, then every stage."""
        title = html.escape(f"minicompile: {self.name}")
        body = [f"<h1>{title}</h1>", f"<pre>{html.escape(str(self))}</pre>"]
        for number, made in enumerate(self.stages):
            body.append(f"<h2>Graph {number}</h2>")
            body += [f"<details><summary><b>{view.name}</b> "
                     f"{html.escape(view.summary)}</summary>"
                     f"<pre>{html.escape(view.full)}</pre></details>"
                     for view in made]
        path = Path(path)
        path.write_text(PAGE.format(title=title, body="\n".join(body)),
                        encoding="utf-8")
        return path


def count(things: tuple, name: str) -> str:
    """`1 graph`, `2 graphs`."""
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def explain(function: Callable, **options: object) -> Callable[..., Report]:
    """`explain(f)(*args)` calls `f` compiled and returns its Report.

    `options` are those of compile(). A function that is compiled already
    is reported with every entry it has. Where a trace ends early, the
    report has the graph break.
    """
    def explained(*args, **kwargs) -> Report:
        ready = hasattr(function, "cache")
        compiled = function if ready else compile(function, **options)
        costs = measured(compiled, args, kwargs)
        return report_of(compiled.cache, function, costs)
    return explained


def measured(compiled: Callable, args: tuple, kwargs: dict
             ) -> dict[int, tuple[float, ...]]:
    """What guards cost, by id of each entry that holds in this call."""
    cache, costs = compiled.cache, {}

    def watch(entry: Entry, L: tuple, F: object) -> None:
        costs[id(entry)] = entry.check.explain(L, F, "costs")

    for each in cache.family():
        each.first = NOTHING
    cache.watch = watch
    try:
        compiled(*args, **kwargs)
    finally:
        cache.watch = None
    return costs


def report_of(cache: Cache, function: Callable,
              costs: dict[int, tuple[float, ...]]) -> Report:
    """What a compiled function's caches hold, oldest entry first."""
    entries = [entry for each in cache.family()
               for entry in each.entries[::-1]
               if operations(entry.trace.graph)
               or each is cache and not entry.trace.breaks]
    options = cache.settings.chosen
    schedules = [schedule for entry in entries
                 for schedule in entry.lowered.schedules.values()]
    return Report(
        cache.name, tuple(entry.trace.graph for entry in entries),
        tuple(cache.breaks),
        tuple(guard for entry in entries for guard in entry.check.guards),
        tuple(cost for entry in entries for cost in costs.get(
            id(entry), [None] * len(entry.check.guards))),
        tuple(cache.stats().reasons), tuple(cache.stats().dynamic),
        tuple(printed(nest, options)
              for schedule in schedules for nest in schedule.kernels),
        tuple(str(call.target) for schedule in schedules
              for call in schedule.externs),
        sum(map(fusion.moved, schedules)), sum(map(saved_bytes, entries)),
        tuple(views(entry, options, function, costs.get(id(entry), ()))
              for entry in entries))


def saved_bytes(entry: Entry) -> int:
    """Bytes that one forward keeps for its backward."""
    pair = entry.lowered.pair
    return pair.saved_bytes if pair and pair.backward else 0
