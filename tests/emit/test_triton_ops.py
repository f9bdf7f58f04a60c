"""Every operation in Triton gives what PyTorch's gives, element by element.

Runs on a GPU, or with TRITON_INTERPRET=1 in Triton's interpreter.
"""

from math import inf, nan

import pytest
import torch

import minicompile
from minicompile.core import loops
from minicompile.core.index import Division, index
from minicompile.core.loops import Const, Kernel, Op, Position
from minicompile.emit.target import CPP, FORMS, TRITON
from minicompile.fusion.lowerings import ROUNDING
from minicompile.fusion.rules.arithmetic import DOWN
from tests.emit.build import in_full
from tests.emit.triton_kernels import (
    DEVICE,
    RUNS,
    at,
    buffer,
    judge,
    pointwise,
    variables,
)

needs_triton = pytest.mark.skipif(
    not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
BOOL = (torch.bool,)

ANY = "add mul maximum minimum eq ne lt le gt ge where cast".split()
LOGIC = "logical_not logical_and logical_or logical_xor".split()
NUMBERS = """neg abs sign relu sub remainder fmod div_floor div_trunc
    isnan floor ceil trunc round""".split()
BITS = "bitwise_not bitwise_and bitwise_or bitwise_xor".split()
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
ARITY = {1: set("""neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt
    rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf
    erfc lgamma floor ceil trunc round sigmoid reciprocal relu isnan
    signbit logical_not bitwise_not cast""".split()), 3: {"where"}}
QUESTIONS = {"isnan", "signbit", "eq", "ne", "lt", "le", "gt",
             "ge", *LOGIC}


def kinds_of(name):
    """The dtypes for which PyTorch has the operation."""
    if name == "uniform":  # it is not PyTorch's
        return ()
    if name in BITS:
        return INTS + BOOL
    if name in SHIFTS:
        return INTS
    if name in ANY or name in LOGIC:
        return FLOATS + INTS + BOOL
    if name in NUMBERS:
        return FLOATS + INTS
    if name == "signbit":
        return FLOATS + (torch.int64, torch.int32)
    return FLOATS


CASES = [(name, dtype) for name in (*FORMS, *DOWN) for dtype in kinds_of(name)]

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 100.0,
           1e-3, -7.0, float("inf"), float("-inf"), float("nan")]


def numbers(dtype, name=""):
    """16 values of a dtype, special ones first, some of them shuffled."""
    if dtype == torch.bool:
        return torch.tensor([True, False] * 8)
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype)
    return (torch.arange(16) * 17 if dtype == torch.uint8
            else torch.arange(16) - 7).to(dtype)


def second(dtype, name):
    values = numbers(dtype).roll(5)
    if name in SHIFTS:
        return torch.tensor([0, 1, 2, 3, 7, 8, 31, 33] * 2).to(dtype)
    divides = name in ("remainder", "fmod", "div_floor", "div_trunc")
    if divides and not dtype.is_floating_point:
        values[values == 0] = 3
    return values


def test_the_table_has_every_operation():
    assert set(FORMS) == set(loops.OPS)


def result_type(name, dtype):
    if name in QUESTIONS:
        return torch.bool
    return dtype


def together(values, dtypes, ranges):
    """One kernel that stores each value in a buffer of its name."""
    shape = tuple(int(variable.size) for variable in ranges)
    loops = [pointwise(value, buffer(name, shape, dtypes[name]), ranges
                       ).loops[0] for name, value in values.items()]
    return Kernel("kernel_0", ranges, (), tuple(loops))


@needs_triton
@pytest.mark.parametrize("dtype", FLOATS + INTS + BOOL, ids=str)
def test_operations(dtype, tmp_path):
    """All that PyTorch has for a dtype, side by side in one kernel."""
    ranges, values, dtypes = variables("i", (16,)), {}, {}
    storage = {"a": numbers(dtype),
               "test": torch.tensor([True, False, False, True] * 4)}
    first = at(buffer("a", (16,), dtype), ranges)
    for name in (n for n, kind in CASES if kind == dtype):
        operands = (first,)
        if name not in ARITY[1]:
            other = buffer(f"{name}_b", (16,), dtype)
            storage[other.name] = second(dtype, name)
            operands += (at(other, ranges),)
        if name == "where":
            test = buffer("test", (16,), torch.bool)
            operands = (at(test, ranges), *operands)
        given = {name: operands}
        # the interpreter cannot spread a bool that is one number
        if len(operands) > 1 and not (
                name in ("fmax", "fmin") and dtype == torch.float64):
            three = Const(3 if dtype != torch.bool else True, dtype)
            given[f"{name}_3"] = (*operands[:-1], three)
        for made, parts in given.items():
            dtypes[made] = result_type(name, dtype)
            values[made] = in_full(Op(name, parts, dtypes[made]))
    tolerance = {"rtol": 2e-6, "atol": 1e-6} if (
        dtype == torch.float32) else {}
    loose = {"lgamma": {"rtol": 1e-5, "atol": 1e-5}} if tolerance else {}
    judge(together(values, dtypes, ranges), storage, tmp_path, loose,
          **tolerance)


@needs_triton
@pytest.mark.parametrize("given", FLOATS + INTS + BOOL, ids=str)
def test_casts(given, tmp_path):
    ranges = variables("i", (16,))
    numbers = torch.tensor([0.0, 1.0, -1.0, 2.7, -2.7, 100.4, 0.3, 3e-8] * 2)
    storage = {"a": numbers.double().to(given),
               "positive": numbers.abs().double().to(given)}
    wanted = {str(kind)[6:]: kind for kind in FLOATS + INTS + BOOL}
    values = {}
    for name, kind in wanted.items():
        whole = given.is_floating_point and not kind.is_floating_point
        source = buffer("positive" if whole else "a", (16,), given)
        values[name] = Op("cast", (at(source, ranges),), kind)
    judge(together(values, wanted, ranges), storage, tmp_path, rtol=0,
          atol=0)


@needs_triton
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_as_operands(dtype, tmp_path):
    ranges, values, dtypes = variables("i", (16,)), {}, {}
    operand = at(buffer("a", (16,), dtype), ranges)
    for name in "add mul div maximum pow lt where fmod".split():
        for k, number in enumerate((2, 0.1, 1e-40, 3.0, float("inf"))):
            if (name, number) == ("fmod", 1e-40):
                continue  # the interpreter has no such small float32
            if name in ROUNDING:
                number = torch.tensor(number, dtype=dtype).item()
            operands = (operand, Const(number, dtype))
            if name == "where":
                operands = (Op("lt", operands, torch.bool), *operands)
            kind = torch.bool if name == "lt" else dtype
            dtypes[f"{name}_{k}"] = kind
            values[f"{name}_{k}"] = Op(name, operands, kind)
    judge(together(values, dtypes, ranges),
          {"a": torch.randn(16).to(dtype)}, tmp_path)


@needs_triton
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_every_operation_rounds_as_eager_does(dtype, tmp_path):
    ranges = variables("i", (256,))
    a, b = (at(buffer(n, (256,), dtype), ranges) for n in "ab")
    value = Op("mul", (a, b), dtype)
    value = Op("add", (value, Const(1.0, dtype)), dtype)
    value = Op("relu", (value,), dtype)
    value = Op("mul", (value, Const(0.1, dtype)), dtype)
    value = Op("sub", (value, a), dtype)
    value = Op("maximum", (Op("abs", (value,), dtype), b), dtype)
    value = Op("div", (value, Op("add", (b, Const(3, dtype)), dtype)), dtype)
    storage = {"a": torch.randn(256).to(dtype),
               "b": torch.rand(256).to(dtype)}
    judge(pointwise(value, buffer("out", (256,), dtype), ranges), storage,
          tmp_path, rtol=0, atol=0)


@needs_triton
def test_operations_on_numbers_only(tmp_path):
    ranges = variables("i", (8,))
    value = Op("add", (Const(1, torch.float32), Const(2, torch.float32)),
               torch.float32)
    value = Op("exp", (value,), torch.float32)
    judge(pointwise(value, buffer("out", (8,)), ranges), {}, tmp_path)


@needs_triton
@pytest.mark.parametrize("sign", ["//", "%"])
def test_a_division_of_a_negative_index_rounds_down(sign, tmp_path):
    (i,) = variables("i", (40,))
    where = -index(i) // 9 if sign == "//" else -index(i) % 9
    for layer in range(1, 9):  # by itself it is written once
        where = index(Division(sign, where * 13 - layer, index(11)))
    assert max(len(target.index(where)) for target in (CPP, TRITON)) < 400
    kernel = pointwise(Position(where, torch.int64),
                       buffer("out", (40,), torch.int64), (i,))
    judge(kernel, {}, tmp_path, rtol=0, atol=0)


@needs_triton
def test_uniform_numbers_are_the_references(tmp_path):
    ranges = variables("i", (64,))
    far = torch.tensor([0, 1, -1, 2 ** 31, 2 ** 32 - 1, 2 ** 32 + 5,
                        -2 ** 63, 2 ** 63 - 1])
    storage = {"a": far.repeat(8), "b": far.repeat_interleave(8),
               "c": far.repeat(8) + torch.arange(64)}
    value = Op("uniform", tuple(
        at(buffer(name, (64,), torch.int64), ranges) for name in "abc"),
        torch.float32)
    out = buffer("out", (64,), torch.float32)
    judge(pointwise(value, out, ranges), storage, tmp_path, rtol=0, atol=0)


@needs_triton
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_fast_functions_are_as_near_as_they_say(dtype):
    def function(x):
        return torch.erf(x), torch.nn.functional.gelu(x)
    x = torch.cat([torch.linspace(-6, 6, 3001, dtype=torch.float64),
                   torch.tensor([0, 1e-30, -1e-6, inf, -inf, nan])])
    x = x.to(DEVICE, dtype)
    erf, gelu = minicompile.compile(function, options={
        "numerics": "fast", "cpu_backend": "triton"})(x)
    right, smooth = function(x.double())
    near = {torch.float32: 1.7e-7, torch.float64: 1e-15}.get(
        dtype, torch.finfo(dtype).eps / 2 + 1.7e-7)
    assert (erf.double() - right)[:-1].abs().max() <= near
    size = x.abs().double().clamp(min=1)[:-3]
    assert ((gelu.double() - smooth)[:-3].abs() / size).max() <= 2 * near
    assert erf[-1].isnan() and gelu[-1].isnan()
    assert gelu[-3] == inf


@needs_triton
def test_a_report_shows_the_fast_functions_that_run():
    kernel, = minicompile.explain(torch.erf, options={
        "numerics": "fast", "cpu_backend": "triton"})(
            torch.ones(8, device=DEVICE)).kernels
    assert "fast_erf(" in kernel.source
