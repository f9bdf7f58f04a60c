"""Graphs whose rows and columns are reduced, and how they are walked."""

import random

import torch
import torch.nn.functional as F

from minicompile.core.graph import placeholders, value
from minicompile.emit.schedules.walk import down
from tests.fusion.graphs import fake_inputs, halves


def layer_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight)


def block(x, y, scale, weight, bias):
    """A residual with LayerScale, then a norm: sums down four columns."""
    return layer_norm(x + scale * F.gelu(y + bias), weight, bias)


#: Each with how many of its arguments are rows, and how many one row.
NORMS = {"layer_norm": (layer_norm, 1, 2), "rms_norm": (rms_norm, 1, 1),
         "block": (block, 2, 3)}


def backward(name, shape, dtype=torch.float32):
    """The backward graph of a norm, whose tensors need no memory."""
    function, rows, columns = NORMS[name]
    return halves(function, *fake_inputs(
        *[shape] * rows, *[shape[-1:]] * columns, dtype=dtype, grad=True)
        )["backward"]


def inputs(graph):
    """Numbers for a backward graph; what is saved of a norm is positive."""
    return [torch.rand(fake.shape).add(.5).to(fake.dtype)
            if fake.numel() == fake.shape[0] else
            torch.randn(fake.shape).to(fake.dtype)
            for fake in map(value, placeholders(graph.graph))]


def walked(schedule):
    """The kernels of a schedule that reduce columns of their rows."""
    return [kernel for kernel in schedule.kernels if down(kernel)]


#: Of two tensors, a row and the dimensions above the last. What rounding
#: alone makes different compares as equal.
MOVES = [
    lambda a, b, w, above: a * b + w,
    lambda a, b, w, above: a - a.mean(-1, keepdim=True),
    lambda a, b, w, above: a.softmax(-1) * b,
    lambda a, b, w, above: (a * b).sum(above),
    lambda a, b, w, above: a.sum(above),
    lambda a, b, w, above: a.amax(above),
    lambda a, b, w, above: (a > b + .01).flatten(0, -2).any(0),
    lambda a, b, w, above: (a + b).sum(0),
    lambda a, b, w, above: (a * b).sum(-1),
    lambda a, b, w, above: a[:len(a) // 2 * 2].reshape(
        -1, 2, a.shape[-1]).sum(0),
    lambda a, b, w, above: a / (1 + b.sum(above).abs())]


class Both:
    """A random function that reduces rows and columns of the same tensors,
    and what it has made of them; the same for the same seed."""

    def __init__(self, seed):
        self.seed, self.__name__ = seed, f"both_{seed}"
        choose = random.Random(seed)
        self.shape = choose.choice([(64, 96), (37, 33), (4, 12, 40), (9, 7)])

    def inputs(self):
        return (*torch.rand(2, *self.shape).double(),
                torch.rand(self.shape[-1]).double())

    def __call__(self, x, y, w):
        choose = random.Random(self.seed)
        pool, found = [x, y, x * w, x - y], []
        for _ in range(choose.randint(3, 9)):
            a, b = choose.choice(pool), choose.choice(pool)
            made = choose.choice(MOVES)(a, b, w, tuple(range(x.dim() - 1)))
            pool += [made] * (made.shape == x.shape)
            found.append(made)
        return (*choose.sample(found, (len(found) + 1) // 2), found[-1])
