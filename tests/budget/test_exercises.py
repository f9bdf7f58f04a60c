"""The exercises of chapter 7: the page's solutions, or a reader's."""

from __future__ import annotations

import torch

from minicompile import split
from minicompile.budget.memory import bound
from minicompile.split.prices import min_cut
from tests.book.answers import answer
from tests.budget.test_choose import chain, grad, joint_of


def different(x, *weights):
    return sum(torch.mm(x, w).cos().sum() for w in weights)


SIZES = [grad(64, 64), *[grad(64, 64 * size) for size in (11, 3, 4, 2)]]


def test_7_1_every_plan():
    best = answer("7.1", "best")
    joint = joint_of(different, SIZES)
    whole = min_cut.cut(joint).bytes
    for twentieths, kept in ((20, 20), (19, 18), (13, 13), (10, 9), (8, 7),
                             (6, 6), (1, 0), (0, 0)):
        saved = best(joint, whole * twentieths // 20)
        assert split.partition(joint, saved).saved_bytes == whole * kept // 20


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

    joint = joint_of(different, SIZES)

    def size(saved):
        return split.partition(joint, saved).saved_bytes

    ceiling = min_cut.cut(joint).bytes
    for share in (13 / 20, 7 / 20):
        ours = bound.choose(joint, share, cut=min_cut.cut)
        theirs = choose(joint, share, cut=min_cut.cut)
        assert size(theirs) <= share * ceiling + 1
        assert size(theirs) <= size(ours)
