"""Chapter 0's figures: the running function, piece by piece.

    python -m chapters.measure.trip

Times each operator of `block` on large inputs by itself, what follows
its matmul beside a copy of the same size, and the whole function, as
eager, torch.compile and minicompile.
"""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F

import minicompile
from chapters._book.running import block, large, tail
from chapters.measure.timing import compare, save


def candidates(function) -> dict:
    """The function as eager, by torch.compile, and by us."""
    return {"eager": function, "torch.compile": torch.compile(function),
            "minicompile": minicompile.compile(function)}


def step(call, x, w):
    """Forward and backward of a scalar loss."""
    return torch.autograd.grad(call(x, w).sum(), (x, w))


def main() -> None:
    """Measure on the GPU if there is one, else on the CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w = large(grad=False, device=device)
    h = x @ w
    target = torch.empty_like(h)
    copy = {"copy": lambda: target.copy_(h)}
    pieces = {
        "x @ w": lambda: x @ w,
        "layer_norm": lambda: F.layer_norm(h, (h.shape[1],)),
        "gelu": lambda: F.gelu(h),
        "* scale": lambda: h * 2,
    }
    xg, wg = large(device=device)
    parts = {
        "pieces": pieces | copy,
        "tail": {who: partial(call, h)
                 for who, call in candidates(tail).items()} | copy,
        "forward": {who: partial(call, x, w)
                    for who, call in candidates(block).items()},
        "training": {who: partial(step, call, xg, wg)
                     for who, call in candidates(block).items()},
    }
    rows = [{"part": part, "what": name, "ms": seconds * 1e3}
            for part, calls in parts.items() for name, seconds in compare(
                calls, cuda=device == "cuda").items()]
    save(f"trip_{device}", rows)


if __name__ == "__main__":
    main()
