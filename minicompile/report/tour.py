"""The tour: a model compiled, trained and compared, stage by stage.

In: a model's name. Out: what happened, printed with rich for a terminal
of 80 to 100 columns: each stage in a few lines, the training, then
results and step times of eager, minicompile and torch.compile.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console, Group
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from torch import nn

from ..core.errors import brief
from ..driver import compile
from ..models import build
from .stages import StageView, views

#: Steps trained, and rounds in which step times are taken.
STEPS, ROUNDS = 8, 5


def tour(name: str, device: str = "cpu", stage: str | None = None,
         compare: bool = True, console: Console | None = None) -> None:
    """Show what becomes of a model; or one stage of it, in full."""
    console = console or Console(highlight=False)
    console.width = min(console.width, 100)
    model, batch = build(name, device)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    console.rule(f"[bold]minicompile[/]  {name}, {size:.2g}M parameters, "
                 f"{device}, torch {torch.__version__}")
    runs = {"eager": copy.deepcopy(model), "minicompile": compile(model)}
    firsts = {}
    with console.status("compiling forward and backward"):
        for each, run in runs.items():
            firsts[each] = time_of(
                lambda run=run: run(*batch).backward(), device)
    made = stages_of(runs["minicompile"])
    if stage is not None:
        for view in [v for v in made if v.name == stage] or made:
            console.print(panel(view.name, view, view.full))
        return
    console.print()
    for number, view in enumerate(made, 1):
        console.print(panel(f"{number} {view.name:<6}", view, view.excerpt))
    most = difference(model, runs["eager"])
    console.print("[bold]Gradients[/] differ from eager's by at most "
                  f"{most:.1e} of their size.\n")
    console.print(agreement(console, runs, batch))
    if compare:
        theirs = torch.compile(copy.deepcopy(model))
        try:
            with console.status("compiling with torch.compile"):
                firsts["torch.compile"] = time_of(
                    lambda: theirs(*batch).backward(), device)
            runs["torch.compile"] = theirs
        except Exception as error:
            console.print(f"\ntorch.compile fails here: {brief(error)}")
        console.print(race(console, runs, firsts, batch, device))


def stages_of(compiled: Callable) -> tuple[StageView, ...]:
    """The stages of the newest entry; one View that says why if none."""
    cache = compiled.cache
    if not cache.entries:
        reasons = ", ".join(cache.stats().fallbacks)
        return (StageView("trace", f"runs as eager: {reasons}"),)
    return views(cache.entries[0], cache.settings.chosen, compiled)


def panel(head: str, view: StageView, text: str) -> Group:
    """One stage: its name, its summary, some of its text in colours."""
    code = Syntax(text, view.language, background_color="default",
                  theme="ansi_dark", word_wrap=True)
    head = Text.assemble((f"{head} ", "bold cyan"), view.summary)
    return Group(head, *([Padding(code, (0, 2))] if text else []), "")


def time_of(call: Callable[[], object], device: str) -> float:
    """How long the call takes, the device's work included."""
    start = time.perf_counter()
    call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def difference(model: nn.Module, eager: nn.Module) -> float:
    """The largest relative difference of the gradients that both have."""
    pairs = [(ours.grad, theirs.grad) for ours, theirs in zip(
        model.parameters(), eager.parameters()) if theirs.grad is not None]
    return max(((ours - theirs).norm() / theirs.norm()).item()
               for ours, theirs in pairs)


def stepper(model: Callable, batch: tuple) -> Callable[[], torch.Tensor]:
    """One training step as a function that returns the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def agreement(console: Console, runs: dict[str, Callable], batch: tuple
              ) -> Table:
    """The losses of the same few steps of each model."""
    rows = []
    for name, model in runs.items():
        with console.status(f"training {name}"):
            step = stepper(model, batch)
            rows.append((name, *(f"{step().item():.4f}"
                                 for _ in range(STEPS))))
    return table("Training with AdamW", ("loss", *map(
        str, range(1, STEPS + 1))), rows)


def race(console: Console, runs: dict[str, Callable],
         firsts: dict[str, float], batch: tuple, device: str) -> Table:
    """First call, step time, and a bar for each, the rounds interleaved."""
    steps = {name: stepper(run, batch) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    with console.status("timing training steps"):
        for _ in range(ROUNDS + 1):
            for name, step in steps.items():
                times[name].append(time_of(step, device))
    medians = {name: statistics.median(seen[1:])
               for name, seen in times.items()}
    slowest = max(medians.values())
    return table("\nA training step", ("", "first call", "step", ""), [
        (name, f"{firsts[name]:.1f} s",
         f"{median * 1e3:.2f} ms", "━" * round(36 * median / slowest))
        for name, median in medians.items()])


def table(title: str, head: tuple, rows: list[tuple]) -> Table:
    """Rows under a head; what has none, and names, stand to the left."""
    made = Table(title=title, title_justify="left", title_style="bold",
                 box=None)
    for number, column in enumerate(head):
        made.add_column(column, no_wrap=not number, justify=(
            "right" if number and column else "left"))
    for row in rows:
        made.add_row(*row)
    return made
