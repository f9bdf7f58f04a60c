"""The tour: a model compiled, trained and compared, stage by stage.

In: a model's name. Out: what happened, printed with rich for a terminal
of 80 to 100 columns: each stage in a few lines, the training, then
results and step times of eager, minicompile and torch.compile.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console, Group
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text
from torch import nn

from ...core.errors import brief
from ...driver import compile
from ...models import MODELS, build
from ..gather import COMMANDS, explain

#: The stages that --stage can name, in order.
STAGES = ("trace", "guards", "split", "budget", "fusion", "emit", "replay")

#: Steps trained, and rounds in which step times are taken.
STEPS, ROUNDS = 8, 5

EXAMPLES = """examples:
  minicompile                              the GPT, each stage, then timed
  minicompile --model mlp --no-compare     the shortest tour
  minicompile --model resnet --stage emit  every kernel of the ResNet
  minicompile --device cuda                Triton kernels on the GPU

MINICOMPILE_LOGS=guards,output_code prints what a stage made while it runs.
"""


def command(arguments: list[str] | None = None) -> None:
    """Read the command line and give the tour."""
    from ... import __version__  # it is not there while this is loaded

    parser = argparse.ArgumentParser(
        prog="minicompile", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compile a small model, show each stage, compare it "
                    "with eager and torch.compile.")
    parser.add_argument("--version", action="version", version=(
        f"minicompile {__version__}, torch {torch.__version__}"))
    parser.add_argument("--model", choices=MODELS, default="gpt",
                        help="which of the book's models (default: gpt)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--stage", choices=STAGES,
                        help="show one stage in full, and nothing else")
    parser.add_argument("--no-compare", action="store_true",
                        help="do not time eager and torch.compile")
    given = parser.parse_args(arguments)
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {given.device}: torch sees no CUDA GPU")
    tour(given.model, given.device, given.stage, not given.no_compare)


COMMANDS.append(command)


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
    report = explain(runs["minicompile"])(*batch)
    made = report.stages[-1] if report.stages else ()
    if stage is not None or not made:
        for view in [each for each in made if each.name == stage]:
            console.print(panel(view.name, view.summary, view.full))
        console.print("" if made else report)
        return
    console.print()
    for number, view in enumerate(made, 1):
        console.print(panel(f"{number} {view.name:<6}", view.summary,
                            view.excerpt))
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


def panel(head: str, summary: str, text: str) -> Group:
    """One stage: its name, its summary, some of its text in colours."""
    language = "cpp" if text.startswith('extern "C"') else "python"
    code = Syntax(text, language, background_color="default",
                  theme="ansi_dark", word_wrap=True)
    head = Text.assemble((f"{head} ", "bold cyan"), summary)
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
    columns = [Column(column, no_wrap=not number, justify=(
        "right" if number and column else "left"))
               for number, column in enumerate(head)]
    made = Table(*columns, title=title, title_justify="left",
                 title_style="bold", box=None)
    for row in rows:
        made.add_row(*row)
    return made
