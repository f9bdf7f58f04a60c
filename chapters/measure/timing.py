"""Timing that compares: candidates take turns, medians are quoted.

Every script here measures ours beside eager and torch.compile in one
run, and keeps what it found in chapters/results/ with the machine,
versions, commit and date. The book's pages draw from those files.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

RESULTS = Path(__file__).parent.parent / "results"


def compare(candidates: dict[str, Callable[[], object]], *,
            rounds: int = 15, seconds: float = 0.05,
            cuda: bool = False) -> dict[str, float]:
    """Median seconds a call of each candidate, taking turns.

    Each turn repeats a candidate for about `seconds`. With `cuda` the
    device is waited for at the end of every turn.
    """
    wait = torch.cuda.synchronize if cuda else lambda: None
    repeats = {}
    for name, call in candidates.items():
        for _ in range(3):
            call()
        repeats[name] = max(1, int(seconds / turn(call, 1, wait)))
    times = {name: [] for name in candidates}
    for _ in tqdm(range(rounds), leave=False, desc=" / ".join(candidates)):
        for name, call in candidates.items():
            times[name].append(turn(call, repeats[name], wait))
    return {name: statistics.median(seen) for name, seen in times.items()}


def turn(call: Callable[[], object], repeats: int, wait) -> float:
    """Seconds a call, over `repeats` calls."""
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return (time.perf_counter() - start) / repeats


def machine() -> dict[str, object]:
    """Where and with what a result was measured."""
    import triton
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "cpu_threads": torch.get_num_threads(),
            "python": platform.python_version(), "torch": torch.__version__,
            "triton": triton.__version__, "commit": _commit(),
            "date": datetime.date.today().isoformat()}


def _commit() -> str | None:
    """The commit measured, marked if the tree had changes; None outside."""
    ran = subprocess.run(["git", "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)
    return ran.stdout.strip() or None


def save(name: str, rows: list[dict], **more: object) -> Path:
    """Write results/<name>.json and show its rows; returns the path."""
    path = RESULTS / f"{name}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(
        {"machine": machine(), **more, "rows": rows}, indent=1) + "\n")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=name)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console(width=110).print(table)
    return path


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
