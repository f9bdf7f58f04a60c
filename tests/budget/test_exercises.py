"""The exercises of chapter 7: the page's solutions, or a reader's."""

from __future__ import annotations

import torch

from minicompile import budget, split
from minicompile.core import cost
from tests.book.answers import answer
from tests.budget.test_choose import chain, grad, joint_of


def test_7_1_a_cost_of_your_own():
    price = answer("7.1", "price")
    joint = joint_of(torch.linalg.eigvalsh, (torch.randn(4, 4),))
    node = next(node for node in joint.early if "eigh" in node.name)
    assert not cost.known(node)
    price(f"aten.{node.target._opname}", lambda node: 1e6)
    try:
        assert cost.known(node) and cost.flops(node) == 1e6
    finally:
        cost.FLOPS.pop(node.target.overloadpacket, None)


def test_7_2_the_curve():
    curve = answer("7.2", "curve")
    joint = joint_of(chain, [grad(64, 64) for _ in range(6)])
    points = curve(joint, 10)
    sizes, seconds = zip(*points)
    assert list(sizes) == sorted(sizes)
    assert list(seconds) == sorted(seconds, reverse=True)
    assert len(set(points)) > 5


def test_7_3_your_own_budget():
    choose = answer("7.3", "choose")

    def function(x, *weights):
        return sum(torch.mm(x, w).cos().sum() for w in weights)

    joint = joint_of(function, [grad(64, 64), *[
        grad(64, 64 * size) for size in (11, 3, 4, 2)]])

    def size(saved):
        return split.partition(joint, saved).saved_bytes

    ceiling = split.cut(joint).bytes
    for share in (13 / 20, 7 / 20):
        ours = budget.choose(joint, share, cut=split.cut)
        theirs = choose(joint, share, cut=split.cut)
        assert size(theirs) <= share * ceiling + 1
        assert size(theirs) <= size(ours)
