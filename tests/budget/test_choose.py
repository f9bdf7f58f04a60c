"""The budget: PyTorch's own numbers, the ceiling, and monotony."""

from __future__ import annotations

import random
import warnings
from itertools import product

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import (flop_registry,
                                      register_flop_formula)

import minicompile
from minicompile import split
from minicompile.budget.memory import bound
from minicompile.split.prices import min_cut
from minicompile.budget.memory.bound import knapsack
from minicompile.core.machines import cost
from tests.split.judge import assert_same, graph_of

MIB = 2 ** 20


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


def joint_of(function, args):
    return split.record(graph_of(function, args), args)


def saved_and_again(joint, share):
    """MiB saved, and matmuls recomputed, one of 512 cubed being 1."""
    saved = bound.choose(joint, share, cut=min_cut.cut)
    pair = split.partition(joint, saved)
    named = {node.name: node for node in joint.early}
    again = sum(cost.flops(named[node.name])
                for node in pair.backward.graph.nodes
                if node.op == "call_function" and node.name in named)
    return pair.saved_bytes / MIB, again / (2 * 512 ** 3)


def chain(x, *weights):
    x = x.cos()
    for w in weights:
        x = torch.mm(x, w).cos()
    return x.sum()


@pytest.fixture(scope="module")
def chain_joint():
    return joint_of(chain, [grad(512, 512) for _ in range(6)])


@pytest.mark.parametrize("tenths", range(11))
def test_a_chain_of_five_matmuls(chain_joint, tenths):
    assert saved_and_again(chain_joint, tenths / 10) == (
        tenths, max(0, 5 - tenths))


@pytest.mark.parametrize("sizes, ceilings", [
    ([11, 3, 4, 2], [18, 17, 16, 15, 14, 13, 11, 7, 6, 5]),
    ([3, 5, 11, 17, 14], [42, 30, 19, 8, 3]),
])
def test_matmuls_of_different_sizes(sizes, ceilings):
    def function(x, *weights):
        return sum(torch.mm(x, w).cos().sum() for w in weights)

    joint = joint_of(function, [grad(512, 512), *[
        grad(512, 512 * size) for size in sizes]])
    for ceiling in ceilings:
        mib, _ = saved_and_again(joint, ceiling / sum(sizes))
        assert mib == ceiling


def pairs(*sizes):
    """Matmuls: (n, m) costs n * n * m and makes n * m MiB."""
    return [*[grad(n * 512, n * 512) for n, _ in sizes],
            *[grad(n * 512, m * 512) for n, m in sizes]]


def products(*args):
    xs, ws = args[:len(args) // 2], args[len(args) // 2:]
    return sum(torch.mm(x, w).cos().sum() for x, w in zip(xs, ws))


def test_the_cheaper_matmul_is_recomputed():
    joint = joint_of(products, pairs((1, 4), (2, 2)))
    assert saved_and_again(joint, 0.5) == (4, 4)


def test_the_dearest_are_saved_not_the_largest():
    joint = joint_of(products, pairs((4, 4), (6, 2), (2, 6)))
    assert saved_and_again(joint, 28 / 40) == (28, 2 * 2 * 6)
    assert saved_and_again(joint, 16 / 40) == (
        12, 2 * 2 * 6 + 4 * 4 * 4)


def network(x, w1, w2, w3, target):
    h = F.dropout(F.gelu(F.layer_norm(x @ w1, (64,))), 0.1)
    h = h + F.silu(h @ w2).softmax(-1)
    return F.cross_entropy(h @ w3, target)


def arguments():
    return (grad(32, 16), grad(16, 64), grad(64, 64), grad(64, 10),
            torch.randint(10, (32,)))


def test_ceiling_and_monotony():
    joint = joint_of(network, arguments())
    default = min_cut.cut(joint).bytes
    least = min_cut.cut(joint, byte_price=1.0).bytes
    before = None
    for hundredth in range(100, -1, -4):
        saved = bound.choose(joint, hundredth / 100, cut=min_cut.cut)
        size = split.partition(joint, saved).saved_bytes
        assert size <= max(hundredth / 100 * default + 1, least)
        assert before is None or size <= before
        before = size


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_the_numbers_do_not_change(share):
    assert_same(network, *arguments(), saved=lambda joint: bound.choose(
        joint, share, cut=min_cut.cut))


def test_inference_saves_nothing():
    joint = joint_of(torch.sin, (torch.ones(3),))
    assert bound.choose(joint, 0.5, cut=min_cut.cut) == frozenset()


@pytest.mark.parametrize("seed", range(40))
def test_the_knapsack_by_trying_all(seed):
    choose = random.Random(seed)
    weights = [choose.randint(1, 9) for _ in range(7)]
    losses = [choose.randint(1, 9) for _ in range(7)]
    room = choose.randint(0, sum(weights))
    kept, loss = knapsack(weights, losses, room)
    assert sum(w for w, k in zip(weights, kept) if k) <= room
    assert loss == sum(v for v, k in zip(losses, kept) if not k)
    assert loss == min(
        sum(v for v, k in zip(losses, flags) if not k)
        for flags in product([0, 1], repeat=7)
        if sum(w for w, k in zip(weights, flags) if k) <= room)


RUNS: list = []


@torch.library.custom_op("budget::work", mutates_args=())
def work(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(x.shape)
    return x.sin()


work.register_fake(torch.empty_like)
work.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def working(x):
    y = work(x * 2)
    return (y * y.exp()).exp().sum()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_an_operator_of_unknown_cost_runs_once_and_the_budget_says_so(share):
    RUNS.clear()
    minicompile.reset()
    run = minicompile.compile(working, options={
        "activation_memory_budget": share})
    with pytest.warns(UserWarning, match="register_cost"):
        run(grad(64, 64)).backward()
    assert len(RUNS) == 1


def test_an_operator_of_known_cost_runs_again():
    RUNS.clear()
    register_flop_formula(torch.ops.budget.work)(
        lambda shape, out_shape=None, **_: 7)
    try:
        run = minicompile.compile(working, options={
            "activation_memory_budget": 0.0})
        run(grad(64, 64)).backward()
        assert len(RUNS) == 2
        node = next(node for node in joint_of(working, [grad(4)]).early
                    if "work" in node.name)
        assert cost.kind(node) == "counted" and cost.flops(node) == 7
    finally:
        flop_registry.pop(torch.ops.budget.work)


def test_a_checkpoint_of_the_users_runs_it_again():
    RUNS.clear()
    x = grad(64, 64)
    minicompile.compile(lambda x: checkpoint(
        working, x, use_reentrant=False))(x).backward()
    assert len(RUNS) == 2


def test_a_ceiling_that_cannot_be_met_is_told_once():
    def function(x):
        return F.dropout(x, 0.5).sin().sum()

    minicompile.reset()
    for eager, told in ((True, 1), (False, 0)):
        run = minicompile.compile(function, options={
            "activation_memory_budget": 0.0, "fallback_random": eager})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(grad(64, 64)).backward()
        found = [each for each in caught if "the budget allows 0" in str(
            each.message) and "bernoulli" in str(each.message)]
        assert len(found) == told
