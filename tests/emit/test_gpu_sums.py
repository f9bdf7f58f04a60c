"""Training steps on a GPU whose gradients sum columns, beside eager.

Their sizes are those of a ViT-L/16, a Llama of a billion parameters and a
language model's loss: the kernels of each once had tiles that Triton
refuses, or more kernels than they need.
"""

import functools

import pytest
import torch
import torch.nn.functional as F

import minicompile
from tests.judge import judged, near

pytestmark = pytest.mark.gpu


def block(x, y, scale, weight, bias):
    """A residual with LayerScale, then a norm: sums down four columns."""
    x = x + scale * F.gelu(y + bias)
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def gated(x, y, scale, weight, bias):
    """Two norms of one row beside each other."""
    rows = F.rms_norm(x, x.shape[-1:], weight)
    return F.silu(rows * scale) * F.rms_norm(y + bias, y.shape[-1:], scale)


def results(run, *args):
    """The result, and the gradients of a mean, which no half overflows."""
    given = [arg.clone().requires_grad_(arg.is_floating_point())
             for arg in args]
    made = run(*given)
    rows = made.numel() / made.shape[-1] if made.dim() else 1
    (made.square().sum(dtype=torch.float64) / rows).backward()
    return [made, *(arg.grad for arg in given if arg.requires_grad)]


def check(function, args, **options):
    """Result and gradients are as right as eager's, every graph fused."""
    compiled = minicompile.compile(function, options=options)
    judged(near, results(compiled, *args), results(function, *args),
           functools.partial(results, function), *args)
    assert compiled.stats().kernels and not compiled.stats().fallbacks
    return compiled


@pytest.mark.parametrize("budget", [1.0, 0.75, 0.1])
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(16, 197, 1024), (7, 257, 385),
                                   (2, 1024, 2048)])
@pytest.mark.parametrize("function", [block, gated])
def test_gradients_of_norms(function, shape, dtype, budget):
    args = [torch.randn(shape, device="cuda", dtype=dtype) for _ in "xy"]
    args += [torch.randn(shape[-1], device="cuda", dtype=dtype)
             for _ in range(3)]
    check(function, args, activation_memory_budget=budget)


def test_a_cross_entropy_is_three_kernels():
    logits = torch.randn(2048, 32_000, device="cuda")
    labels = torch.randint(0, 32_000, (2048,), device="cuda")
    compiled = check(F.cross_entropy, [logits, labels])
    assert compiled.stats().kernels == 3
