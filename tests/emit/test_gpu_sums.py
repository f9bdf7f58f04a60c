"""Training steps on a GPU whose gradients sum columns, beside eager.

Their sizes are those of a ViT-L/16, a Llama of a billion parameters and a
language model's loss: the kernels of each once had tiles that Triton
refuses, or more kernels than they need.
"""

import pytest
import torch
import torch.nn.functional as F

import minicompile

pytestmark = pytest.mark.gpu


def block(x, y, scale, weight, bias):
    """A residual with LayerScale, then a norm: sums down four columns."""
    x = x + scale * F.gelu(y + bias)
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def gated(x, y, scale, weight, bias):
    """Two norms of one row beside each other."""
    rows = F.rms_norm(x, x.shape[-1:], weight)
    return F.silu(rows * scale) * F.rms_norm(y + bias, y.shape[-1:], scale)


def check(function, args, tolerance, **options):
    """Result and gradients are eager's, and every graph is fused."""
    compiled = minicompile.compile(function, options=options)
    found = []
    for run in (function, compiled):
        given = [arg.clone().requires_grad_(arg.is_floating_point())
                 for arg in args]
        made = run(*given)
        made.float().square().sum().backward()
        found.append([made, *(arg.grad for arg in given
                              if arg.requires_grad)])
    for want, got in zip(*found):
        size = want.abs().max().item()
        torch.testing.assert_close(got / size, want / size, rtol=0,
                                   atol=tolerance)
    assert compiled.stats().kernels and not compiled.stats().fallbacks
    return compiled


@pytest.mark.parametrize("budget", [1.0, 0.75, 0.1])
@pytest.mark.parametrize("dtype, tolerance", [
    (torch.float32, 1e-4), (torch.bfloat16, 3e-2), (torch.float16, 1e-2)])
@pytest.mark.parametrize("shape", [(16, 197, 1024), (7, 257, 385),
                                   (2, 1024, 2048)])
@pytest.mark.parametrize("function", [block, gated])
def test_gradients_of_norms(function, shape, dtype, tolerance, budget):
    args = [torch.randn(shape, device="cuda", dtype=dtype) for _ in "xy"]
    args += [torch.randn(shape[-1], device="cuda", dtype=dtype)
             for _ in range(3)]
    check(function, args, tolerance, activation_memory_budget=budget)


def test_a_cross_entropy_is_three_kernels():
    logits = torch.randn(2048, 32_000, device="cuda")
    labels = torch.randint(0, 32_000, (2048,), device="cuda")
    compiled = check(F.cross_entropy, [logits, labels], 1e-4)
    assert compiled.stats().kernels == 3
