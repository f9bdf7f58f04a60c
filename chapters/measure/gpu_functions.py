"""A hundred small functions on a GPU: eager, torch.compile and ours.

    python -m chapters.measure.gpu_functions           all, some 4 minutes
    python -m chapters.measure.gpu_functions "pool, norm"   names with these

Each runs forward and, if it can, also with its gradients. What is timed is
a replay of a CUDA graph: the kernels, and no Python. The candidates compile
in several processes first, and find what those made on disk. `far` is how
far ours is from eager's result, as a share of the largest number.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.progress import track
from torch.nn import functional as F

import minicompile
from chapters.measure.timing import RESULTS, machine, save

M = 1 << 20
HALF = torch.bfloat16
PROCESSES = 14


class Family(NamedTuple):
    """A function, what makes its arguments, whether it has gradients."""

    function: Callable
    make: Callable[[], tuple]
    train: bool = True


def floats(*shape, dtype=torch.float32, **more):
    return torch.randn(shape, device="cuda", dtype=dtype, **more)


def halves(*shape):
    return floats(*shape, dtype=HALF)


def whole(most: int, *shape):
    return torch.randint(most, shape, device="cuda")


def one(*shape, make=floats):
    return lambda: (make(*shape),)


def two(*shape, make=floats):
    return lambda: (make(*shape), make(*shape))


def norm_of(*shape, width: int, make=floats, count: int = 2):
    return lambda: (make(*shape), *(make(width) for _ in range(count)))


def focal(x, t):
    p = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return ((1 - (p * t + (1 - p) * (1 - t))) ** 2 * loss).mean()


def rope(q, c, s):
    return q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s


def channels_norm(x, w, b):
    off = x - x.mean(1, keepdim=True)
    scale = (off.pow(2).mean(1, keepdim=True) + 1e-6).sqrt()
    return off / scale * w[:, None, None] + b[:, None, None]


def windows(x):
    """The windows of a Swin transformer, shifted."""
    return x.roll((3, 3), (1, 2)).view(32, 8, 7, 8, 7, 96).permute(
        0, 1, 3, 2, 4, 5).reshape(-1, 49, 96) * 2


def quantized(x):
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def normed_residual(x, y, w, b):
    return F.layer_norm(x + F.dropout(y, .1), (768,), w, b)


def plainly_attended(q, k, v):
    weights = (q @ k.transpose(-1, -2) / 8).float().softmax(-1)
    return weights.to(q.dtype) @ v


def gated(x, a, b, c):
    return F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), c)


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, True).relu()


FAMILIES = {
    "sines": Family(lambda x: (x.sin() * 2 + x.cos()).exp().tanh(),
                    one(16 * M)),
    "gelu bf16": Family(F.gelu, one(64 * M, make=halves)),
    "silu * y": Family(lambda x, y: F.silu(x) * y, two(16 * M)),
    "integer division": Family(
        lambda x, y: x // y + x % y,
        lambda: (whole(1000, 16 * M), whole(50, 16 * M) + 1), False),
    "power": Family(lambda x: x.abs() ** 2.5, one(16 * M)),
    "randn": Family(lambda x: x + torch.randn_like(x), one(16 * M)),
    "dropout": Family(lambda x: F.dropout(x, .1), one(16 * M)),
    "where": Family(lambda x, y: torch.where(
        x > y, x.clamp(-1, 1), y * 2), two(16 * M)),
    "x.t() + y": Family(lambda x, y: x.t() + y, two(4096, 4096)),
    "channels last": Family(lambda x: (x * 2).permute(
        0, 2, 3, 1).contiguous(), one(32, 64, 56, 56)),
    "cat columns": Family(lambda *x: torch.cat([t * 2 for t in x], 1),
                          lambda: [floats(4096, 128) for _ in range(12)]),
    "cat rows": Family(lambda *x: torch.cat([t + 1 for t in x]).relu(),
                       lambda: [floats(1024, 512) for _ in range(8)]),
    "flip, roll": Family(lambda x: x.flip(1) + x.roll(3, 0),
                         one(4096, 4096)),
    "pad reflect": Family(lambda x: F.pad(
        x, (1, 1, 1, 1), mode="reflect") * 2, one(32, 64, 56, 56)),
    "pad": Family(lambda x: F.pad(x.relu(), (1, 1, 1, 1)),
                  one(32, 64, 56, 56)),
    "pixel shuffle": Family(lambda x: F.pixel_shuffle(x, 2) * 2,
                            one(32, 256, 56, 56)),
    "unfold": Family(lambda x: F.unfold(x, 3) * 2, one(8, 64, 56, 56)),
    "causal softmax": Family(lambda x: x.masked_fill(torch.ones(
        1024, 1024, device="cuda", dtype=torch.bool).triu(1), -1e9
        ).softmax(-1), one(64, 1024, 1024)),
    "gather": Family(lambda x, i: x.gather(1, i) * 2, lambda: (
        floats(4096, 4096), whole(4096, 4096, 1024))),
    "rows of a table": Family(lambda x, i: x[i] * 2, lambda: (
        floats(65536, 256), whole(65536, 65536))),
    "embedding": Family(
        lambda w, i, p: F.embedding(i, w) + p,
        lambda: (floats(50000, 768), whole(50000, 8, 1024),
                 floats(1024, 768))),
    "index_add": Family(
        lambda x, i: x.new_zeros(4096, 128).index_add(0, i, x * 2),
        lambda: (floats(65536, 128), whole(4096, 65536))),
    "one_hot": Family(lambda i: F.one_hot(i, 1000).float(),
                      lambda: (whole(1000, 16384),), False),
    "sum of columns": Family(lambda x: (x * x).sum(0), one(16384, 1024)),
    "of few columns": Family(lambda x: (x * x).sum(0), one(M, 16)),
    "sum": Family(lambda x: (x * x).sum(), one(16 * M)),
    "sum of short rows": Family(lambda x: (x * x).sum(1), one(M, 16)),
    "sum in the middle": Family(lambda x: (x * x).sum(1),
                                one(64, 512, 512)),
    "mean of channels": Family(lambda x: x.mean((0, 2, 3)),
                               one(64, 128, 56, 56)),
    "mean of images": Family(lambda x: x.relu().mean((2, 3)),
                             one(64, 512, 14, 14)),
    "variance": Family(lambda x: x.var(1) + x.mean(1), one(4096, 4096)),
    "deviation of columns": Family(lambda x: x.std(0), one(4096, 4096)),
    "argmax": Family(lambda x: x.argmax(1), one(4096, 4096), False),
    "argmax of columns": Family(lambda x: x.argmax(0), one(4096, 4096),
                                False),
    "max": Family(lambda x: x.max(1)[0], one(4096, 4096)),
    "softmax bf16": Family(lambda x: x.softmax(-1),
                           one(8192, 4096, make=halves)),
    "softmax of columns": Family(lambda x: x.softmax(0), one(4096, 4096)),
    "softmax in the middle": Family(lambda x: x.softmax(1),
                                    one(64, 512, 512)),
    "softmax of short rows": Family(lambda x: x.softmax(-1),
                                    one(1 << 18, 49)),
    "logsumexp": Family(lambda x: x.logsumexp(-1), one(4096, 32768)),
    "cumsum": Family(lambda x: (x * 2).cumsum(-1), one(4096, 4096)),
    "unit rows": Family(lambda x: x / x.norm(dim=-1, keepdim=True),
                        one(8192, 4096)),
    "cross entropy, 50257": Family(
        lambda x, t: F.cross_entropy(x.float(), t),
        lambda: (halves(4096, 50257), whole(50257, 4096))),
    "cross entropy, 1000": Family(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=.1),
        lambda: (floats(8192, 1000), whole(1000, 8192))),
    "binary cross entropy": Family(
        F.binary_cross_entropy_with_logits,
        lambda: (floats(16 * M), floats(16 * M).sigmoid())),
    "focal loss": Family(focal, lambda: (
        floats(8 * M), floats(8 * M).sigmoid())),
    "divergence": Family(lambda x, t: F.kl_div(
        x.log_softmax(-1), t.log_softmax(-1), log_target=True,
        reduction="batchmean"), two(8192, 4096)),
    "squared error": Family(F.mse_loss, two(16 * M)),
    "cosine": Family(lambda x, y: F.cosine_similarity(x, y).mean(),
                     two(65536, 256)),
    "layer norm bf16": Family(
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        norm_of(16384, 1024, width=1024, make=halves)),
    "layer norm": Family(lambda x, w, b: F.layer_norm(x, (4096,), w, b),
                         norm_of(8192, 4096, width=4096)),
    "residual, dropout, norm": Family(normed_residual, lambda: (
        *two(16384, 768, make=halves)(), halves(768), halves(768))),
    "rms norm": Family(lambda x, w: F.rms_norm(x, (2048,), w), norm_of(
        16384, 2048, width=2048, make=halves, count=1)),
    "group norm": Family(
        lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
        norm_of(32, 256, 32, 32, width=256)),
    "large group norm": Family(
        lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
        norm_of(8, 128, 128, 128, width=128, make=halves)),
    "batch norm": Family(batch_norm, norm_of(64, 128, 56, 56, width=128)),
    "batch norm, channels last": Family(batch_norm, lambda: (
        halves(64, 128, 56, 56).to(memory_format=torch.channels_last),
        floats(128), floats(128))),
    "norm of channels": Family(channels_norm,
                               norm_of(32, 128, 56, 56, width=128)),
    "instance norm": Family(lambda x: F.instance_norm(x).relu(),
                            one(32, 64, 64, 64)),
    "max pool": Family(lambda x: F.max_pool2d(x.relu(), 3, 2, 1),
                       one(32, 64, 112, 112)),
    "mean pool": Family(lambda x: F.avg_pool2d(x.relu(), 2),
                        one(32, 64, 112, 112)),
    "overlapping mean pool": Family(
        lambda x: F.avg_pool2d(x, 3, 1, 1) - x, one(32, 64, 56, 56)),
    "adaptive pool": Family(lambda x: F.adaptive_avg_pool2d(x.relu(), 7),
                            one(32, 512, 14, 14)),
    "nearest": Family(lambda x: F.interpolate(x.relu(), scale_factor=2),
                      one(16, 64, 64, 64)),
    "bilinear": Family(lambda x: F.interpolate(
        x.relu(), scale_factor=2, mode="bilinear"), one(16, 64, 64, 64)),
    "bicubic": Family(lambda x: F.interpolate(
        x.relu(), scale_factor=2, mode="bicubic"), one(16, 16, 64, 64)),
    "grid_sample": Family(
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda: (floats(16, 32, 64, 64), floats(16, 64, 64, 2).tanh())),
    "convolution, norm": Family(
        lambda x, k, w, b: batch_norm(F.conv2d(x, k, padding=1), w, b),
        lambda: (halves(32, 64, 56, 56), halves(64, 64, 3, 3), halves(64),
                 halves(64))),
    "convolution, bias": Family(
        lambda x, k, b: F.conv2d(x, k, b, padding=1).relu(),
        lambda: (floats(32, 64, 56, 56), floats(64, 64, 3, 3),
                 floats(64))),
    "depthwise": Family(
        lambda x, k, b: F.gelu(F.conv2d(x, k, b, padding=3, groups=384)),
        lambda: (halves(32, 384, 14, 14), halves(384, 1, 7, 7),
                 halves(384))),
    "convolution of a line": Family(
        lambda x, k, b: F.silu(F.conv1d(x, k, b, padding=1)),
        lambda: (halves(16, 256, 4096), halves(256, 256, 3), halves(256))),
    "linear, gelu": Family(
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda: (halves(16384, 1024), halves(4096, 1024), halves(4096))),
    "swiglu": Family(gated, lambda: (
        halves(8192, 1024), halves(2816, 1024), halves(2816, 1024),
        halves(1024, 2816))),
    "one row, gelu": Family(
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda: (halves(1, 4096), halves(4096, 4096), halves(4096)),
        False),
    "one row, swiglu": Family(gated, lambda: (
        halves(1, 2048), halves(8192, 2048), halves(8192, 2048),
        halves(2048, 8192)), False),
    "one row, 50257 scores": Family(
        lambda x, w: F.linear(x, w).float().softmax(-1),
        lambda: (halves(1, 768), halves(50257, 768)), False),
    "attention in parts": Family(plainly_attended, lambda: [
        halves(8, 16, 512, 64) for _ in range(3)]),
    "attention": Family(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True) * 2,
        lambda: [halves(8, 16, 1024, 64) for _ in range(3)]),
    "matrix and vector": Family(lambda a, x: (a @ x).relu(), lambda: (
        floats(8192, 8192), floats(8192))),
    "many 3 x 3 products": Family(
        lambda a, b: torch.tanh(a @ b), two(100_000, 3, 3)),
    "many 8 x 8 products, bf16": Family(
        lambda a, b: torch.tanh(a @ b), two(100_000, 8, 8, make=halves)),
    "turned points": Family(
        lambda x, turn: (x - x.mean(0)) @ turn.T,
        lambda: (floats(1_000_000, 3), floats(3, 3))),
    "distances": Family(
        lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
        two(1024, 64)),
    "narrow product": Family(
        lambda x, w, b: torch.tanh(x @ w + b),
        lambda: (floats(65536, 8), floats(8, 256), floats(256))),
    "rotary": Family(rope, lambda: (
        halves(8, 16, 1024, 64), *two(1024, 64, make=halves)())),
    "topk": Family(lambda x: x.softmax(-1).topk(8)[0], one(4096, 4096),
                   False),
    "quantized": Family(quantized, one(4096, 4096), False),
    "sliding mean": Family(lambda x: x.unfold(1, 8, 4).mean(-1),
                           one(4096, 4096)),
    "masked mean": Family(
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
        lambda: (floats(64, 1024, 256), whole(2, 64, 1024) > 0)),
    "shifted windows": Family(windows, one(32, 56, 56, 96, make=halves)),
    "moving average": Family(
        lambda *p: [a * .99 + b * .01 for a, b in zip(p[:16], p[16:])],
        lambda: [floats(512, 512) for _ in range(32)], False),
}


def job(function: Callable, args, train: bool) -> Callable:
    """A call of the function; or of it and its gradients."""
    torch.manual_seed(1)
    if not train:
        return lambda: function(*args)
    leaves = [each.detach().clone().requires_grad_()
              if each.is_floating_point() else each for each in args]
    wanted = [each for each in leaves if each.requires_grad]
    with torch.no_grad():
        start = torch.randn_like(function(*args))

    def run():
        torch.manual_seed(1)
        return torch.autograd.grad(function(*leaves), wanted, start)
    return run


def recorded(run: Callable) -> Callable:
    """A call's kernels, to be replayed; it keeps the call's tensors."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(_alive=run):
        graph.replay()
    return replay


def micros(runs: dict[str, Callable], rounds: int = 9,
           replays: int = 5) -> dict[str, float]:
    """Median microseconds of a replay of each, taking turns."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = {who: [] for who in runs}
    for _ in range(rounds):
        for who, replay in runs.items():
            replay()
            start.record()
            for _ in range(replays):
                replay()
            end.record()
            end.synchronize()
            found[who].append(start.elapsed_time(end) / replays * 1e3)
    return {who: statistics.median(each) for who, each in found.items()}


def far(mine, eager) -> float:
    """The largest difference, as a share of the largest number."""
    mine, eager = ([each] if torch.is_tensor(each) else [*each]
                   for each in (mine, eager))
    return max(float((a.double() - b.double()).abs().max() / b.double(
        ).abs().max().clamp(min=1e-30)) for a, b in zip(mine, eager))


def measured(name: str, train: bool, timed: bool) -> dict[str, object]:
    """One row; or the candidates compiled, and no more."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    args = family.make()
    torch._dynamo.reset()
    minicompile.reset()
    ways = {"eager": family.function,
            "torch.compile": torch.compile(family.function, dynamic=False),
            "minicompile": minicompile.compile(family.function,
                                               dynamic=False)}
    row, runs = {"what": name + ", gradients" * train}, {}
    for who, function in ways.items():
        try:
            run = job(function, args, train)
            if timed:
                runs[who] = recorded(run)
            else:
                run()
        except Exception as error:
            row[who] = f"{type(error).__name__}: {error}"[:80]
    row |= micros(runs)
    if timed:
        torch.manual_seed(1)
        eager = job(ways["eager"], args, train)()
        torch.manual_seed(1)
        row["far"] = far(job(ways["minicompile"], args, train)(), eager)
    torch.cuda.empty_cache()
    return row


def main(asked: str, part: str = "") -> None:
    """Compile in several processes, then time; `part` is one of them.

    If some families are `asked` for, by a part of their names, their rows
    take the place of those measured before.
    """
    todo = [(name, train) for name, family in FAMILIES.items()
            for train in (False, True)[:1 + family.train]
            if any(each in name for each in asked.split(", "))]
    if part:
        for each in todo[int(part)::PROCESSES]:
            measured(*each, timed=False)
        return
    module = [sys.executable, "-m", __spec__.name, asked or ""]
    for each in [subprocess.Popen(
            [*module, str(k)], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL) for k in range(PROCESSES)]:
        each.wait()
    rows = []
    for each in track(todo, "timing"):
        rows.append(measured(*each, timed=True))
        print(json.dumps(rows[-1]), flush=True)
    if asked:
        before = json.loads((RESULTS / "gpu_functions.json").read_text())
        when = {"commit": machine()["commit"]}
        old = {row["what"]: row for row in before["rows"]}
        rows = [*(old | {row["what"]: row | when for row in rows}).values()]
    save("gpu_functions", rows)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
