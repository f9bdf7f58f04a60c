"""torch.utils.checkpoint inside a compiled function: less is saved."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import minicompile
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.trace import trace
from tests.same import assert_same


class Blocks(nn.Module):
    """Three blocks, each a checkpoint or not."""

    def __init__(self, kept: bool, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList(nn.Sequential(
            nn.Linear(8, 32), nn.GELU(), nn.Dropout(dropout),
            nn.Linear(32, 8)) for _ in range(3))
        self.kept = kept

    def forward(self, x):
        for part in self.parts:
            x = x + (part(x) if self.kept else checkpoint(
                part, x, use_reentrant=False))
        return x


def entry(model, x):
    return model(x)


def pair(model, x):
    """The joint graph of a model, cut as by default."""
    made = trace(entry, (model, x))
    joint = split.record(made.graph, made.example_inputs)
    return split.partition(joint, min_cut.cut(joint).saved)


def matmuls(half):
    return sum("mm" in str(node.target) for node in half.graph.nodes
               if node.op == "call_function")


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_values_and_gradients_are_eagers(backend):
    for kept in (True, False):
        assert_same(Blocks(kept), torch.randn(4, 8, requires_grad=True),
                    backend=backend, fullgraph=True)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_around_a_compiled_module(backend, reentrant):
    """The hooks of a checkpoint count what autograd saves, and one of them
    raises in the last save of a recomputation."""
    model, x = Blocks(True), torch.randn(4, 8, requires_grad=True)
    weights = [*model.parameters()]
    compiled = minicompile.compile(model, backend=backend)
    want = torch.autograd.grad(model(x).sum(), weights)
    for _ in range(2):
        checkpoint(compiled, x, use_reentrant=reentrant).sum().backward()
        for weight, gradient in zip(weights, want):
            torch.testing.assert_close(weight.grad, gradient)
            weight.grad = None
    assert not compiled.stats().fallbacks


def test_inside_is_recomputed_and_not_saved():
    x = torch.randn(16, 8, requires_grad=True)
    kept, again = pair(Blocks(True), x), pair(Blocks(False), x)
    assert matmuls(again.forward) == matmuls(kept.forward) == 6
    assert matmuls(again.backward) == matmuls(kept.backward) + 3
    assert kept.saved_bytes == 16 * (3 * 2 * 32 + 2 * 8) * 4
    assert again.saved_bytes == 16 * 2 * 8 * 4  # what enters each block


@pytest.mark.parametrize("options", [{}, {"fallback_random": True}])
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_dropout_inside_draws_the_same_mask_again(backend, options):
    def dropped(x):
        return checkpoint(lambda v: F.dropout(v * 1, 0.5), x,
                          use_reentrant=False)

    compiled = minicompile.compile(dropped, fullgraph=True, backend=backend,
                                   options=options)
    x = torch.ones(64, requires_grad=True)
    y = compiled(x)
    grad, = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y) and 0 < (y == 0).sum() < 64
    assert not compiled.stats().fallbacks


def test_nested_and_with_keywords():
    def inner(v, scale):
        return checkpoint(torch.sin, v, use_reentrant=False) * scale

    def outer(x):
        return checkpoint(inner, x.cos(), use_reentrant=False, scale=3,
                          preserve_rng_state=False).exp()

    assert_same(outer, torch.randn(5, requires_grad=True), fullgraph=True)


def test_a_reentrant_one_is_a_break():
    def old(x):
        return checkpoint(torch.sin, x * 2, use_reentrant=True).cos()

    compiled = assert_same(old, torch.randn(5, requires_grad=True),
                           backward=False)
    assert compiled.stats().graph_breaks == 1


def test_dynamos_regions_are_taken():
    torch._dynamo.reset()
    model = Blocks(False)
    seen = []

    def backend(graph, inputs):
        joint = split.record(graph, inputs)
        seen.append(split.partition(joint, min_cut.cut(joint).saved))
        return minicompile.backend(graph, inputs)

    x = torch.randn(16, 8, requires_grad=True)
    got = torch.compile(model, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(got, model(x))
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x),
                               torch.autograd.grad(model(x).sum(), x))
    assert seen[0].saved_bytes == 16 * 2 * 8 * 4


def test_what_a_checkpoint_writes_is_written_as_often_as_in_eager():
    """Eager runs it again in the backward: statistics move twice."""
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return checkpoint(lambda y: self.norm(y * 2).relu(), x,
                              use_reentrant=False).sum()

    assert_same(Normalised(), torch.randn(6, 4, requires_grad=True),
                fallback=True)
