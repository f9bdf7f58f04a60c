"""What the whole compiler is worth on a CPU, beside eager and torch.compile.

    python -m chapters.measure.cpu            all of it, some 6 minutes
    python -m chapters.measure.cpu kernels    one part
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn import functional as F

import minicompile
from chapters.measure.timing import compare, save
from minicompile.report.views.models import MODELS, build


def gelu_of_layer_norm(x):
    return F.gelu(F.layer_norm(x, (x.shape[-1],))) * 2


def softmax(x):
    return torch.softmax(x, -1)


def ten_pointwise(x, y):
    """Ten pointwise operations."""
    z = torch.relu(x * y + 1) - y.abs()
    z = torch.maximum(z * 0.5, x) + y * z
    return torch.minimum(z - x, y)


def plus_one(x):
    return x + 1


KERNELS = {
    "gelu(layer_norm(x))*2, 4096x1024": (
        gelu_of_layer_norm, lambda: (torch.randn(4096, 1024),)),
    "softmax, 4096x1024": (softmax, lambda: (torch.randn(4096, 1024),)),
    "ten pointwise, 4M": (
        ten_pointwise, lambda: (torch.randn(2**22), torch.randn(2**22))),
    "x + 1, 16 elements": (plus_one, lambda: (torch.randn(16),)),
}


def row(name: str, candidates: dict, **timing) -> dict:
    """One line of a result: milliseconds, and ours over the others."""
    seconds = compare(candidates, **timing)
    ours = seconds["minicompile"]
    return {"what": name,
            **{f"{who} ms": t * 1e3 for who, t in seconds.items()},
            **{f"{who} / ours": t / ours for who, t in seconds.items()
               if who != "minicompile"}}


def kernels() -> None:
    """Single kernels, no gradients."""
    rows = []
    for name, (fn, make) in KERNELS.items():
        args = make()
        torch._dynamo.reset()
        rows.append(row(name, {
            "eager": lambda f=fn, a=args: f(*a),
            "torch.compile": lambda f=torch.compile(fn), a=args: f(*a),
            "minicompile": lambda f=minicompile.compile(fn), a=args: f(*a),
        }))
    save("cpu_kernels", rows)


def step(model, batch):
    """One training step without the optimizer."""
    def run():
        model(*batch).backward()
        for parameter in model.parameters():
            parameter.grad = None
    return run


def models() -> None:
    """A forward and backward of each model."""
    rows = []
    for name in MODELS:
        model, batch = build(name)
        torch._dynamo.reset()
        rows.append(row(name, {
            "eager": step(copy.deepcopy(model), batch),
            "torch.compile": step(torch.compile(copy.deepcopy(model)),
                                  batch),
            "minicompile": step(minicompile.compile(copy.deepcopy(model)),
                                batch),
        }, seconds=0.3, rounds=9))
    save("cpu_models", rows)


def words() -> None:
    """One word through twelve of Llama's layers, without gradients."""
    import transformers
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1408,
        num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=4,
        use_cache=False)).eval()
    word, rows = torch.tensor([[5]]), []
    for dtype in (torch.float32, torch.bfloat16):
        model = made.to(dtype)
        torch._dynamo.reset()
        with torch.no_grad():
            rows.append(row(f"a word, {str(dtype)[6:]}", {
                who: lambda f=compiled: f(word).logits for who, compiled in (
                    ("eager", model),
                    ("torch.compile", torch.compile(model)),
                    ("minicompile", minicompile.compile(model)))},
                seconds=0.3))
    save("cpu_words", rows)


FIRST = """
import sys, time, torch
from minicompile.report.views.models import build
import minicompile
model, batch = build("gpt")
compile = {"torch.compile": torch.compile,
           "minicompile": minicompile.compile}[sys.argv[1]]
start = time.perf_counter()
compile(model)(*batch).backward()
print(time.perf_counter() - start)
"""


def first_call() -> None:
    """Seconds of the GPT's first forward and backward, caches empty."""
    times: dict[str, list[float]] = {}
    for _ in range(3):
        for who in ("torch.compile", "minicompile"):
            with tempfile.TemporaryDirectory() as empty:
                ran = subprocess.run(
                    [sys.executable, "-c", FIRST, who], check=True,
                    stdout=subprocess.PIPE, text=True, env={
                        **os.environ, "TORCHINDUCTOR_CACHE_DIR": empty,
                        "MINICOMPILE_CACHE_DIR": empty})
            times.setdefault(who, []).append(float(ran.stdout))
            time.sleep(0.1)
    rows = [{"who": who, "median s": sorted(seen)[1], "all s": seen}
            for who, seen in times.items()]
    save("cpu_first_call", rows)


PARTS = {"kernels": kernels, "models": models, "words": words,
         "first_call": first_call}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
