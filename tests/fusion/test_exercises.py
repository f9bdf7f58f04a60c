"""The chapter's exercises; ANSWERS=mine.py judges a reader's own."""

import pytest
import torch

from minicompile import fusion
from minicompile.core.errors import BackendError
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.emit.writer import stages
from minicompile.fusion import group
from minicompile.fusion.lowerings import RULES
from minicompile.report.views.stages import moved
from tests.book.answers import answer
from tests.fusion.graphs import assert_right, aten
from tests.fusion.programs import Program


def test_4_1_roll(monkeypatch):
    monkeypatch.setitem(RULES, "roll", answer("4.1", "roll"))
    x = torch.randn(4, 6)
    for shifts, axes in [(1, 0), ((-2,), (1,)), ((3, 7), (0, 1)), (0, -1)]:
        graph = aten(lambda x, s=shifts, a=axes: x.roll(s, a) + 1, x)
        assert not assert_right(graph, (x,)).externs


def test_4_2_the_bound():
    least = answer("4.2", "least")
    x, w = torch.randn(10, 10), torch.randn(10, 10)
    softmax = fusion.fuse(aten(lambda x: x.softmax(1), x))
    assert least(softmax) == moved(softmax) == 200
    product = fusion.fuse(aten(lambda x, w: torch.relu(x @ w), x, w))
    assert least(product) == 300 < moved(product)


def test_4_3_break_the_barrier(monkeypatch):
    smallest, x = answer("4.3", "smallest"), torch.randn(4, 6)
    graph = aten(smallest, x)
    assert_right(graph, (x,))
    monkeypatch.setattr(group, "fits", lambda first, second: True)
    with pytest.raises(BackendError, match="before it is in memory"):
        for kernel in fusion.fuse(graph).kernels:
            stages(kernel)


@pytest.mark.parametrize("seed", range(10))
def test_4_4_replace_this_stage(seed):
    fuse, program = answer("4.4", "fuse"), Program(seed)
    inputs = program.inputs()
    graph = aten(program, *inputs)
    found = evaluate_schedule(fuse(graph), list(inputs))
    for a, b in zip(found, graph(*inputs), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
