"""Row kernels that reduce their columns too.

Most tests run on a GPU, or with TRITON_INTERPRET=1 in the interpreter.
"""

import numpy
import pytest
import torch
import triton
from torch.torch_version import TorchVersion

import minicompile
from minicompile import emit, fusion
from minicompile.core.loops import draws
from minicompile.core.machines.cost import WALKING
from minicompile.core.options import Options
from minicompile.core.random.philox import UNIFORM
from minicompile.emit.schedules import walk as printing
from minicompile.emit.triton import print_kernel
from minicompile.emit.triton_math import INTERPRETED
from minicompile.fusion.passes import split_reduction as joining
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.emit.walks import (NORMS, Both, backward, inputs, layer_norm,
                              rms_norm, walked)
from tests.fusion.graphs import (aten, as_cuda, assert_right, fake_inputs,
                                 halves)
from tests.judge import judged, near

OPTIONS = Options(cpu_backend="triton")
#: Triton 3.6's interpreter makes an int of an array with one element.
STUCK = INTERPRETED and TorchVersion(triton.__version__) < "3.7" and (
    TorchVersion(numpy.__version__) >= "2.4")
runs = pytest.mark.skipif(
    not RUNS or STUCK, reason="needs a GPU, or TRITON_INTERPRET=1")


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Small tensors are split and walked along, too, on a CPU as well."""
    monkeypatch.setattr(joining, "WORTH", 1)
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(joining.SHARES, device, joining.Share(
            few=8, whole=16_383, many=16, least=8192, worth=0, beside=4096,
            narrow=4096))
    WALKING["cpu"] = WALKING["cuda"]
    yield
    del WALKING["cpu"]


def check(graph, args):
    """Evaluator and program are as right as eager, each time the same."""
    schedule = assert_right(graph, args)
    if DEVICE.type == "cuda":
        schedule = fusion.fuse(as_cuda(graph))
        args = [arg.to(DEVICE) for arg in args]
    program = emit.emit(schedule, OPTIONS)
    found = program.run(list(args))
    judged(near, found, graph(*args), graph, *args)
    torch.testing.assert_close(program.run(list(args)), found,
                               rtol=0, atol=0, equal_nan=True)
    return schedule


SHAPES = [(64, 128), (63, 129), (257, 64), (40, 512), (5, 8, 96), (130, 8192)]


@runs
@pytest.mark.slow(sample=6)
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_the_backward_of_a_norm_is_two_kernels(name, shape, dtype):
    graph = backward(name, shape, dtype)
    schedule = check(graph, inputs(graph))
    assert len(schedule.kernels) == 2 and len(walked(schedule)) == 1


@runs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_four_columns_and_what_the_rows_have_stored(dtype):
    graph = backward("block", (130, 40), dtype)
    schedule = check(graph, inputs(graph))
    kernel, = walked(schedule)
    assert len(printing.down(kernel)) == 4
    assert {load.buffer for loop in printing.down(kernel)
            for load in loop.loads} & kernel.written.keys()


@runs
def test_every_reduction_of_columns():
    def function(x):
        return (x.softmax(-1), x.amax(0), x.amin(0), x.sum(0), x.prod(0),
                (x > 2).any(0), (x < 3).all(0))
    x = torch.randn(300, 40)
    x[7, 3] = torch.nan
    schedule = check(aten(function, x), [x])
    kernel, = walked(schedule)
    assert len(printing.down(kernel)) == 6


@runs
def test_two_sums_of_the_same_columns():
    def function(x):
        y = x.softmax(-1) * x
        return y, y.sum(0), y.flatten().view(y.shape).sum(0)
    x = torch.randn(300, 40)
    kernel, = walked(check(aten(function, x), [x]))
    assert len(printing.down(kernel)) == 2


def gradients(function, weights, *given):
    given = [arg.detach().requires_grad_() for arg in given]
    return torch.autograd.grad(
        function(*given), given, weights.to(given[0].dtype))


@runs
@pytest.mark.parametrize("rows", [(64, 300, 5), (5, 77, 400)])
def test_any_number_of_rows(rows, monkeypatch):
    """One program; chunks have as many rows as they need."""
    monkeypatch.setattr(joining, "CHUNKS", 2)
    compiled = minicompile.compile(layer_norm, dynamic=True, options={
        "cpu_backend": "triton"})
    for count in rows:
        args = [torch.randn(size, device=DEVICE) for size in (
            (count, 48), (count, 48), 48, 48)]
        judged(near, gradients(compiled, *args),
               gradients(layer_norm, *args), gradients, layer_norm, *args)
    assert compiled.stats().graphs == 1 and not compiled.stats().fallbacks


@pytest.mark.parametrize("seed", [*range(25), *(
    pytest.param(seed, marks=pytest.mark.slow) for seed in range(25, 250))])
def test_random_rows_and_columns_mean_the_same(seed):
    function = Both(seed)
    args = function.inputs()
    assert_right(aten(function, *args), args)


@runs
@pytest.mark.slow(sample=3)
@pytest.mark.parametrize("seed", range(40))
def test_random_rows_and_columns_run(seed):
    function = Both(seed)
    args = [arg.float() for arg in function.inputs()]
    check(aten(function, *args), args)


def test_many_random_functions_are_walked():
    """So that the two tests above are about something."""
    found = [walked(fusion.fuse(aten(Both(seed), *Both(seed).inputs())))
             for seed in range(25)]
    assert sum(map(bool, found)) >= 10


def test_parts_that_are_returned_stay():
    """Columns that look like parts of a sum, but are a result."""
    def function(x):
        parts = x.view(4, 64, 32).sum(1)
        return x.softmax(-1), parts, parts.sum(0)
    x = torch.randn(256, 32).double()
    graph = aten(function, x)
    assert not walked(assert_right(graph, (x,)))


def test_sums_of_every_other_row_stay():
    """Parts of twice as many columns could be more parts of these."""
    def function(x):
        return x.softmax(-1), x.sum(0), x.view(-1, 2, 96).sum(0)
    x = torch.randn(64, 96).double()
    kernel, = walked(assert_right(aten(function, x), (x,)))
    assert len(printing.down(kernel)) == 1


def test_a_sum_that_the_rows_need_stays():
    """A column's sum is ready when all rows have been read."""
    def function(x):
        return (x - x.sum(0)).softmax(-1)
    x = torch.randn(128, 32).double()
    graph = aten(function, x)
    schedule = assert_right(graph, (x,))
    assert len(schedule.kernels) > 1


def kernels(name, shape, dtype=torch.bfloat16):
    return fusion.fuse(as_cuda(backward(name, shape, dtype))).kernels


@pytest.mark.parametrize("name, shape, count", [
    ("layer_norm", (65536, 2048), 2), ("layer_norm", (1024, 8192), 2),
    ("layer_norm", (65536, 16384), 3), ("rms_norm", (4099, 997), 2),
    ("block", (4096, 1024), 2), ("block", (4096, 4096), 3)])
def test_rows_are_walked_along_if_registers_hold_them(name, shape, count):
    made = kernels(name, shape)
    assert len(made) <= count
    assert bool([k for k in made if printing.down(k)]) == (count == 2)


@pytest.mark.parametrize("width, dtype, count", [
    (1024, torch.bfloat16, 3), (1024, torch.float32, 2),
    (4096, torch.bfloat16, 2)])
def test_short_rows_that_draw_random_numbers_are_not_walked_along(
        width, dtype, count):
    """Drawing takes longer than reading such a row twice."""
    def function(x, y, weight, bias, seed):
        kept = UNIFORM(seed, 0, x.shape) >= .1
        return layer_norm(x + y * kept, weight, bias)
    graph = halves(function, *fake_inputs(
        *[(8192, width)] * 2, [width], [width], dtype=dtype, grad=True),
        torch.tensor([1, 2]))
    made = fusion.fuse(as_cuda(graph["backward"])).kernels
    assert any(draws(kernel.loops) for kernel in made)
    assert bool([k for k in made if printing.down(k)]) == (count == 2)
    assert len(made) == count


@pytest.mark.parametrize("columns, launches", [(1024, 5), (8192, 7)])
def test_the_last_sums_of_several_norms_are_one_launch(columns, launches):
    """Unless their chunks would keep much memory alive."""
    def layers(x, square, *weights):
        for weight in weights:
            x = rms_norm(x, weight) @ square
        return x
    graph = halves(layers, *fake_inputs(
        (16384, columns), (columns, columns), *[[columns]] * 3, grad=True)
        )["backward"]
    source = emit.emit(fusion.fuse(as_cuda(graph))).source
    assert source.count(".run(") == launches
    assert ("members=3)" in source) == (launches == 5)


def test_each_program_of_a_gpu_has_a_chunk():
    many, _ = kernels("layer_norm", (2 ** 20, 4096))
    assert printing.walking(many).counted == "tl.int64"
    kernel, last = kernels("layer_norm", (65536, 2048))
    assert printing.walking(kernel).counted == ""
    tiling = printing.walking(kernel)
    assert (tiling.grid, tiling.warps) == (256, 8)
    assert [axis.block for axis in tiling.axes] == [2, 2048]
    assert last.row_length == 256


@pytest.mark.parametrize("name", NORMS)
def test_the_text_of_a_walk(name, golden):
    first, *_ = kernels(name, (4096, 1024))
    if name == "layer_norm":
        golden("triton_walk.py", print_kernel(first))
    assert "for start in tl.range(0, 16, XBLOCK" in print_kernel(first)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(4096, 1024), (7, 257, 385), (3001, 2048),
                                   (1000, 8192), (70_000, 96)], ids=str)
@pytest.mark.parametrize("function", [layer_norm, rms_norm])
def test_gradients_on_a_gpu(function, shape, dtype):
    count = 2 if function is layer_norm else 1
    args = [torch.randn(size, device="cuda", dtype=dtype)
            for size in (shape, shape, *[shape[-1:]] * count)]
    compiled = minicompile.compile(function)
    found = gradients(compiled, *args)
    judged(near, found, gradients(function, *args), gradients, function,
           *args)
    for a, b in zip(found, gradients(compiled, *args), strict=True):
        assert torch.equal(a, b)
    assert compiled.stats().kernels == 3 and not compiled.stats().fallbacks
