"""Long rows are read once for their maximum and their exponentials' sum.

Most tests run on a GPU, or with TRITON_INTERPRET=1.
"""

from math import inf, nan

import pytest
import torch
import torch.nn.functional as F

import minicompile
from minicompile import fusion
from minicompile.core.machines.cost import WALKING
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.emit.schedules import gpu
from minicompile.emit.triton_math import INTERPRETED
from minicompile.fusion.passes import split_reduction
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.fusion.graphs import aten, assert_right
from tests.judge import judged, near

runs = pytest.mark.skipif(
    not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")


@pytest.fixture
def walked(monkeypatch):
    """Every row is walked along."""
    monkeypatch.setattr(gpu, "IN_REGISTERS", 4)
    monkeypatch.setattr(gpu, "WALKED", 16)


def entropy(x):
    return -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)


def apart(x):
    """Two rows in one kernel, each with a maximum of its own."""
    return x.softmax(-1) + (x * 2).log_softmax(-1)


def raw(x):
    return (x - x.amax(-1, keepdim=True)).exp().sum(-1)


FUNCTIONS = {"softmax": lambda x: x.softmax(-1), "raw": raw,
             "log_softmax": lambda x: x.log_softmax(-1),
             "logsumexp": lambda x: x.logsumexp(-1),
             "masked": lambda x: F.softmax(torch.where(x > 0, x, -inf), -1),
             "entropy": entropy, "apart": apart,
             "argmax": lambda x: x.argmax(-1),
             "min": lambda x: x.round().min(-1),
             "variance": lambda x: x.var(-1),
             "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
             "normed softmax": lambda x: F.layer_norm(
                 x.softmax(-1), x.shape[-1:]),
             "sample": lambda x: (x.softmax(-1), x.argmax(-1)),
             "from the largest": lambda x: (
                 x.sum(-1), (x - x.amax(-1, True)).square().sum(-1)),
             "from many middles": lambda x: (
                 x - x.sum(-1, True) * x[0]).square().sum(-1),
             "of columns": lambda x: x.std(0) + x.argmin(0)}


@runs
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_are_as_right_as_eagers(name, dtype, walked):
    function = FUNCTIONS[name]
    compiled = minicompile.compile(function, options={
        "cpu_backend": "triton"})
    for offset in (0, 1000):
        x = (torch.randn(5, 100) * 3 + offset).to(DEVICE, dtype)
        judged(near, compiled(x), function(x), function, x)


@runs
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_of_what_is_not_a_number(name, walked):
    """A row may begin with -inf, hold nothing else, or the least float."""
    x = torch.randn(8, 40)
    x[0] = -inf
    x[1, 3], x[2, 30] = inf, nan
    x[3, :20] = x[4, 20:] = -inf
    x[5] = torch.finfo(torch.float32).min
    x[6, :20] = torch.finfo(torch.float32).min
    x[7, 1], x[7, 39] = -inf, inf
    x, function = x.to(DEVICE), FUNCTIONS[name]
    found = minicompile.compile(function, options={
        "cpu_backend": "triton"})(x)
    torch.testing.assert_close(found, function(x), equal_nan=True)


@pytest.mark.skipif(
    INTERPRETED, reason="Triton's interpreter does not compile")
@pytest.mark.parametrize("function, more", [
    (F.cross_entropy, 2), (lambda x, label: x.logsumexp(-1), 0)])
def test_a_long_row_is_loaded_once(function, more):
    """Its maximum and its sum are; then a label and its logit."""
    from tests.emit.test_triton_ptx import kernels_of
    x = torch.empty(1024, 128_256, dtype=torch.bfloat16)
    kernel, *_ = kernels_of(function, x, torch.zeros(
        1024, dtype=torch.int64))
    loads = kernel.widths("ld")
    block = loads.pop(".v4.b32") * 8 * kernel.warps * 32
    assert block == gpu.ONLINE
    assert sum(loads.values()) == more


@pytest.fixture
def in_parts(monkeypatch):
    """Rows are split into parts as on a GPU."""
    monkeypatch.setitem(WALKING, "cpu", WALKING["cuda"])
    monkeypatch.setitem(split_reduction.SHARES, "cpu",
                        split_reduction.SHARES["cuda"])


@pytest.mark.parametrize("shape, axis", [
    ((8192, 64), 0), ((5, 33_000), 1), ((3, 40_001), -1), ((70_000,), 0)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_parts_of_a_row_are_read_once_for_both_sums(
        name, shape, axis, in_parts):
    x = torch.randn(shape) * 3
    graph = aten(lambda x: getattr(x, name)(axis), x)
    schedule = assert_right(graph, [x])
    of_parts, of_rows, _ = schedule.kernels
    for kernel in of_parts, of_rows:
        assert [loop.reduction for loop in kernel.loops][:2] == [
            "max", "sum"]


def test_parts_of_what_is_not_a_number(in_parts):
    x = torch.randn(7, 34_000)
    x[0], x[1, :17_000], x[2, 7], x[3, 9] = -inf, -inf, inf, nan
    x[4], x[5, 100:] = torch.finfo(torch.float32).min, -inf
    graph = aten(lambda x: x.softmax(-1), x)
    found, = evaluate_schedule(fusion.fuse(graph), [x])
    torch.testing.assert_close(found, x.softmax(-1), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rounded_exponentials_are_added_as_they_are(dtype, in_parts):
    """As eager adds them: each is rounded, the sum is not until its end."""
    x = torch.randn(5, 34_000).to(dtype)
    graph = aten(raw, x)
    schedule = assert_right(graph, [x])
    assert "sum" not in [loop.reduction for loop in schedule.kernels[0].loops]
