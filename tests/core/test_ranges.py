"""The bounds of what kernels compute hold for all of its values."""

import pytest
import torch

import minicompile
from minicompile.core.index import Variable, index
from minicompile.core.loops import Const, Load, Op, Position
from minicompile.core.semantics.evaluate import evaluate
from minicompile.core.semantics.ranges import bounds

I = Variable("i", index(50))  # noqa: E741
PLACE = Position(index(I) * 2 - 7, torch.int64)


def whole(name, *operands):
    return Op(name, operands, torch.int64)


def number(value, dtype=torch.int64):
    return Const(value, dtype)


def scaled(by):
    """A place of another image, as interpolation finds it."""
    wide = Op("cast", (PLACE,), torch.float32)
    return Op("cast", (Op("floor", (Op("mul", (wide, Const(
        by, torch.float32)), torch.float32),), torch.float32),), torch.int64)


KNOWN = {
    "place": PLACE,
    "reflected": whole("sub", number(40), whole("abs", whole(
        "sub", PLACE, number(30)))),
    "clamped": whole("minimum", whole("maximum", PLACE, number(0)),
                     number(9)),
    "product": whole("mul", PLACE, whole("sub", number(3), PLACE)),
    "scaled": scaled(0.37), "negative": scaled(-1.9),
    "chosen": Op("where", (Op("lt", (PLACE, number(0)), torch.bool), whole(
        "add", PLACE, number(100)), PLACE), torch.int64),
    "truth": Op("cast", (Op("lt", (PLACE, number(5)), torch.bool),),
                torch.int64),
}


@pytest.mark.parametrize("name", KNOWN)
def test_no_value_is_outside(name):
    found = evaluate(KNOWN[name], {I: torch.arange(50)})
    low, high = bounds(KNOWN[name])
    assert low <= found.min() and found.max() <= high
    assert high - low < 1 << 20


def test_what_lies_in_memory_has_no_bounds():
    load = Load("x", index(I), torch.int64)
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(
        torch.int64).max
    assert bounds(load) == (least, most)
    assert bounds(whole("minimum", load, number(9))) == (least, 9)
    assert bounds(whole("maximum", whole("minimum", load, number(9)),
                        number(0))) == (0, 9)
    overflowing = whole("mul", whole("minimum", PLACE, number(
        1 << 40)), number(1 << 60))
    assert bounds(overflowing) == (least, most)


def test_a_float_in_memory_may_be_nan_whatever_bounds_it():
    load = Load("x", index(I), torch.float32)
    held = Op("maximum", (Op("minimum", (load, Const(
        9.0, torch.float32)), torch.float32), Const(
        0.0, torch.float32)), torch.float32)
    limits = torch.iinfo(torch.int64)
    assert bounds(Op("cast", (held,), torch.int64)) == (
        limits.min, limits.max)


def test_a_place_that_is_nan_is_an_error_as_in_eager():
    def function(x, t):
        return x[t.clamp(0, 9).long()] * 2
    compiled = minicompile.compile(function)
    x, t = torch.randn(10, 64), torch.tensor([1.5, 7.0, 12.0, -3.0])
    torch.testing.assert_close(compiled(x, t), function(x, t))
    t[2] = torch.nan
    for each in (function, compiled):
        with pytest.raises((IndexError, RuntimeError)):
            each(x, t)


def test_a_float_of_few_digits_is_far_off():
    wide = Position(index(Variable("i", index(2052))), torch.int64)
    for dtype, off in ((torch.bfloat16, 8), (torch.float16, 1)):
        found = bounds(Op("cast", (Op("cast", (wide,), dtype),),
                          torch.int64))
        assert found[1] >= 2051 + off
    large = Op("mul", (Op("cast", (wide,), torch.float16), Const(
        100.0, torch.float16)), torch.float16)
    assert bounds(large) == (-torch.inf, torch.inf)  # it may be infinite


@pytest.mark.parametrize("rows, place", [
    (320, lambda: torch.arange(320)[-2:].bfloat16().long()),
    (2052, lambda: torch.arange(2052).half().long()),
    (1, lambda: (torch.arange(300) * 0.002).bool().long()),
    (1, lambda: (torch.arange(70_000).half() * 0).long())])
def test_a_place_outside_is_an_error(rows, place):
    compiled = minicompile.compile(lambda x: (x * 2)[place()] + 1)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.randn(rows, 32))
