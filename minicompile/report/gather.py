"""explain(): one call compiled, and everything that was made of it.

In: a function and a call of it. Out: a Report: graphs, guards, kernels,
breaks, bytes. It prints itself for a terminal and saves itself as a page.
PyTorch's is torch/_dynamo/backends/debugging.py (explain).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import fx

from .. import fusion
from ..core.guard import Guard
from ..driver import compile
from ..dispatch import NOTHING, Cache, Entry, operations
from ..trace import GraphBreak
from .kernels import Kernel, described
from .page import page
from .stages import View, views


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
    kernels: tuple[Kernel, ...]
    externs: tuple[str, ...]
    elements_moved: int
    saved_bytes: int
    stages: tuple[tuple[View, ...], ...] = field(repr=False)

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
        """Write the report as one HTML page that needs nothing else."""
        path = Path(path)
        path.write_text(page(self.name, str(self), self.stages),
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
        tuple(described(nest, options)
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
