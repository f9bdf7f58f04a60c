"""Products of odd sizes, padded: the same numbers, in aligned rows."""

import itertools

import pytest
import torch

from minicompile import compile, split
from minicompile.core.machines import cost
from minicompile.split.torch import decompositions
from minicompile.trace import trace
from tests.same import assert_same

SIZES = (8, 13)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """As if every product on a CPU were worth it."""
    monkeypatch.setitem(decompositions.ROWS, "cpu", 16)
    monkeypatch.setattr(decompositions, "SLOWER", 1e12)


def whole(*shape, grad=False):
    """Small whole numbers, so that sums in bf16 are exact."""
    return torch.randint(-2, 3, shape).bfloat16().requires_grad_(grad)


def products(function, *args):
    """Operand shapes, strides and result of each product recorded."""
    traced = trace(function, args)
    joint = split.record(traced.graph, traced.example_inputs)
    aten = torch.ops.aten
    return [[node.meta["val"] for node in (*step.all_input_nodes, step)]
            for step in joint.graph.graph.nodes
            if step.target in (aten.mm.default, aten.addmm.default)]


@pytest.mark.parametrize("m, k, n", list(
    itertools.product(SIZES, repeat=3)))
@pytest.mark.parametrize("turn_a, turn_b", list(itertools.product(
    (False, True), repeat=2)))
def test_every_row_is_aligned(m, k, n, turn_a, turn_b):
    def function(a, b):
        a, b = a.t() if turn_a else a, b.t() if turn_b else b
        return (a @ b).sin()
    a = whole(*((k, m) if turn_a else (m, k)))
    b = whole(*((n, k) if turn_b else (k, n)))
    (found,) = products(function, a, b)
    for tensor in found:
        assert max(tensor.stride()) % 8 == 0 or max(tensor.shape) <= 8
    expected = function(a, b)
    assert torch.equal(compile(function, backend="split")(a, b), expected)
    assert torch.equal(compile(function)(a, b), expected)


def test_gradients_through_padded_products():
    def function(x, w, bias):
        return torch.nn.functional.linear(x, w, bias).float().sin()
    args = whole(6, 12, grad=True), whole(13, 12, grad=True), whole(13)
    assert len(products(function, *args)) == 3
    assert_same(function, *args, backend="split")
    assert_same(function, *args)


def test_results_are_laid_out_as_eager_lays_them():
    def function(x, w):
        y = x @ w
        return y, y.view(-1), y.t()
    args = whole(5, 13), whole(13, 9)
    for backend in ("split", "fused"):
        found = compile(function, backend=backend)(*args)
        for ours, theirs in zip(found, function(*args), strict=True):
            assert torch.equal(ours, theirs)
            assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("shape", [(64, 64), (1, 13), (13, 1)])
def test_small_products_stay_whole(shape, monkeypatch):
    monkeypatch.setattr(decompositions, "SLOWER", 4)
    monkeypatch.setitem(cost.MACHINES, "cpu", cost.MACHINES["cuda"])
    a, b = whole(*shape), whole(shape[1], 3)
    assert decompositions.addmm(None, a, b) is NotImplemented
    assert decompositions.addmm(whole(3), a, b) is NotImplemented


def test_aligned_products_stay_whole():
    a, b = whole(64, 64), whole(64, 64)
    assert decompositions.addmm(None, a, b) is NotImplemented


def test_other_types_stay_whole():
    a, b = torch.randn(13, 13), torch.randn(13, 13)
    assert decompositions.addmm(None, a, b) is NotImplemented


@pytest.mark.gpu
def test_an_odd_vocabulary_on_a_gpu():
    def function(x, w):
        logits = (x @ w.t()).to(torch.promote_types(x.dtype, torch.float))
        return logits.logsumexp(-1).sum()
    x, w = (torch.randn(size, 768, device="cuda", dtype=torch.bfloat16,
                        requires_grad=True) for size in (2048, 50257))
    assert len(products(function, x, w)) == 3
    assert all(max(t.stride()) % 8 == 0
               for found in products(function, x, w) for t in found)
    found = torch.autograd.grad(compile(function)(x, w), (x, w))
    eager = torch.autograd.grad(function(x, w), (x, w))
    x, w = x.double().detach(), w.double().detach()
    exact = torch.func.grad(function, argnums=(0, 1))(x, w)
    for ours, theirs, right in zip(found, eager, exact, strict=True):
        assert (ours - right).norm() <= 2 * (theirs - right).norm()
