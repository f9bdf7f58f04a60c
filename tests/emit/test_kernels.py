"""Kernels of every shape against the reference evaluator."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
import torch
from torch.utils._pytree import tree_leaves

from minicompile.core.errors import BackendError
from minicompile.core.index import Index, index, product
from minicompile.core.loops import row_major
from minicompile.core.loops import (
    Const,
    Kernel,
    Load,
    Loop,
    Op,
    Position,
)
from minicompile.emit import cpp, emit
from minicompile.emit.schedules import cpu as schedules
from minicompile.fusion import fuse
from tests.emit.build import (
    as_right,
    at,
    buffer,
    check,
    load,
    pointwise,
    run,
    run_loaded,
    variables,
)
from tests.fusion.graphs import aten

F32, F64, I64 = torch.float32, torch.float64, torch.int64
AVAILABLE = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Maker:
    """Random kernels: rows, reductions, elements that read each other."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.rows = variables("i", *self.sizes(0, 3))
        self.reduced = variables("r", *self.sizes(0, 2))
        self.given: dict[str, torch.Tensor] = {}
        self.loops: list[Loop] = []
        self.name = f"kernel_{seed}"

    def sizes(self, least: int, most: int) -> list[int]:
        return [self.random.choice([1, 2, 3, 5, 8, 16, 33, 70])
                for _ in range(self.random.randint(least, most))]

    def input(self, over) -> Load:
        """A load of a new input: permuted, expanded, or with gaps."""
        shuffled = list(over)
        self.random.shuffle(shuffled)
        kept = [v for v in shuffled if self.random.random() < 0.8]
        gap = self.random.choice([1, 1, 1, 2])
        steps, span = {}, gap
        for variable in reversed(kept):
            steps[variable] = span
            span = span * int(variable.size) + self.random.choice([0, 0, 3])
        name = f"x{len(self.given)}"
        self.given[name] = torch.randn(span + 7)
        where = index(self.random.choice([0, 0, 5]))
        for variable, step in steps.items():
            where = where + index(variable) * step
        return Load(name, where, F32)

    def divided(self, over) -> Load:
        """A load through a reshape: divisions and remainders."""
        total = int(product(v.size for v in over))
        flat = Index({})
        for variable, step in zip(over, row_major(
                tuple(v.size for v in over)), strict=True):
            flat = flat + index(variable) * step
        by = self.random.choice([d for d in range(1, total + 1)
                                 if total % d == 0])
        name = f"x{len(self.given)}"
        self.given[name] = torch.randn(total)
        where = (flat % by) * (total // by) + flat // by
        return Load(name, where, F32)

    def value(self, over, element: bool):
        """An expression over inputs and what earlier loops stored."""
        found = [self.input(over), self.divided(over)]
        for loop in self.loops:
            row = loop.reduction or len(loop.ranges) == len(self.rows)
            if element or row:
                found.append(Load(loop.buffer.name, loop.index,
                                  loop.buffer.dtype))
        self.random.shuffle(found)
        total = found[0]
        for other in found[1:3]:
            name = self.random.choice(["add", "sub", "mul", "maximum"])
            total = Op(name, (total, as_float(other)), F32) if (
                total.dtype == F32) else as_float(total)
        if self.random.random() < 0.5:
            name = self.random.choice(["exp", "tanh", "abs", "neg"])
            small = Op("tanh", (as_float(total),), F32)
            total = Op(name, (small,), F32)
        return as_float(total)

    def loop(self, number: int) -> None:
        """One more loop: of the row, of elements, or a reduction."""
        rows, every = self.rows, self.rows + self.reduced
        kind = self.random.choice(["row", "element", "reduction"])
        if not self.reduced:
            kind = "row"
        over = every if kind == "element" else rows
        reduction, reduced = None, ()
        if kind == "reduction":
            reduction = self.random.choice(["sum", "sum", "max", "min"])
            reduced = self.reduced
        out = buffer(f"out{number}", *(int(v.size) for v in over))
        value = self.value(every if kind != "row" else rows,
                           kind != "row")
        self.loops.append(Loop(out, at(out, *over), over, value, reduced,
                               reduction))

    def kernel(self) -> Kernel:
        for number in range(self.random.randint(1, 6)):
            self.loop(number)
        hidden = frozenset(loop.buffer.name for loop in self.loops[:-1]
                           if self.random.random() < 0.5)
        return Kernel(self.name, self.rows, self.reduced,
                      tuple(self.loops), hidden)


def as_float(value):
    """Whole numbers, such as positions, become floats."""
    return value if value.dtype == F32 else Op("cast", (value,), F32)


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("small", [False, True])
def test_random_kernels(seed, small, monkeypatch):
    if small:  # so that short loops are blocked and shared by threads, too
        for name, size in {"WAKING": 5, "SIDE_BY_SIDE": 6, "ON_STACK": 5,
                           "MOST_KEPT": 50, "LONG": 7, "BY_ONE": 2}.items():
            monkeypatch.setattr(schedules, name, size)
    makers = [Maker(seed * 1000 + k) for k in range(30)]
    kernels = [maker.kernel() for maker in makers]
    library = cpp.built("\n".join(map(cpp.in_cpp, kernels)))
    for maker, kernel in zip(makers, kernels, strict=True):
        got = run_loaded(library, kernel, maker.given)
        try:
            as_right(got, kernel, maker.given)
        except AssertionError as error:
            raise AssertionError(f"{kernel}\n{error}") from error


SHAPES = [(1, 5), (4096, 8), (3, 100_000), (1, 300_000), (70_000, 3),
          (500, 500)]


@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min", "any",
                                       "all"])
@pytest.mark.parametrize("along", ["rows", "columns", "everything"])
def test_reductions(reduction, along):
    kernels, inputs = [], []
    for number, shape in enumerate(SHAPES):
        i, r = variables("i", *shape)
        source = buffer("x", *shape)
        ranges, reduced = {"rows": ((i,), (r,)), "columns": ((r,), (i,)),
                           "everything": ((), (i, r))}[along]
        value = load(source, i, r)
        dtype = F32
        if reduction in ("any", "all"):
            sign = "gt" if reduction == "any" else "lt"
            value = Op(sign, (value, Const(3.0, F32)), torch.bool)
            dtype = torch.bool
        out = buffer("out", *(int(v.size) for v in ranges), dtype=dtype)
        kernels.append(Kernel(f"kernel_{number}", ranges, reduced, (
            Loop(out, at(out, *ranges), ranges, value, reduced,
                 reduction),)))
        x = torch.randn(shape).round(decimals=1)
        powers = (1 - 2.0 * (x < 0)) * 2 ** (x / 3).trunc()
        inputs.append(powers if reduction == "prod" else x)
    library = cpp.built("\n".join(map(cpp.in_cpp, kernels)))
    for kernel, x in zip(kernels, inputs, strict=True):
        given = {"x": x.reshape(-1)}
        as_right(run_loaded(library, kernel, given), kernel, given)


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("reduction", ["max", "min", "sum"])
def test_nan_and_infinity_are_found(reduction, along):
    shape = (40, 100)
    x = torch.randn(shape)
    x[3, 70], x[17, 2], x[17, 50] = (float("nan"),) * 3
    x[5], x[6, 9] = float("-inf"), float("inf")
    x[7], x[8] = 0.0, -0.0
    i, r = variables("i", *shape)
    ranges, reduced = ((r,), (i,)) if along == 0 else ((i,), (r,))
    source = buffer("x", *shape)
    out = buffer("out", int(ranges[0].size))
    check(Kernel("kernel", ranges, reduced, (
        Loop(out, at(out, *ranges), ranges, load(source, i, r), reduced,
             reduction),)), {"x": x.reshape(-1)})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64,
                                   torch.bfloat16, torch.float16, F64])
@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min"])
def test_reductions_of_other_dtypes(reduction, dtype):
    shape = (30, 50)
    i, r = variables("i", *shape)
    source = buffer("x", *shape, dtype=dtype)
    out = buffer("out", 30, dtype=dtype)
    least = 1 if reduction == "prod" and dtype.is_floating_point else -3
    x = torch.randint(least, 4, shape).clamp(max=4 if least < 0 else 1)
    check(Kernel("kernel", (i,), (r,), (
        Loop(out, at(out, i), (i,), load(source, i, r), (r,),
             reduction),)), {"x": x.to(dtype).reshape(-1)})


def test_a_value_is_kept_for_several_passes():
    def twice(x):
        e = x.exp()
        squares = (e / e.sum(1, keepdim=True)).square()
        return e / squares.sum(1, keepdim=True)
    x = torch.rand(8, 200)
    (kernel,), run = fused(twice, x)
    assert cpp.in_cpp(kernel).count(" k0[200];") == 1
    torch.testing.assert_close(run([x])[0], twice(x))


def fused(function, *args):
    """The kernels of a function, and what runs them."""
    schedule = fuse(aten(function, *args))
    return schedule.kernels, emit(schedule).run


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64,
                                   torch.bfloat16, F32, F64])
@pytest.mark.parametrize("shape", [(30, 50), (3, 100_000), (300_000, 1)])
def test_the_first_of_the_best_is_found(axis, dtype, shape):
    """Where there are ties, NaN and infinity; in parts, too."""
    x = torch.randint(0, 9, shape).to(dtype)
    if dtype.is_floating_point:
        x[2, 3 % shape[1]:] = float("nan")
        x[1, -1], x[0] = float("inf"), float("-inf")

    def places(x):
        best = (x.max(axis).indices, x.min(axis)) if axis is not None else ()
        return x.argmax(axis), x.argmin(axis), *best
    _, run = fused(places, x)
    for got, want in zip(run([x]), tree_leaves(places(x)), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_a_long_sum_is_more_exact_than_eagers():
    x = torch.rand(1 << 22)
    exact = x.double().sum()
    (r,) = variables("r", len(x))
    out = buffer("out")
    kernel = Kernel("kernel", (), (r,), (
        Loop(out, index(0), (), load(buffer("x", len(x)), r), (r,),
             "sum"),))
    ours = abs(run(kernel, {"x": x})["out"].double() - exact)
    assert ours <= 2 * abs(x.sum().double() - exact) + 0.5


def test_the_order_of_additions_does_not_depend_on_threads():
    x = torch.randn(300, 1000)
    for along in (0, 1):
        i, r = variables("i", 300, 1000)
        ranges, reduced = ((r,), (i,)) if along == 0 else ((), (i, r))
        out = buffer("out", *(int(v.size) for v in ranges))
        kernel = Kernel("kernel", ranges, reduced, (
            Loop(out, at(out, *ranges), ranges,
                 load(buffer("x", 300, 1000), i, r), reduced, "sum"),))
        results = []
        before = torch.get_num_threads()
        for threads in (1, 2, before):
            torch.set_num_threads(threads)
            results.append(run(kernel, {"x": x.reshape(-1)})["out"])
        assert torch.equal(results[0], results[1])


def test_masked_loads_read_nothing_outside():
    (i,) = variables("i", 100)
    source, out = buffer("x", 40), buffer("out", 100)
    inside = Op("logical_and", (
        Op("ge", (Position(index(i), I64), Const(30, I64)), torch.bool),
        Op("lt", (Position(index(i), I64), Const(70, I64)), torch.bool)),
        torch.bool)
    value = Load("x", at(source, index(i) - 30), F32, inside)
    check(pointwise(value, out, (i,)), {"x": torch.randn(40)})


def test_a_transposed_read():
    i, j = variables("i", 70, 130)
    value = load(buffer("x", 130, 70), j, i)
    check(pointwise(value, buffer("out", 70, 130), (i, j)),
          {"x": torch.randn(130 * 70)})


def test_positions_become_numbers():
    i, j = variables("i", 9, 11)
    for dtype in (I64, F32, torch.bfloat16):
        check(pointwise(Position(index(i) * 11 + index(j), dtype),
                        buffer("out", 9, 11, dtype=dtype), (i, j)), {})


def test_a_row_may_be_empty():
    i, r = variables("i", 3, 0)
    out = buffer("out", 3)
    check(Kernel("kernel", (i,), (r,), (
        Loop(out, at(out, i), (i,), load(buffer("x", 3, 0), i, r), (r,),
             "sum"),)), {"x": torch.zeros(0)})


def test_a_point_without_dimensions():
    out = buffer("out")
    value = Op("exp", (Load("x", index(0), F32),), F32)
    check(pointwise(value, out, ()), {"x": torch.tensor([2.0])})


def test_names_that_are_words_of_cpp():
    (i,) = variables("i", 5)
    names = ["exp", "float", "load", "t3", "i0", "exp_buffer", "a1", "int"]
    total, given = Const(0.0, F32), {}
    for name in names:
        total = Op("add", (load(buffer(name, 5), i), total), F32)
        given[name] = torch.randn(5)
    check(pointwise(total, buffer("double", 5), (i,)), given)


@pytest.mark.parametrize("hidden", [{"inner"}, ()])
def test_what_another_row_stores_cannot_be_read(hidden):
    (i,) = variables("i", 8)
    inner = buffer("inner", 8)
    out = buffer("out", 8)
    kernel = Kernel("kernel", (i,), (), (
        Loop(inner, at(inner, i), (i,), load(buffer("x", 8), i)),
        Loop(out, at(out, i), (i,), load(inner, index(i) * -1 + 7))),
        frozenset(hidden))
    for loops in (kernel.loops, kernel.loops[::-1]):
        with pytest.raises(BackendError, match="inner"):
            cpp.in_cpp(replace(kernel, loops=loops))


@pytest.mark.parametrize("dtype", [F32, F64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("along", [0, 1])
def test_what_a_later_pass_needs_is_kept(dtype, along):
    shape = (40, 50)
    i, r = variables("i", *shape)
    ranges, reduced = ((i,), (r,)) if along else ((r,), (i,))
    exps, total, out = (buffer("exps", *shape, dtype=dtype), buffer(
        "total", int(ranges[0].size), dtype=dtype), buffer(
        "out", *shape, dtype=dtype))
    value = Op("exp", (load(buffer("x", *shape, dtype=dtype), i, r),), dtype)
    quotient = Op("div", (load(exps, i, r), load(total, ranges[0])), dtype)
    kernel = Kernel("kernel", ranges, reduced, (
        Loop(exps, at(exps, i, r), ranges + reduced, value),
        Loop(total, at(total, ranges[0]), ranges, load(exps, i, r), reduced,
             "sum"),
        Loop(out, at(out, i, r), ranges + reduced, quotient)),
        frozenset({"exps", "total"}))
    assert cpp.in_cpp(kernel).count("vector_exp(") == 1
    check(kernel, {"x": torch.randn(shape).to(dtype).reshape(-1)})


@pytest.mark.skipif(AVAILABLE < 8 << 30, reason="needs 8 GiB of memory")
def test_bytes_of_a_tensor_over_two_gigabytes_are_counted_in_64_bits():
    """What is read lies in one page of zeros but for the last byte."""
    count = 2 ** 31 + 8
    given = torch.zeros(count, dtype=torch.int8)
    given[-1] = 3
    (i,), (r,) = variables("i", 2), variables("r", count)
    total, part = buffer("out", dtype=I64), buffer("part", 2, dtype=torch.int8)
    x = Load("x", index(r), torch.int8)
    found = run(Kernel("kernel", (), (r,), (
        Loop(total, index(0), (), Op("cast", (x,), I64), (r,), "sum"),)),
        {"x": given})
    assert found["out"].item() == 3
    far = Load("x", index(i) * (count - 1), torch.int8)
    assert run(pointwise(far, part, (i,)), {"x": given})["part"].tolist() == [
        0, 3]
