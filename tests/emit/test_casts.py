"""Every dtype converted to every other, and 16-bit floats on every bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from minicompile.core.loops import Const, Kernel, Loop, Op
from minicompile.emit import cpp
from minicompile.emit.target import CPP
from tests.emit.build import (
    at,
    buffer,
    check,
    load,
    reference,
    run,
    run_loaded,
    variables,
)

VALUES = [0.0, -0.0, 0.4, 0.5, 1.5, -1.0, -1.5, 2.5, 100.7, -100.7, 127.0]


def cast(source: torch.dtype, target: torch.dtype, count: int) -> Kernel:
    """`out = x`, in another dtype."""
    (i,) = variables("i", count)
    out = buffer("out", count, dtype=target)
    value = Op("cast", (load(buffer("x", count, dtype=source), i),), target)
    name = f"to_{CPP.types[target]}"
    return Kernel(name, (i,), (), (Loop(out, at(out, i), (i,), value),))


@pytest.mark.parametrize("source", CPP.types, ids=lambda d: str(d)[6:])
def test_a_cast_is_pytorchs(source):
    given = {"x": torch.tensor(VALUES * 5).to(source)}
    if source.is_floating_point:
        given["x"][:3] = torch.tensor([float("inf"), float("nan"), 7e4])
    kernels = [cast(source, target, len(given["x"])) for target in CPP.types]
    library = cpp.built("\n".join(map(cpp.in_cpp, kernels)))
    for kernel in kernels:
        got = run_loaded(library, kernel, given)["out"]
        want = reference(kernel, given)["out"]
        defined = torch.ones(len(got), dtype=bool)
        if source.is_floating_point and want.dtype in (
                torch.int64, torch.int32, torch.int16, torch.int8,
                torch.uint8):
            defined[:3] = False  # C++ leaves these open, and so does eager
        torch.testing.assert_close(got[defined], want[defined],
                                   rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("source, roundings", [
    (torch.bool, 1), (torch.uint8, 1), (torch.int8, 1), (torch.int16, 2)])
def test_whole_numbers_of_8_bits_need_no_rounding(source, dtype, roundings):
    every = torch.arange(-2 ** 15, 2 ** 15).to(source)
    (i,) = variables("i", len(every))
    out = buffer("out", len(every), dtype=dtype)
    number = Op("cast", (load(buffer("x", len(every), dtype=source), i),),
                dtype)
    value = Op("mul", (number, Const(1.1, dtype)), dtype)
    kernel = Kernel("scale", (i,), (), (Loop(out, at(out, i), (i,), value),))
    check(kernel, {"x": every}, rtol=0, atol=0)
    assert cpp.in_cpp(kernel).count("::rounded(") == roundings


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_16_bit_floats_survive_a_round_trip(dtype):
    every = torch.arange(-2 ** 15, 2 ** 15).to(torch.int16).view(dtype)
    kernel = cast(dtype, torch.float32, 2 ** 16)
    check(kernel, {"x": every}, rtol=0, atol=0)
    back = cast(torch.float32, dtype, 2 ** 16)
    check(back, {"x": every.float()}, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_round_to_the_nearest_even(dtype):
    about = torch.randint(-2 ** 31, 2 ** 31, (2 ** 20,)).to(torch.int32)
    halves = about & ~0x1fff | 0x1000  # in the middle between two
    given = torch.cat([about, halves, about & ~0xffff | 0x8000])
    given = {"x": given.view(torch.float32)}
    kernel = cast(torch.float32, dtype, len(about) * 3)
    check(kernel, given, rtol=0, atol=0)
    loop, = kernel.loops  # and where the rounded number is not stored
    wide = replace(loop, buffer=replace(loop.buffer, dtype=torch.float32),
                   value=Op("cast", (loop.value,), torch.float32))
    check(replace(kernel, loops=(wide,)), given, rtol=0, atol=0)


@pytest.mark.parametrize("whole", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_float_that_became_a_whole_number_is_never_minus_zero(
        dtype, whole):
    kernel = cast(dtype, dtype, 40)
    loop, = kernel.loops
    there = Op("cast", loop.value.operands, whole)
    back = replace(loop, value=Op("cast", (there,), dtype))
    x = torch.tensor([-0.5, -0.0, 0.5, -1.5, 2.5] * 8, dtype=dtype)
    got = run(replace(kernel, loops=(back,)), {"x": x})["out"]
    assert not got[x.abs() < 1].signbit().any()
