"""The running example: one small function that every chapter compiles.

It has a bit of everything: Python that is gone after tracing (`if`,
`.shape`), a matmul that stays a library call, a reduction over rows.
Around it are pointwise operations, and gradients go through all of it.
"""

import torch
from torch.nn import functional as F


def block(x, w, scale=2):
    """A slice of a Transformer: multiply, normalise, bend, stretch."""
    h = x @ w
    h = F.layer_norm(h, (w.shape[1],))
    h = F.gelu(h)
    if scale != 1:
        h = h * scale
    return h


def tail(h, scale=2):
    """The operations of `block` after its matmul."""
    h = F.layer_norm(h, (h.shape[1],))
    return F.gelu(h) * scale


def stubborn(x):
    """A function that cannot be one graph: it asks for a value."""
    if x.sum().item() > 0:
        return x.sin()
    return x.cos()


def drops(x):
    """A layer that drops a tenth of what comes in."""
    return F.dropout(x, 0.1).relu()


def inputs(rows=4, inner=8, columns=16, *, grad=True, device="cpu"):
    """`x` and `w` for block, the same numbers every time."""
    torch.manual_seed(0)
    x = torch.randn(rows, inner, device=device, requires_grad=grad)
    w = torch.randn(inner, columns, device=device, requires_grad=grad)
    return x, w


def large(*, grad=True, device="cpu"):
    """Inputs big enough to time: `x @ w` is 4096 by 1024."""
    return inputs(4096, 256, 1024, grad=grad, device=device)


def call(target, *args, **kwargs):
    """Any callable, called: a function to trace for a module."""
    return target(*args, **kwargs)


def remember(x, seen):
    """Counts its calls, and keeps the last result."""
    seen["calls"] += 1
    seen["last"] = y = x * 2
    return y + seen["calls"]


def halves(x, w):
    """The block on rows; of many rows, only every second one."""
    if x.shape[0] > 100:
        x = x[::2]
    return block(x, w) / x.shape[0]


def row_by_row(x, w):
    """The block on one row at a time."""
    return torch.stack([block(x[row:row + 1], w)
                        for row in range(x.shape[0])])


WEIGHTS = {"odd": 2.0, "even": 0.0}


def series(x, terms=4):
    """Some powers of x, each with the weight of its kind."""
    total = 0
    for power in range(terms):
        weight = WEIGHTS["odd" if power % 2 else "even"]
        if weight:
            total = total + weight * x ** power
    return total
