"""The tour: a model compiled, trained and compared, stage by stage.

In: a model's name. Out: what happened, printed with rich for a terminal
of 80 to 100 columns: each stage in a few lines, the training, then
results and step times of eager, minicompile and torch.compile.
"""

from __future__ import annotations

import copy
import statistics
import textwrap
import time
from collections.abc import Callable

import torch
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from torch import nn

from ..driver import compile
from ..models import build
from .gather import options_of
from .stages import View, views

#: Steps trained, and rounds in which step times are taken.
STEPS, ROUNDS = 8, 5


def tour(name: str, device: str = "cpu", stage: str | None = None,
         compare: bool = True, console: Console | None = None) -> None:
    """Show what becomes of a model; or one stage of it, in full."""
    console = console or Console(highlight=False)
    console.width = min(console.width, 100)
    model, batch = build(name, device)
    console.rule(f"[bold]minicompile[/]  {name}, {size(model)}, {device}, "
                 f"torch {torch.__version__}")
    eager, compiled = copy.deepcopy(model), compile(model)
    with console.status("compiling forward and backward"):
        first = seconds(lambda: compiled(*batch).backward(), device)
    made = stages_of(compiled)
    if stage is not None:
        show_full(console, made, stage)
        return
    console.print()
    for number, view in enumerate(made, 1):
        console.print(panel(number, view, console.width))
    gradients = difference(model, eager, batch)
    console.print("[bold]Gradients[/] differ from eager's by at most "
                  f"{gradients:.1e} of their size.\n")
    both = {"eager": eager, "minicompile": compiled}
    console.print(agreement(train(console, both, batch)))
    if compare:
        console.print(race(console, model, compiled, batch, device, first))


def size(model: nn.Module) -> str:
    """`3.9M parameters`."""
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.2g}M " \
           "parameters"


def stages_of(compiled: Callable) -> tuple[View, ...]:
    """The stages of the newest entry; one View that says why if none."""
    cache = compiled.cache
    if not cache.entries:
        reasons = ", ".join(cache.stats.fallbacks)
        return (View("trace", f"runs as eager: {reasons}"),)
    return views(cache.entries[0], options_of(cache), compiled)


def show_full(console: Console, made: tuple[View, ...], stage: str) -> None:
    """One stage with all of its text."""
    view = next((v for v in made if v.name == stage), None)
    if view is None:
        console.print(f"no {stage}: {made[-1].name} {made[-1].summary}")
        return
    console.print(f"[bold]{view.name}[/]  {view.summary}\n")
    console.print(code(view.full, view.language, console.width))


def panel(number: int, view: View, width: int) -> Group:
    """One stage: its number, its summary, its excerpt."""
    head = Text.assemble((f"{number} {view.name:<7}", "bold cyan"),
                         view.summary)
    if not view.excerpt:
        return Group(head, "")
    return Group(head, Padding(code(view.excerpt, view.language, width - 4),
                               (0, 2)), "")


def code(text: str, language: str, width: int) -> Syntax:
    """Program text in colours, its long lines folded at commas."""
    lines = [piece for line in text.splitlines()
             for piece in folded(line, width)]
    return Syntax("\n".join(lines), language, background_color="default",
                  theme="ansi_dark")


def folded(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width`, the later ones indented."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    return textwrap.wrap(line, width, subsequent_indent=indent,
                         drop_whitespace=True, break_on_hyphens=False)


def seconds(call: Callable[[], object], device: str) -> float:
    """How long the call takes, the device's work included."""
    start = time.perf_counter()
    call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def difference(model: nn.Module, eager: nn.Module, batch: tuple) -> float:
    """The largest relative difference of the models' gradients.

    `model` has its gradients; both are left without any.
    """
    eager(*batch).backward()
    found = [((ours.grad - theirs.grad).norm() / theirs.grad.norm()).item()
             for ours, theirs in zip(model.parameters(), eager.parameters())
             if theirs.grad is not None]
    for each in (model, eager):
        each.zero_grad()
    return max(found)


def train(console: Console, models: dict[str, Callable], batch: tuple
          ) -> dict[str, list[float]]:
    """The losses of the same few steps of each model."""
    losses: dict[str, list[float]] = {name: [] for name in models}
    bar = Progress(TextColumn("training"), BarColumn(),
                   TextColumn("{task.completed}/{task.total} steps"),
                   TextColumn("loss {task.fields[loss]:.4f}"),
                   console=console, transient=True)
    with bar:
        task = bar.add_task("", total=STEPS * len(models), loss=0.0)
        for name, model in models.items():
            step = stepper(model, batch)
            for _ in range(STEPS):
                losses[name].append(step().item())
                bar.update(task, advance=1, loss=losses[name][-1])
    return losses


def stepper(model: Callable, batch: tuple) -> Callable[[], torch.Tensor]:
    """One training step as a function that returns the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> torch.Tensor:
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step


def agreement(losses: dict[str, list[float]]) -> Table:
    """The losses of both, step by step."""
    table = Table(title="Training with AdamW", title_justify="left",
                  title_style="bold", box=None)
    table.add_column("loss", no_wrap=True)
    for number in range(STEPS):
        table.add_column(str(number + 1), justify="right")
    for name, values in losses.items():
        table.add_row(name, *(f"{value:.4f}" for value in values))
    return table


def race(console: Console, model: nn.Module, compiled: Callable,
         batch: tuple, device: str, first: float) -> Table:
    """First call and step time of eager, minicompile, torch.compile."""
    theirs = torch.compile(copy.deepcopy(model))
    firsts = {"eager": None, "minicompile": first}
    with console.status("torch.compile compiles the same model"):
        firsts["torch.compile"] = seconds(
            lambda: theirs(*batch).backward(), device)
    runs = {"eager": copy.deepcopy(model), "minicompile": compiled,
            "torch.compile": theirs}
    steps = {name: stepper(run, batch) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    with console.status("timing training steps"):
        for _ in range(ROUNDS + 1):
            for name, step in steps.items():
                times[name].append(seconds(step, device))
    medians = {name: statistics.median(seen[1:])
               for name, seen in times.items()}
    return podium(firsts, medians)


def podium(firsts: dict[str, float | None], medians: dict[str, float]
           ) -> Table:
    """The times as a table with a bar for each."""
    table = Table(title="\nA training step", title_justify="left",
                  title_style="bold", box=None)
    for column, justify in (("", "left"), ("first call", "right"),
                            ("step", "right"), ("", "left")):
        table.add_column(column, justify=justify)
    slowest = max(medians.values())
    for name, median in medians.items():
        first = firsts[name]
        table.add_row(name, "" if first is None else f"{first:.1f} s",
                      f"{median * 1e3:.2f} ms",
                      "━" * max(1, round(36 * median / slowest)))
    return table
