"""The exercises of chapter 3: the page's solutions, or a reader's."""

from __future__ import annotations

import torch
from torch import fx
from torch.nn import functional as F

from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.split.recorder import DECOMPOSITIONS
from tests.book.answers import answer
from tests.split.judge import assert_same, boxed, graph_of
from tests.split.test_cut import halves_of, moved


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_3_1_whose_gradient():
    from chapters._book.running import block, inputs
    from minicompile.trace import trace
    costs = answer("3.1", "costs")
    made = trace(block, (*inputs(), 2))
    joint = split.record(made.graph, made.example_inputs)
    seen, count = costs(joint), len(joint.late)
    assert seen["h = x @ w"] == 2 and seen["h = h * scale"] == 1
    assert sum(seen.values()) == count


def test_3_2_a_formula_of_your_own(monkeypatch):
    silu_backward = answer("3.2", "silu_backward")
    op = torch.ops.aten.silu_backward.default
    args = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True),)
    before = split.record(graph_of(F.silu, args), args)
    monkeypatch.setitem(DECOMPOSITIONS, op, silu_backward)
    split.recorder.decomposition_of.cache_clear()
    try:
        joint, _ = assert_same(F.silu, *args)
    finally:
        split.recorder.decomposition_of.cache_clear()
    assert len(joint.late) <= len(before.late)


def test_3_3_your_own_recorder(monkeypatch):
    monkeypatch.setattr(split, "record", answer("3.3", "record"))

    def function(x, w):
        return F.gelu(x @ w).sum(0)

    from torch._subclasses.fake_tensor import FakeTensorMode
    args = [grad(3, 4), grad(4, 5)]
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(arg) for arg in args]
    joint = split.record(fx.symbolic_trace(lambda x, w: (function(x, w),)),
                         fakes)
    pair = split.partition(joint, min_cut.cut(joint).saved)
    run = split.make_runtime(joint, pair, boxed(pair.forward),
                             boxed(pair.backward))
    got, want = run(list(args))[0], function(*args)
    torch.testing.assert_close(got, want)
    for ours, theirs in zip(torch.autograd.grad(got.sum(), args),
                            torch.autograd.grad(want.sum(), args)):
        torch.testing.assert_close(ours, theirs)


def test_3_4_by_hand():
    saved, elements = answer("3.4", "saved"), answer("3.4", "moved")
    joint, halves = halves_of(
        lambda a, b, c, d: (a + b + c + d).cos().cos(),
        [grad(10) for _ in range(4)], "minicompile")
    assert min_cut.cut(joint).saved == saved
    assert moved(joint, *halves) == elements


def test_3_5_checkpointing():
    checkpoint = answer("3.5", "checkpoint")

    def function(x, w):
        return F.dropout((x @ w).sin(), 0.5).exp().sum()

    _, pair = assert_same(function, grad(8, 8), grad(8, 8),
                          saved=checkpoint)
    assert len(pair.saved.keys() & pair.donated) == 1


def test_3_6_your_own_partitioner():
    partition = answer("3.6", "partition")
    joint, halves = halves_of(lambda x: x.cos().cos().cos(), [grad(10)],
                              partition)
    assert moved(joint, *halves) == 100


def test_3_7_who_shares():
    sharing = answer("3.7", "sharing")

    def function(x):
        y = x * 2
        return y, x[0], y[1:], x.view(-1), x, y, x.sin()

    args = (torch.randn(2, 3),)
    joint = split.record(graph_of(function, args), args)
    assert sorted(sharing(joint)) == [
        (0, 2), (0, 5), (1, 3), (1, 4), (2, 5), (3, 4)]


def test_3_8_your_own_runtime(monkeypatch):
    monkeypatch.setattr(split, "make_runtime", answer("3.8", "make_runtime"))
    assert_same(lambda x, w: (F.gelu(x @ w), (x * w).sum()),
                grad(4, 4), grad(4, 4))


def test_3_9_another_distribution():
    laplace = answer("3.9", "laplace")
    torch.manual_seed(0)
    got = laplace(lambda: torch.rand(100_000), 1.0, 2.0).double()
    at = (got.sort()[0] - 1) / 2
    below = torch.where(at < 0, at.exp() / 2, 1 - (-at).exp() / 2)
    want = torch.linspace(0, 1, len(got), dtype=torch.float64)
    assert got.isfinite().all() and (below - want).abs().max() < 0.008


def test_3_10_fewer_rounds():
    from minicompile.core.random.philox import philox as ours
    philox = answer("3.10", "philox")
    given = torch.tensor(1234567), torch.tensor(7), torch.arange(10_000)
    assert torch.equal(philox(*given, 10), ours(*given))

    def correlation(rounds):
        row = philox(*given, rounds).double()[::4]
        return torch.corrcoef(torch.stack([row[1:], row[:-1]])).nan_to_num(
            1.0)[0, 1].abs()

    assert correlation(1) > 0.5 and correlation(10) < 0.05
