"""The exercises of chapter 6, with the page's answers or the reader's."""

import pytest
import torch

from minicompile.replay.cuda.graphs import GraphedFunction
from tests.book.answers import answer
from tests.replay import test_training
from tests.replay.fake import FakeDevice


def test_6_1_how_many():
    needed = answer("6.1", "needed")
    one, two = ("forward", 1), ("forward", 2)
    assert needed([]) == 0
    assert needed([one, ("backward", 1), two, ("backward", 2)]) == 1
    assert needed([one, two, ("backward", 2), ("backward", 1)]) == 2
    assert needed([("forward", k) for k in range(5)]) == 5


def test_6_2_what_do_the_copies_weigh():
    copied_bytes = answer("6.2", "copied_bytes")
    region = GraphedFunction(
        lambda inputs: (inputs[0] * inputs[1], inputs[0] + 1),
        None, FakeDevice(), static={1})
    w = torch.randn(4, 4)
    for x in [torch.randn(4, 4) for _ in range(3)]:
        region.forward([x, w])
    assert copied_bytes(region.forward.recordings[0]) == 3 * 64


def test_6_3_trust_but_verify():
    checked = answer("6.3", "checked")

    def run(inputs):
        return inputs[0] + 1, None, 3

    region = GraphedFunction(run, None, FakeDevice())
    forward = checked(region, run)
    for x in [torch.randn(3) for _ in range(4)]:
        torch.testing.assert_close(forward([x])[0], x + 1)
    broken = checked(region, lambda inputs: (inputs[0] + 2, None, 3))
    with pytest.raises(AssertionError):
        broken([torch.randn(3)])


def test_6_4_replace_this_stage_with_yours():
    kind = answer("6.4", "Cloning")
    for seed in range(8):
        test_training.random_program(seed, kind)
    region = test_training.make_region(kind)
    f = test_training.apply(region)
    w = torch.randn(4, 4, requires_grad=True)
    held = [f(torch.randn(3, 4, requires_grad=True), w) for _ in range(6)]
    assert len(held) == 6 and len(region.forward.recordings) == 1
