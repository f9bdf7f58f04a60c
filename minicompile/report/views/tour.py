"""The tour: a model compiled, trained and compared, stage by stage.

In: a model's name. Out: each stage in a few lines for a terminal of 80
to 100 columns, printed with rich. Then come a few steps of training by
eager, minicompile and torch.compile, with losses and times.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from operator import sub
from typing import TYPE_CHECKING

import torch

from ...core.disk.entries import LIBRARIES, clear_entries, described
from ...core.errors import brief
from ...dispatch.driver import compile
from .explain import explain
from .models import MODELS, build

if TYPE_CHECKING:  # rich is loaded by those who take the tour
    from rich.console import Console, Group
    from rich.table import Table

#: The steps that are trained, and those whose losses are shown.
STEPS, SHOWN = 8, (1, 2, 4, 8)

EXAMPLES = """examples:
  minicompile                              the GPT, each stage, then timed
  minicompile --model mlp --no-compare     the shortest tour
  minicompile --device cuda                Triton kernels on the GPU
  minicompile --cache clear                delete what is kept on disk

MINICOMPILE_LOGS=guards,output_code prints what a stage made while it runs.
"""


def tour(arguments: list[str] | None = None) -> None:
    """Read the command line and give the tour."""
    from ... import __version__, calibrate  # not there when this loads

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
    parser.add_argument("--no-compare", action="store_true",
                        help="leave torch.compile out")
    parser.add_argument("--cache", nargs="?", const="show",
                        choices=("show", "clear"),
                        help="say what is kept on disk, or delete it")
    parser.add_argument("--calibrate", action="store_true",
                        help="measure the device for the prices of the "
                             "budget, and nothing else")
    given = parser.parse_args(arguments)
    if given.cache:
        if given.cache == "clear":
            clear_entries()
        return print(described())
    known = ("cpu", "cuda")[:1 + torch.cuda.is_available()]
    if given.device.partition(":")[0] not in known:
        parser.error(f"--device {given.device}: should be " + (
            "cpu or cuda" if known[1:] else "cpu; torch sees no CUDA GPU"))
    if given.calibrate:
        print(calibrate(given.device))
        return
    show(given.model, given.device, not given.no_compare)


def show(name: str, device: str = "cpu", compare: bool = True,
         console: Console | None = None) -> None:
    """Show what becomes of a model."""
    from rich.console import Console

    console = console or Console(highlight=False)
    console.width = min(console.width, 100)
    model, batch = build(name, device)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    console.rule(f"[bold]minicompile[/]  {name}, {size:.2g}M parameters, "
                 f"{device}, torch {torch.__version__}")
    runs = {"eager": copy.deepcopy(model), "minicompile": compile(model)}
    if compare:
        runs["torch.compile"] = torch.compile(copy.deepcopy(model))
    seen, caches, failed = {}, {}, ""
    for each, run in runs.items():
        step, before = stepper(run, batch), found_and_made(each)
        with (nullcontext() if each == "minicompile"  # shows its stages
              else console.status(f"the first step of {each}")):
            try:
                seen[each] = step, [step()]
            except Exception as error:
                if each != "torch.compile":
                    raise
                failed = f"torch.compile fails here: {brief(error)}\n"
        caches[each] = warmth(*map(sub, found_and_made(each), before))
    report = explain(runs["minicompile"])(*batch)
    for number, view in enumerate(report.stages[-1], 1):
        console.print(panel(f"{number} {view.name:<6}", view.summary,
                            view.excerpt))
    console.print(failed)
    with console.status("training"):
        console.print(race(seen, caches))


def panel(head: str, summary: str, text: str) -> Group:
    """One stage: its name, its summary, some of its text in colours."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.text import Text

    language = "cpp" if text.startswith('extern "C"') else "python"
    code = Syntax(text, language, background_color="default",
                  theme="ansi_dark", word_wrap=True)
    head = Text.assemble((f"{head} ", "bold cyan"), summary)
    return Group(head, *([Padding(code, (0, 2))] if text else []), "")


def stepper(model: Callable, batch: tuple
            ) -> Callable[[], tuple[float, torch.Tensor]]:
    """A training step as a function that returns its seconds, the
    device's work included, and the loss."""
    from torch.utils.benchmark import timer

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> tuple[float, torch.Tensor]:
        start = timer()
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        return timer() - start, loss.detach()
    return step


def found_and_made(name: str) -> tuple[int, int]:
    """How many programs a compiler has found on disk, and made, so far."""
    if name == "minicompile":
        return LIBRARIES["found"], LIBRARIES["made"]
    theirs = sys.modules.get("torch._dynamo.utils")
    counts = theirs.counters["inductor"] if theirs else Counter()
    return counts["fxgraph_cache_hit"], counts["fxgraph_cache_miss"]


def warmth(found: int, made: int) -> str:
    """Whether a cache had what was asked for."""
    return "" if not found + made else "warm" if not made else (
        f"{found} of {found + made}" if found else "cold")


def race(seen: dict[str, tuple[Callable, list]], caches: dict[str, str]
         ) -> Table:
    """First and later steps and their losses, after more of them, which
    take turns. Each makes the same steps."""
    from rich.table import Table

    for _ in range(STEPS - 1):
        for step, results in seen.values():
            results.append(step())
    table = Table("", "cache", "first step", "step", *(
        f"loss {step}" for step in SHOWN), box=None, title_style="bold",
        title="Training steps with AdamW" + "; the first one of "
        "torch.compile imports its compiler" * ("torch.compile" in seen),
        title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (_, results) in seen.items():
        first, *later = (seconds for seconds, _ in results)
        table.add_row(name, caches[name], f"{first:.1f} s",
                      f"{statistics.median(later) * 1e3:.2f} ms",
                      *(f"{results[step - 1][1].item():.4f}"
                        for step in SHOWN))
    return table
