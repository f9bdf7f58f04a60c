"""What the whole compiler is worth on a GPU, beside eager and torch.compile.

    python -m chapters.measure.gpu            all of it, some 10 minutes
    python -m chapters.measure.gpu calls      one part
"""

from __future__ import annotations

import copy
import sys
from functools import partial

import torch
from torch import nn

import minicompile
from chapters.measure import gpu_transformers
from chapters.measure.cpu import plus_one, step
from chapters.measure.timing import compare, save
from minicompile.report.views.models import MODELS, build


def state() -> list:
    """What `filtered` begins with: six numbers and how sure they are."""
    one = torch.eye(6, device="cuda")
    return [torch.ones(6, 1, device="cuda"), one, one * .9, one[:1],
            one * .01, one[:1, :1]]


def filtered(given: list) -> tuple:
    """Four steps of a Kalman filter: many products of small matrices."""
    x, p, moves, sees, drift, noise = given
    for _ in range(4):
        x, p = moves @ x, moves @ p @ moves.T + drift
        gain = p @ sees.T / (sees @ p @ sees.T + noise)
        x, p = x + gain @ (noise - sees @ x), p - gain @ sees @ p
    return x, p


def calls() -> None:
    """Microseconds a call where the work is nothing."""
    rows = []
    x = torch.randn(16, device="cuda")
    small, large = (nn.Sequential(*(
        nn.Linear(width, width) for _ in range(20))).cuda()
        for width in (16, 256))
    wide = torch.randn(1, 256, device="cuda")
    again = "reduce-overhead"
    cases = (("x + 1, 16 elements", plus_one, x, None),
             ("x + 1, replayed", plus_one, x, again),
             ("20 x Linear(16, 16)", small, x[None], None),
             ("20 x Linear(256, 256)", large, wide, None),
             ("20 x Linear(256, 256), replayed", large, wide, again),
             ("a Kalman filter, 4 steps", filtered, state(), None))
    for name, fn, given, mode in cases:
        torch._dynamo.reset()
        with torch.no_grad():
            seconds = compare({
                "eager": partial(fn, given),
                "torch.compile": partial(torch.compile(fn, mode=mode),
                                         given),
                "minicompile": partial(minicompile.compile(fn, mode=mode),
                                       given),
            }, cuda=True)
        rows.append({"what": name, **{f"{who} us": t * 1e6
                                      for who, t in seconds.items()}})
    save("gpu_calls", rows)


def models() -> None:
    """A forward and backward of each model, fp32 and bf16."""
    rows = []
    for name in MODELS:
        for dtype in (torch.float32, torch.bfloat16):
            model, batch = build(name, "cuda")
            model = model.to(dtype)
            batch = [b.to(dtype) if b.is_floating_point() else b
                     for b in batch]
            torch._dynamo.reset()
            seconds = compare({
                "eager": step(copy.deepcopy(model), batch),
                "torch.compile": step(
                    torch.compile(copy.deepcopy(model)), batch),
                "minicompile": step(
                    minicompile.compile(copy.deepcopy(model)), batch),
                "minicompile replay": step(minicompile.compile(
                    copy.deepcopy(model), mode="reduce-overhead"), batch),
            }, cuda=True)
            rows.append({"model": name, "dtype": str(dtype)[6:],
                         **{f"{who} ms": t * 1e3
                            for who, t in seconds.items()}})
    save("gpu_models", rows)


class Logits(nn.Module):
    """GPT-2 with its published shape, as a function of tokens."""

    def __init__(self):
        super().__init__()
        self.model, self.batch = gpu_transformers.gpt2()

    def forward(self, tokens):
        return self.model(tokens).logits


def loss(run, batch):
    with torch.autocast("cuda", torch.bfloat16):
        return run(batch).square().mean()


def training(run, batch):
    loss(run, batch).backward()
    run.zero_grad()


def autotune() -> None:
    """`mode="max-autotune"`, in which torch.compile times kernels for each
    product; bf16 autocast."""
    mlp = nn.Sequential(*(each for _ in range(5) for each in (
        nn.Linear(4096, 4096), nn.GELU()))).cuda()
    wide = torch.randn(2048, 4096, device="cuda")
    gpt2 = Logits().cuda().eval()
    tokens = torch.randint(50257, gpt2.batch, device="cuda")
    rows = []
    for name, work, model, batch in (
            ("MLP of 4096, inference", torch.no_grad()(loss), mlp, wide),
            ("MLP of 4096, training", training, mlp, wide),
            ("GPT-2, inference", torch.no_grad()(loss), gpt2, tokens)):
        torch._dynamo.reset()
        ways = {"eager": model,
                "torch.compile": torch.compile(model, mode="max-autotune"),
                "minicompile": minicompile.compile(
                    model, mode="max-autotune")}
        seconds = compare({who: partial(work, run, batch)
                           for who, run in ways.items()}, cuda=True)
        rows.append({"what": name, **{f"{who} ms": t * 1e3
                                      for who, t in seconds.items()}})
    save("gpu_autotune", rows)


PARTS = {"calls": calls, "models": models, "autotune": autotune}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
