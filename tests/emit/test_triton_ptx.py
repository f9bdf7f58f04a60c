"""What NVIDIA's compiler makes of the kernels, without a GPU.

Triton compiles for the H200's architecture anywhere: the width of loads,
registers and spills can be read off the result.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from minicompile import fusion
from minicompile.core.options import Options
from minicompile.emit.triton import TritonPrinter
from minicompile.emit.triton_math import INTERPRETED
from tests.fusion.graphs import aten

pytestmark = pytest.mark.skipif(
    INTERPRETED, reason="Triton's interpreter does not compile")

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32",
         torch.bfloat16: "*bf16", torch.float16: "*fp16",
         torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8",
         torch.bool: "*i1"}


def compiled(function, *args, folder: Path):
    """The compiled kernels of a function, by name, and their launches."""
    schedule = fusion.fuse(aten(function, *args))
    return {kernel.name: compile_kernel(kernel, folder)
            for kernel in schedule.kernels}


def compile_kernel(kernel, folder: Path):
    """How a kernel is launched, and what it is compiled to."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    printer = TritonPrinter(Options(), torch.device("cuda", 0))
    text = "\n".join([printer.prelude(), printer.define((kernel,))])
    path = folder / f"{kernel.name}.py"
    path.write_text(text)
    names = {"__name__": "program", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), names)
    launch = names[kernel.name]
    dtypes = {load.buffer: load.dtype for loop in kernel.loops
              for load in loop.loads} | {
        name: b.dtype for name, b in kernel.written.items()}
    order = [*kernel.read, *kernel.written]
    source = ASTSource(
        launch.kernel, {f"{n}_ptr": TYPES[dtypes[n]] for n in order}, {},
        {(k,): [["tt.divisibility", 16]] for k in range(len(order))})
    return launch, triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={
            "num_warps": launch.warps, "enable_fp_fusion": False})


def usage(kernel, folder: Path) -> dict[str, int]:
    """Registers a thread and bytes of stack, where spilled values go."""
    import triton
    path = folder / "kernel.cubin"
    path.write_bytes(kernel.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    shown = subprocess.run([tool, "-res-usage", path], capture_output=True,
                           text=True, check=True)
    return {name: int(number) for name, number in re.findall(
        r"(REG|STACK|LOCAL):(\d+)", shown.stdout + shown.stderr)}


def widths(kernel, what: str) -> Counter:
    """How the kernel's loads (`ld`) or stores (`st`) are written."""
    return Counter(re.findall(rf"{what}\.global\S*?((?:\.v\d)?\.b\d+)",
                              kernel.asm["ptx"]))


def chain(x, y):
    z = torch.relu(x * y + 1) * 0.1 - x
    return (torch.maximum(z.abs(), y) + x) * y


WIDE = {
    "chain": (chain, (4096, 4096), 2),
    "softmax": (lambda x: F.softmax(x, -1), (1024, 16384), 1),
    "layer_norm": (lambda x: F.layer_norm(x, (16384,)), (1024, 16384), 1),
    "layer_norm 1024": (lambda x: F.layer_norm(x, (1024,)), (4096, 1024), 1),
    "add a row": (lambda x, y: x + y[0], (4096, 1024), 2),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", WIDE)
def test_loads_and_stores_are_of_16_bytes(name, dtype, tmp_path):
    function, shape, count = WIDE[name]
    args = [torch.empty(shape, dtype=dtype) for _ in range(count)]
    (launch, kernel), = compiled(
        function, *args, folder=tmp_path).values()
    assert set(widths(kernel, "ld")) == {".v4.b32"}
    assert set(widths(kernel, "st")) == {".v4.b32"}
    used = usage(kernel, tmp_path)
    assert used["STACK"] == used["LOCAL"] == 0
    blocks = 65536 // (used["REG"] * launch.warps * 32)
    assert blocks >= 2, "one block a multiprocessor cannot hide its loads"


def test_a_transposed_tile_loads_along_both_sides(tmp_path):
    args = [torch.empty(4096, 4096, dtype=torch.bfloat16)] * 2
    (_, kernel), = compiled(lambda x, y: x.t() + y, *args,
                            folder=tmp_path).values()
    assert set(widths(kernel, "ld")) == {".v4.b32"}
    assert set(widths(kernel, "st")) == {".v4.b32"}


def test_columns_are_loaded_side_by_side(tmp_path):
    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    for _, kernel in compiled(lambda x: x.sum(0), x,
                              folder=tmp_path).values():
        assert ".v4.b32" in widths(kernel, "ld")
        assert usage(kernel, tmp_path)["STACK"] == 0


def test_the_rounding_of_each_operation_is_eagers(tmp_path):
    args = [torch.empty(4096, 4096)] * 2
    (_, kernel), = compiled(lambda x, y: x * y + x / y, *args,
                            folder=tmp_path).values()
    assert "fma.rn" not in kernel.asm["ptx"]
    assert "div.rn.f32" in kernel.asm["ptx"]


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32,
    torch.bool, torch.uint8], ids=str)
def test_every_operation_compiles(dtype, tmp_path, monkeypatch):
    """One kernel that does all that a type can."""
    from minicompile.core.loops import Kernel, Op
    from tests.emit import triton_kernels
    from tests.emit.test_triton_ops import ARITY, CASES, result_type
    monkeypatch.setattr(triton_kernels, "DEVICE", torch.device("cuda", 0))
    made, at = triton_kernels.buffer, triton_kernels.at
    ranges = triton_kernels.variables("i", (4096,))
    a, b = (at(made(n, (4096,), dtype), ranges) for n in "ab")
    test = at(made("test", (4096,), torch.bool), ranges)
    loops = []
    for name in [name for name, kind in CASES if kind == dtype]:
        operands = (a,) if name in ARITY[1] else (
            (test, a, b) if name == "where" else (a, b))
        kind = result_type(name, dtype)
        kernel = triton_kernels.pointwise(
            Op(name, operands, kind), made(f"{name}_out", (4096,), kind),
            ranges)
        loops += kernel.loops
    compile_kernel(Kernel("kernel_0", ranges, (), tuple(loops)), tmp_path)


@pytest.mark.parametrize("length", [1024, 100_000])
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool],
    ids=str)
def test_every_reduction_compiles(dtype, length, tmp_path, monkeypatch):
    from minicompile.core.loops import REDUCTIONS, Kernel
    from tests.emit import triton_kernels
    monkeypatch.setattr(triton_kernels, "DEVICE", torch.device("cuda", 0))
    made, at = triton_kernels.buffer, triton_kernels.at
    ranges = triton_kernels.variables("i", (64,))
    reduced = triton_kernels.variables("r", (length,))
    a = at(made("a", (64, length), dtype), ranges + reduced)
    loops = []
    for name in REDUCTIONS:
        kind = (torch.int64 if name.startswith("arg") else
                torch.bool if name in ("any", "all") else dtype)
        if name in ("sum", "prod") and dtype == torch.bool:
            continue
        kernel = triton_kernels.reducing(
            name, a, made(f"{name}_out", (64,), kind), ranges, reduced)
        loops += kernel.loops
    compile_kernel(Kernel("kernel_0", ranges, reduced, tuple(loops)),
                   tmp_path)
