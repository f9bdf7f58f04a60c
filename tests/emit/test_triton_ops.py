"""Every operation in Triton gives what PyTorch's gives, element by element.

Runs on a GPU, or with TRITON_INTERPRET=1 in Triton's interpreter.
"""

import pytest
import torch

from minicompile.core import loops
from minicompile.core.loops import Const, Op
from minicompile.emit.triton_ops import FORMS
from tests.emit.triton_kernels import (
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
    isnan isinf floor ceil trunc round""".split()
BITS = "bitwise_not bitwise_and bitwise_or bitwise_xor".split()
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
ARITY = {1: set("""neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt
    rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf
    erfc lgamma floor ceil trunc round sigmoid reciprocal relu isnan isinf
    signbit logical_not bitwise_not cast""".split()), 3: {"where"}}
QUESTIONS = {"isnan", "isinf", "signbit", "eq", "ne", "lt", "le", "gt",
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
    if name in ("pow", "signbit"):
        return FLOATS + (torch.int64, torch.int32)
    return FLOATS


CASES = [(name, dtype) for name in FORMS for dtype in kinds_of(name)]

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 100.0,
           1e-3, -7.0, float("inf"), float("-inf"), float("nan")]


def numbers(dtype, name=""):
    """16 values of a dtype, special ones first, some of them shuffled."""
    if dtype == torch.bool:
        return torch.tensor([True, False] * 8)
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype)
    low = 0 if dtype == torch.uint8 else -7
    return torch.arange(16).add(low).to(dtype)


def second(dtype, name):
    values = numbers(dtype).roll(5)
    if name in SHIFTS:
        return torch.tensor([0, 1, 2, 3, 7, 8, 31, 33] * 2).to(dtype)
    if name == "pow" and not dtype.is_floating_point:
        return values.abs()
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


@needs_triton
@pytest.mark.parametrize("name, dtype", CASES, ids=str)
def test_operation(name, dtype, tmp_path):
    ranges = variables("i", (16,))
    a, b, c = (buffer(n, (16,), dtype) for n in "abc")
    out = buffer("out", (16,), result_type(name, dtype))
    storage = {"a": numbers(dtype), "b": second(dtype, name)}
    operands = (at(a, ranges), at(b, ranges))
    if name in ARITY[1]:
        operands = operands[:1]
    elif name == "where":
        test = buffer("test", (16,), torch.bool)
        storage["test"] = torch.tensor([True, False, False, True] * 4)
        operands = (at(test, ranges), *operands)
    kernel = pointwise(Op(name, operands, out.dtype), out, ranges)
    tolerance = {"rtol": 2e-6, "atol": 1e-6} if (
        dtype == torch.float32) else {}
    if name == "lgamma" and dtype == torch.float32:
        tolerance = {"rtol": 1e-5, "atol": 1e-5}
    judge(kernel, storage, tmp_path, **tolerance)


@needs_triton
@pytest.mark.parametrize("given", FLOATS + INTS + BOOL, ids=str)
@pytest.mark.parametrize("wanted", FLOATS + INTS + BOOL, ids=str)
def test_cast(given, wanted, tmp_path):
    ranges = variables("i", (16,))
    values = torch.tensor([0.0, 1.0, -1.0, 2.7, -2.7, 100.4, 0.3, 3e-8] * 2)
    if given.is_floating_point and not wanted.is_floating_point:
        values = values.abs()
    storage = {"a": values.double().to(given)}
    value = Op("cast", (at(buffer("a", (16,), given), ranges),), wanted)
    judge(pointwise(value, buffer("out", (16,), wanted), ranges), storage,
          tmp_path, rtol=0, atol=0)


@needs_triton
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum",
                                  "pow", "lt", "where", "fmod"])
@pytest.mark.parametrize("number", [2, 0.1, 1e-40, 3.0, float("inf")])
def test_a_number_as_operand(name, dtype, number, tmp_path):
    if name == "fmod" and number == 1e-40:
        pytest.skip("the interpreter has no such small float32")
    ranges = variables("i", (16,))
    operand = at(buffer("a", (16,), dtype), ranges)
    constant = Const(number, dtype)
    operands = (operand, constant)
    if name == "where":
        operands = (Op("lt", operands, torch.bool), *operands)
    kind = torch.bool if name == "lt" else dtype
    kernel = pointwise(Op(name, operands, kind), buffer(
        "out", (16,), kind), ranges)
    judge(kernel, {"a": torch.randn(16).to(dtype)}, tmp_path)


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
