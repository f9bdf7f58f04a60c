"""What NVIDIA's compiler makes of the kernels, without a GPU.

Triton compiles for the H200's architecture anywhere: the width of loads,
registers and spills can be read off the result.
"""

import re

import pytest
import torch
import torch.nn.functional as F

from chapters._book.ptx import compiled
from minicompile import fusion
from minicompile.core.loops import REDUCTIONS, SCANS, Const, Kernel, Op
from minicompile.emit.cuda.equal_kernels import Batch, united
from minicompile.emit.cuda.launcher import LAUNCHER
from minicompile.emit.triton import TILINGS
from minicompile.emit.triton_math import INTERPRETED
from minicompile.fusion.passes import split_reduction as joining
from tests.emit import triton_kernels
from tests.emit.build import in_full
from tests.emit.sums import LARGE, Sums
from tests.emit.test_triton_ops import ARITY, CASES, result_type
from tests.emit.walks import NORMS, backward, walked
from tests.fusion.graphs import aten, as_cuda
from tests.fusion.symbolic import symbolic

pytestmark = pytest.mark.skipif(
    INTERPRETED, reason="Triton's interpreter does not compile")


def kernels_of(function, *args):
    """The kernels of a function, compiled for an H200."""
    return [compiled(kernel) for kernel in
            fusion.fuse(aten(function, *args)).kernels]


def chain(x, y):
    z = torch.relu(x * y + 1) * 0.1 - x
    return (torch.maximum(z.abs(), y) + x) * y


def test_a_batch_loads_16_bytes_at_a_time():
    """The addresses that its programs choose from are all aligned."""
    def update(*tensors):
        return [x - (y * y + 1).sqrt() for x, y in zip(
            tensors[::2], tensors[1::2])]

    args = [torch.empty(1 << 20) for _ in range(32)]
    one, *_ = members = fusion.fuse(aten(update, *args)).kernels
    assert len(members) == 16
    single, batch = compiled(one), compiled(united(
        Batch, "batch", (*members,)))
    assert set(batch.widths("ld")) == {".v4.b32"}
    assert batch.widths("ld") == single.widths("ld")
    assert batch.instructions < single.instructions + 16


def test_fast_numerics_take_half_the_instructions_of_a_gelu():
    kernel, = fusion.fuse(aten(F.gelu, torch.empty(
        1 << 22, dtype=torch.bfloat16))).kernels
    exact, fast = compiled(kernel), compiled(kernel, numerics="fast")
    assert fast.instructions < 0.55 * exact.instructions
    assert "fma" in fast.ptx


WIDE = {
    "chain": (chain, (4096, 4096), 2),
    "softmax": (lambda x: F.softmax(x, -1), (1024, 16384), 1),
    "layer_norm": (lambda x: F.layer_norm(x, (16384,)), (1024, 16384), 1),
    "layer_norm 1024": (lambda x: F.layer_norm(x, (1024,)), (4096, 1024), 1),
    "add a row": (lambda x, y: x + y[0], (4096, 1024), 2),
}


@pytest.mark.slow(sample=3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", WIDE)
def test_loads_and_stores_are_of_16_bytes(name, dtype):
    function, shape, count = WIDE[name]
    args = [torch.empty(shape, dtype=dtype) for _ in range(count)]
    kernel, = kernels_of(function, *args)
    assert set(kernel.widths("ld")) == {".v4.b32"}
    assert set(kernel.widths("st")) == {".v4.b32"}
    used = kernel.usage
    assert used["STACK"] == used["LOCAL"] == 0
    blocks = 65536 // (used["REG"] * kernel.warps * 32)
    assert blocks >= 2, "one block a multiprocessor cannot hide its loads"


def test_a_transposed_tile_loads_along_both_sides():
    args = [torch.empty(4096, 4096, dtype=torch.bfloat16)] * 2
    kernel, = kernels_of(lambda x, y: x.t() + y, *args)
    assert set(kernel.widths("ld")) == {".v4.b32"}
    assert set(kernel.widths("st")) == {".v4.b32"}


def test_columns_are_loaded_side_by_side():
    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    for kernel in kernels_of(lambda x: x.sum(0), x):
        assert ".v4.b32" in kernel.widths("ld")
        assert kernel.usage["STACK"] == 0


def walking(schedule):
    """The kernel that walks along rows, compiled for an H200; if sizes are
    symbols, for small ones and for large ones."""
    kernel, = walked(schedule)
    return [compiled(kernel, wide)
            for wide in ((False, True) if kernel.symbols else (False,))]


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name, rows, length", [
    (name, rows, length) for name in NORMS
    for rows, length in ((65536, 2048), (4096, 1024), (1799, 385),
                         (1000, 768), (65536, 64), (1024, 4096), (1024, 8192))
    if name != "block" or length <= 2048])
def test_a_walk_keeps_its_columns_in_registers(
        name, rows, length, dtype, monkeypatch):
    """Nothing is spilled, and the next rows are loaded meanwhile."""
    monkeypatch.setattr(joining, "WORTH", 1)
    kernel, = walking(fusion.fuse(as_cuda(
        backward(name, (rows, length), dtype))))
    assert kernel.usage["STACK"] == kernel.usage["LOCAL"] == 0
    assert kernel.usage["REG"] * 32 * kernel.warps <= 65536
    if length % 64 == 0 and length * dtype.itemsize < 8192 * 4:
        assert "cp.async" in kernel.ptx
        assert ".v4.b32" in kernel.widths("st")


def test_a_walk_along_any_number_of_rows_compiles(monkeypatch):
    monkeypatch.setattr(joining, "WORTH", 1)

    def both(x):
        row = x[:, :129]
        return row.softmax(-1), row.amax(0), row.sum(0)
    graph = symbolic(both, torch.randn(300, 200))
    small, large = walking(fusion.fuse(as_cuda(graph)))
    assert small.usage["STACK"] == large.usage["STACK"] == 0
    assert ".s64" in large.ptx


def test_the_rounding_of_each_operation_is_eagers():
    args = [torch.empty(4096, 4096)] * 2
    kernel, = kernels_of(lambda x, y: x * y + x / y, *args)
    assert "fma.rn" not in kernel.ptx
    assert "div.rn.f32" in kernel.ptx


def test_what_comes_after_a_sum_is_divided_quickly():
    x = torch.empty(1024, 16384, dtype=torch.bfloat16)
    kernel, = kernels_of(lambda x: F.softmax(x, -1), x)
    assert "div.rn.f32" not in kernel.ptx
    assert kernel.instructions < 28  # what there is time for


def test_a_quotient_of_few_digits_is_divided_roughly():
    """A float16 has 11 digits: a rough quotient may miss the last one."""
    for dtype, number, rough in ((torch.bfloat16, None, True),
                                 (torch.float16, None, False),
                                 (torch.bfloat16, 0.3, False)):
        x = torch.empty(64, 1024, dtype=dtype)
        kernel, = kernels_of(lambda x, n=number: (
            (x if n is None else x.float() * n) / x.flip(0)), x)
        assert ("div.full.f32" in kernel.ptx) is rough
        assert ("div.rn.f32" in kernel.ptx) is not rough


@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_cross_entropy_reads_its_row_once_and_one_logit_more(dtype):
    x = torch.empty(1024, 16384, dtype=dtype)
    y = torch.zeros(1024, dtype=torch.int64)
    kernel, *_ = kernels_of(F.cross_entropy, x, y)
    if dtype == torch.float64:
        assert "ex2.approx" not in kernel.ptx
        return
    loads = kernel.widths("ld")
    row = loads.pop(".v4.b32") * 16 * kernel.warps * 32
    assert row == 16384 * dtype.itemsize
    assert sum(loads.values()) == 2  # the label, and its logit
    assert kernel.usage["STACK"] == 0
    assert kernel.instructions < 12  # there is time for 14


def test_an_exponential_that_is_more_than_added_up_is_eagers():
    x = torch.empty(64, 1024)
    for function in (lambda x: F.softmax(x, -1), lambda x: x.exp().sum(-1),
                     lambda x: (x - x.amax(0)).exp().sum(-1)):
        for kernel in kernels_of(function, x):
            assert kernel.ptx.count("ex2.approx") == kernel.ptx.count(
                "fma.rm.f32")  # the start of libdevice's


def test_a_function_of_a_tiny_number_is_not_that_of_zero():
    """As PyTorch's own kernels, which keep denormal numbers."""
    def f(x, y):
        return x.expm1(), x.sin(), x.rsqrt(), x.log1p(), y.atan2(x)

    for kernel in kernels_of(f, torch.empty(64), torch.empty(64)):
        assert "ftz" not in kernel.ptx


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("of", ["elements", "rows"])
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32,
    torch.bool, torch.uint8], ids=str)
def test_every_operation_compiles(dtype, of, monkeypatch):
    """One kernel that does all that a type can, to blocks or to numbers,
    or to one of these and a constant."""
    monkeypatch.setattr(triton_kernels, "DEVICE", torch.device("cuda", 0))
    made, at = triton_kernels.buffer, triton_kernels.at
    ranges = triton_kernels.variables("i", (4096,))
    a, b = (at(made(n, (4096,), dtype), ranges) for n in "ab")
    test = at(made("test", (4096,), torch.bool), ranges)
    three, loops = Const(3 if dtype != torch.bool else True, dtype), []
    for name in [name for name, kind in CASES if kind == dtype]:
        kind = result_type(name, dtype)
        for k, pair in enumerate([(a, b), (a, three), (three, a)]):
            operands = (a,) if name in ARITY[1] else (
                (test, *pair) if name == "where" else pair)
            loops += triton_kernels.pointwise(
                in_full(Op(name, operands, kind)),
                made(f"{name}_{k}", (4096,), kind), ranges).loops
    reduced = triton_kernels.variables("r", (2048,)) * (of == "rows")
    if reduced:
        row = at(made("row", (4096, 2048)), ranges + reduced)
        loops += triton_kernels.reducing(
            "sum", row, made("row_sum", (4096,)), ranges, reduced).loops
    kernel = Kernel("kernel_0", ranges, reduced, tuple(loops))
    assert TILINGS[-1](kernel).flat == bool(reduced)
    compiled(kernel)


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("length", [1024, 100_000])
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool],
    ids=str)
def test_every_reduction_compiles(dtype, length, monkeypatch):
    monkeypatch.setattr(triton_kernels, "DEVICE", torch.device("cuda", 0))
    made, at = triton_kernels.buffer, triton_kernels.at
    ranges = triton_kernels.variables("i", (64,))
    reduced = triton_kernels.variables("r", (length,))
    a = at(made("a", (64, length), dtype), ranges + reduced)
    loops = []
    for name in REDUCTIONS:
        kind = (torch.int64 if name.startswith("arg") else
                torch.bool if name in ("any", "all") else dtype)
        if dtype == torch.bool and name.removeprefix("cum") in (
                "sum", "prod"):
            continue
        given = a if kind == dtype or kind == torch.int64 else Op(
            "ne", (a, Const(0, dtype)), torch.bool)
        shape = (64, length) if name in SCANS else (64,)
        kernel = triton_kernels.reducing(
            name, given, made(f"{name}_out", shape, kind), ranges, reduced)
        loops += kernel.loops
    compiled(Kernel("kernel_0", ranges, reduced, tuple(loops)))


@pytest.mark.parametrize("seed", [*range(12), *(
    pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 300))])
def test_random_sums_compile(seed):
    for kernel in Sums(seed, LARGE).kernels():
        for wide in (False, True) if kernel.symbols else (False,):
            compiled(kernel, wide)


def test_the_last_parameters_of_a_kernel_are_a_few_of_tritons_own():
    """triton_launch passes zeros for them, SPARE at the most."""
    kernel, = kernels_of(lambda x, y: x + y, torch.ones(99), torch.ones(99))
    spare = re.search(r"SPARE = (\d+)", LAUNCHER).group(1)
    assert 3 <= kernel.ptx.count(".param .") <= 3 + int(spare)
