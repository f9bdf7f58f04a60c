"""Sixteen functions on a GPU, over thirteen shapes: where are the cliffs?

    python -m chapters.measure.gpu_shapes      520 rows, some 3 minutes

A schedule that is fast for rows of 1024 may crawl for rows of 7 or 50,257.
Every function runs on bfloat16 and on float32; half of them once more with
their gradients. As in gpu_functions, a replay of a CUDA graph is timed. All
processes compile their share; then they take turns with the GPU.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from rich.progress import track
from torch.nn import functional as F

import minicompile
from chapters.measure.gpu_functions import (HALF, PROCESSES, floats, job,
                                            micros, recorded)
from chapters.measure.timing import save

SHAPES = [(1 << 20, 7), (1 << 20, 8), (1 << 17, 48), (1 << 16, 100),
          (1 << 15, 256), (1 << 13, 1000), (1 << 12, 3072), (1 << 10, 8192),
          (200, 50_257), (64, 1 << 17), (8, 1 << 20), (64, 512), (1024, 1024)]


def scaled(x, *weights):
    return F.layer_norm(x, (x.shape[-1],), *weights)


def entropy(x):
    labels = torch.full((len(x),), 3, device=x.device)
    return F.cross_entropy(x, labels)


#: The functions, of a matrix and as many weights of a row.
FUNCTIONS: dict[str, tuple[Callable, int]] = {
    "softmax": (lambda x: x.softmax(-1), 0),
    "logsumexp": (lambda x: x.logsumexp(-1), 0),
    "layer norm": (scaled, 2),
    "rms norm": (lambda x, w: F.rms_norm(x, (x.shape[-1],), w), 1),
    "sum": (lambda x: x.sum(-1), 0),
    "sum of columns": (lambda x: x.sum(0), 0),
    "argmax": (lambda x: x.argmax(-1), 0),
    "maximum of columns": (lambda x: x.amax(0), 0),
    "variance": (lambda x: x.var(-1), 0),
    "variance of columns": (lambda x: x.var(0), 0),
    "gelu": (F.gelu, 0),
    "transpose": (lambda x: x.t().contiguous() + 1, 0),
    "normalize": (lambda x: F.normalize(x, dim=-1), 0),
    "cross entropy": (entropy, 0),
    "softmax of columns": (lambda x: x.softmax(0), 0),
    "batch norm": (lambda x: (x - x.mean(0)) * (
        x.var(0) + 1e-5).rsqrt(), 0)}

#: Those that also run with their gradients, on bfloat16.
TRAINED = {"softmax", "layer norm", "rms norm", "variance", "normalize",
           "cross entropy", "sum of columns", "batch norm"}


class Case(NamedTuple):
    """A function on one shape and type, perhaps with its gradients."""

    name: str
    shape: tuple[int, int]
    dtype: torch.dtype
    train: bool

    def __str__(self):
        rows, columns = self.shape
        return (f"{self.name} {rows}x{columns} {str(self.dtype)[6:]}"
                + ", gradients" * self.train)


def cases() -> Iterator[Case]:
    for name in FUNCTIONS:
        for shape in SHAPES:
            for dtype in (HALF, torch.float32):
                for train in (False, True)[
                        :1 + (name in TRAINED and dtype == HALF)]:
                    yield Case(name, shape, dtype, train)


def ways(case: Case) -> dict[str, Callable]:
    """The function as each candidate has it."""
    function, _ = FUNCTIONS[case.name]
    return {"eager": function,
            "torch.compile": torch.compile(function, dynamic=False),
            "minicompile": minicompile.compile(function, dynamic=False)}


def jobs(case: Case, functions: dict[str, Callable]) -> dict[str, Callable]:
    """A call of each candidate, on the same numbers."""
    torch.manual_seed(0)
    args = [floats(*case.shape, dtype=case.dtype), *(
        floats(case.shape[-1], dtype=case.dtype)
        for _ in range(FUNCTIONS[case.name][1]))]
    return {who: job(function, args, case.train)
            for who, function in functions.items()}


def part(number: int, folder: Path) -> None:
    """Compile a share of the cases; time them when all have compiled."""
    compiled = {}
    try:
        for case in list(cases())[number::PROCESSES]:
            compiled[case] = ways(case)
            for run in jobs(case, compiled[case]).values():
                run()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    finally:
        (folder / str(number)).touch()
    while len(list(folder.iterdir())) < PROCESSES:
        time.sleep(0.05)
    with open(folder / "0") as lock:
        for case, functions in compiled.items():
            fcntl.flock(lock, fcntl.LOCK_EX)
            row = {"what": str(case)} | micros({
                who: recorded(run)
                for who, run in jobs(case, functions).items()})
            torch.cuda.empty_cache()
            fcntl.flock(lock, fcntl.LOCK_UN)
            print(json.dumps(row), flush=True)


def main() -> None:
    """Start all parts, collect their rows, keep them in order."""
    order = [str(case) for case in cases()]
    with tempfile.TemporaryDirectory() as folder:
        running = [subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(k), folder],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for k in range(PROCESSES)]
        found = {}
        for each in track(running, "compiling and timing"):
            for row in map(json.loads, each.stdout):
                found[row["what"]] = row
    missing = [what for what in order if what not in found]
    assert not missing, missing
    save("gpu_shapes", [found[what] for what in order])


if __name__ == "__main__":
    if sys.argv[1:]:
        part(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
