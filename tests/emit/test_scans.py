"""Sums of each element and those before it, in loops that scan rows.

The Triton kernels run on a GPU, or with TRITON_INTERPRET=1.
"""

import pytest
import torch

from minicompile import emit, fusion
from minicompile.core.options import Options
from minicompile.fusion.rules import arithmetic
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.fusion.graphs import assert_right, aten
from tests.judge import judged, near


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


#: name -> (a function, what makes its argument).
PROGRAMS = {
    "rows": (lambda x: x.cumsum(1), lambda: normal(40, 37)),
    "of computed numbers": (
        lambda x: (x.sin() * 2).cumsum(-1).exp(), lambda: normal(40, 64)),
    "columns": (lambda x: x.exp().cumsum(0) * 2, lambda: normal(37, 40)),
    "in the middle": (lambda x: x.cumsum(1), lambda: normal(5, 33, 40)),
    "a vector": (lambda x: x.cumsum(0), lambda: normal(1000)),
    "from the end": (
        lambda x: x.flip(1).cumsum(1).flip(1) + 1, lambda: normal(40, 37)),
    "long rows": (lambda x: x.round().cumsum(1), lambda: normal(130, 5000)),
    "long columns": (lambda x: x.round().cumsum(0), lambda: normal(5000, 130)),
    "twice": (lambda x: x.cumsum(1).cos().cumsum(1), lambda: normal(40, 37)),
    "both ways": (lambda x: x.cumsum(1).cumsum(0), lambda: normal(40, 37)),
    "read by a sum": (
        lambda x: x.cumsum(1) / x.cumsum(1).sum(1, True),
        lambda: normal(40, 37).abs()),
    "of a softmax": (
        lambda x: x.softmax(1).cumsum(1) < 0.9, lambda: normal(40, 37)),
    "products": (lambda x: (x * 0.1 + 1).cumprod(1), lambda: normal(40, 37)),
    "of one number": (
        lambda x: x[:, :1].expand(40, 37).cumsum(1), lambda: normal(40, 37)),
    "places": (
        lambda x: (x > 0).cumsum(1) * (x > 0), lambda: normal(40, 37)),
    "whole numbers": (
        lambda x: x.to(torch.int32).cumsum(0), lambda: normal(40, 37) * 9),
    "halves": (lambda x: x.cumsum(1) * 2, lambda: normal(
        40, 37, dtype=torch.bfloat16)),
    "as others": (lambda x: x.cumsum(1, dtype=torch.float64),
                  lambda: normal(40, 37)),
    "doubles": (lambda x: x.cumsum(1), lambda: normal(
        40, 37, dtype=torch.float64)),
    "not finite": (lambda x: (1 / x.relu()).log().cumsum(1),
                   lambda: normal(40, 37)),
    "of one element beside rows": (
        lambda x: x.sum(1, True).cumsum(1) - x.cumsum(1),
        lambda: normal(40, 37)),
    "not in order": (lambda x: x.mT.cumsum(1).exp(),
                     lambda: normal(5, 33, 40) / 9),
}


@pytest.fixture
def anywhere(monkeypatch):
    """As if a CPU's kernels scanned."""
    monkeypatch.setattr(arithmetic, "SCANNED", {"cpu", "cuda"})


def fused(function, *args):
    graph = aten(function, *args)
    schedule = fusion.fuse(graph)
    assert not any("cum" in str(call.target) for call in schedule.externs)
    return graph, schedule


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_that_scan_mean_the_same(name, anywhere):
    function, make = PROGRAMS[name]
    x = make()
    if x.numel() > 10_000:
        x = x[:40, :37].contiguous()
    fused(function, x)
    assert_right(aten(function, x), [x])


@pytest.mark.skipif(not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_scan(name, anywhere):
    function, make = PROGRAMS[name]
    x = make().to(DEVICE)
    graph, schedule = fused(function, x)
    program = emit.emit(schedule, Options(cpu_backend="triton"))
    assert "tl.cum" in program.source
    judged(near, program.run([x]), graph(x), graph, x)


def test_what_a_scan_reads_and_who_reads_it_are_its_kernel(anywhere):
    _, schedule = fused(lambda x: (x.sin() * 2).cumsum(1).exp() + 1,
                        normal(40, 37))
    assert len(schedule.kernels) == 1


def test_a_few_long_rows_are_not_scanned(anywhere):
    calls = [str(call.target) for shape in [(2, 10_000), (9, 10_000), (2, 1000)]
             for call in fusion.fuse(aten(
                 lambda x: x.cumsum(1) + x.cumsum(0), normal(*shape))
                 ).externs]
    assert calls == ["aten.cumsum.default"]
