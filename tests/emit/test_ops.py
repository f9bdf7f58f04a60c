"""Every operation of the loop language, for every dtype, on hard numbers.

All kernels of a dtype are compiled together. The reference is PyTorch's
own operation, by core/semantics/evaluate.py.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch

import minicompile
from minicompile.core.loops import OPS, Kernel, Loop, Op
from minicompile.emit import cpp
from minicompile.emit.target import FORMS
from minicompile.emit.target import CPP
from minicompile.fusion.rules.arithmetic import DOWN
from tests.emit.build import (at, buffer, check, in_full, load, reference,
                              run_loaded, variables)

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ASKING = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "signbit",
          "logical_not", "logical_and", "logical_or", "logical_xor"}
BITS = {name for name in OPS if name.startswith("bitwise")}
ARITHMETIC = {"neg", "abs", "sign", "relu", "add", "sub", "mul", "remainder",
              "fmod", "div_floor", "div_trunc", "maximum", "minimum",
              "fmax", "fmin", "where", "floor", "ceil", "trunc",
              "round"}
TWO = {"add", "sub", "mul", "div", "rough_div", "div_floor", "div_trunc",
       "remainder", "fmod", "pow", "atan2", "hypot", "copysign", "maximum",
       "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge",
       "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
       "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"}
#: What formulas of several operations mean.
MEANT = {"remainder": torch.remainder, "div_floor": torch.floor_divide}
#: Units in the last place that the vector functions may be off.
LOOSE = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 2e-3,
         torch.bfloat16: 1.6e-2}


def test_the_table_has_the_rows_of_the_language():
    assert set(FORMS) == set(OPS)
    assert set(MEANT) == set(DOWN)


def test_exp_is_exact_enough_down_to_the_smallest_numbers():
    x, out, i = buffer("x", 3007), buffer("y", 3007), variables("i", 3007)
    value = Op("exp", (load(x, *i),), torch.float32)
    kernel = Kernel("kernel_0", i, (), (Loop(out, at(out, *i), i, value),))
    given = torch.cat([torch.linspace(-200, 100, 3_000), torch.tensor(
        [float("nan"), float("inf"), -float("inf"), -1e30, -104., -87.,
         88.8])])
    check(kernel, {"x": given}, rtol=3e-7, atol=2e-45)


def numbers(dtype: torch.dtype) -> list:
    """Numbers on which operations differ, and ordinary ones."""
    if dtype == torch.bool:
        return [False, True]
    if not dtype.is_floating_point:
        about = torch.iinfo(dtype)
        found = [0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100, about.max,
                 about.max - 1]
        return found + [0, 1] + ([-1, -2, -3, -7, -64, about.min + 1]
                                 if about.min else [200, 255])
    about = torch.finfo(dtype)
    found = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.1, 7.25, 20.0, 88.0, about.max,
             about.tiny, about.tiny / 4, about.eps, float("inf")]
    return found + [-one for one in found] + [float("nan")]


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every number with every other."""
    both = list(product(numbers(dtype), repeat=2))
    return tuple(torch.tensor(column, dtype=dtype)
                 for column in zip(*both, strict=True))


def takes(name: str, dtype: torch.dtype) -> bool:
    """Whether PyTorch has the operation for this dtype."""
    if name in ("cast", "uniform"):
        return False
    if dtype == torch.bool:
        return name in ASKING | BITS - {
            "bitwise_left_shift", "bitwise_right_shift"} | {
            "where", "maximum", "minimum"}
    return name not in BITS if dtype in FLOATS else (
        name in ASKING | BITS | ARITHMETIC)


def kernels(dtype: torch.dtype) -> dict[str, tuple[Kernel, dict]]:
    """A kernel for each operation on two columns of numbers."""
    a, b = pairs(dtype)
    made = {}
    for name in (*OPS, *DOWN):
        if not takes(name, dtype):
            continue
        given = {"left": a, "right": b}
        if name in ("remainder", "fmod", "div_floor", "div_trunc", "pow"):
            given = divisible(name, given)
        made[name] = kernel(name, dtype, given), given
    return made


def divisible(name: str, given: dict) -> dict:
    """Without what eager refuses, or gets wrong (NaN for fmod(1, 1e-39)).
    """
    a, b = given["left"], given["right"]
    if not a.dtype.is_floating_point:
        keep = (b != 0) & (b != -1)
    else:
        keep = ~((a / b).isinf() & a.isfinite() & (b != 0)) | (
            torch.tensor(name in ("pow", "div_floor", "div_trunc")))
    return {"left": a[keep], "right": b[keep]}


def kernel(name: str, dtype: torch.dtype, given: dict) -> Kernel:
    """`out = name(left, right)`, as many operands as it takes."""
    count = len(given["left"])
    (i,) = variables("i", count)
    left, right = (load(buffer(which, count, dtype=dtype), i)
                   for which in ("left", "right"))
    result = torch.bool if name in ASKING else dtype
    operands = (left, right) if name in TWO else (left,)
    if name == "where":
        operands = (Op("lt", (left, right), torch.bool), left, right)
    out, value = buffer("out", count, dtype=result), Op(
        name, operands, result)
    return Kernel(f"kernel_{name}", (i,), (), (Loop(
        out, at(out, i), (i,), in_full(value)),))


@pytest.mark.parametrize("dtype", CPP.types, ids=lambda d: str(d)[6:])
def test_every_operation_is_pytorchs(dtype):
    made = kernels(dtype)
    library = cpp.built("\n".join(
        cpp.in_cpp(kernel) for kernel, _ in made.values()))
    wrong = []
    for name, (kernel, given) in made.items():
        got = run_loaded(library, kernel, given)["out"]
        want = MEANT[name](*given.values()) if name in MEANT else reference(
            kernel, given)["out"]
        wrong += differences(name, given, got, want)
    assert not wrong, "\n".join(wrong[:40])


def differences(name: str, given: dict, got: torch.Tensor,
                want: torch.Tensor) -> list[str]:
    """A line for each element that is not PyTorch's."""
    if want.dtype.is_floating_point:
        limit = LOOSE[want.dtype]
        tiny = 2 * torch.finfo(want.dtype).tiny
        same = torch.isclose(got.double(), want.double(), limit, tiny,
                             equal_nan=True)
        signs = torch.signbit(got) == torch.signbit(want)
        either = name in ("fmax", "fmin")  # of 0.0 and -0.0, as IEEE has it
        same &= signs | want.isnan() | torch.tensor(either)
    else:
        same = got == want
    return [f"{name}({given['left'][k].item()!r}, "
            f"{given['right'][k].item()!r}) = {got[k].item()!r}, not "
            f"{want[k].item()!r}" for k in (~same).nonzero().flatten()]


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_numbers_are_divided_by_numbers(dtype):
    """Also the least one by -1, where a processor's division traps."""
    def divided(x):
        return [result for by in divisors for result in (
            x // by, x % by, torch.fmod(x, by),
            torch.div(x, by, rounding_mode="trunc"))]
    x, last = torch.tensor(numbers(dtype), dtype=dtype), torch.iinfo(dtype)
    divisors = [1, 3, 64, last.max] + [-1, -3] * (last.min < 0)
    for got, want in zip(minicompile.compile(divided)(x), divided(x)):
        assert torch.equal(got, want)
    if last.min < 0:
        minicompile.compile(divided)(torch.full_like(x, last.min))


def test_uniform_numbers_are_the_references():
    """Seeds, offsets and positions around what 32 bits hold."""
    far = torch.tensor([0, 1, -1, 2 ** 31, 2 ** 32 - 1, 2 ** 32 + 5,
                        -2 ** 63, 2 ** 63 - 1])
    given = dict(zip("abc", torch.cartesian_prod(far, far, far).T))
    count = len(given["a"])
    (i,) = variables("i", count)
    out = buffer("out", count)
    operands = tuple(load(buffer(name, count, dtype=torch.int64), i)
                     for name in given)
    made = Kernel("kernel", (i,), (), (Loop(
        out, at(out, i), (i,), Op("uniform", operands, torch.float32)),))
    given = {name: column.contiguous() for name, column in given.items()}
    got = run_loaded(cpp.built(cpp.in_cpp(made)), made, given)["out"]
    assert torch.equal(got, reference(made, given)["out"])
    assert len(got.unique()) > count * 0.9


@pytest.mark.parametrize("name", ["log1p", "sin", "tanh"])
def test_a_number_is_the_same_wherever_it_is_computed(name):
    """In a vector or behind the last, here or in a backward kernel."""
    function = getattr(torch, name)
    found = minicompile.compile(lambda x: function(x).argmax(1), dynamic=True)
    best = minicompile.compile(lambda x: function(x).amax(1), dynamic=True)
    for length in (3, 13, 37):
        x = torch.rand(500, length, dtype=torch.float64)
        assert torch.equal(found(x), function(x).argmax(1))
        x = x.float().requires_grad_()
        best(x).sum().backward()
        assert torch.equal(x.grad != 0, function(x) == function(x).amax(
            1, keepdim=True))
