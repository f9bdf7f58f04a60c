"""One schedule serves all sizes that its guards admit."""

import os

import pytest
import torch

import minicompile
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.emit import emit
from minicompile.emit.cpp import in_cpp
from minicompile.fusion import fuse
from tests.fusion.symbolic import Program, assert_same_at, symbolic

SWEEP = bool(os.environ.get("SWEEP"))
SIZES = [(5, 7, 3), (9, 4, 2), (2, 13, 6), (11, 6, 5), (17, 40, 3)]


def check(program, run_of):
    """The program, traced at one size, agrees with eager at all."""
    graph = symbolic(program, *program.inputs())
    run = run_of(fuse(graph))
    ran = [assert_same_at(graph, run, program, program.inputs(*sizes))
           for sizes in SIZES]
    assert ran[0]


@pytest.mark.slow(sample=10)
@pytest.mark.parametrize("seed", range(600 if SWEEP else 40))
def test_random_programs_at_several_sizes(seed):
    check(Program(seed, steps=8 + seed % 12), lambda schedule:
          lambda given: evaluate_schedule(schedule, given))


@pytest.mark.parametrize("seed", range(1000, 1200 if SWEEP else 1010))
def test_random_programs_in_cpp_at_several_sizes(seed):
    check(Program(seed, steps=8 + seed % 12), lambda s: emit(s).run)


def test_an_operator_takes_a_float_made_of_sizes():
    def scaled(x):
        return (x * x.shape[0] ** -0.5).sin() + x / x.shape[0]

    graph = symbolic(scaled, torch.randn(5, 7))
    schedule = fuse(graph)
    assert [str(call.target) for call in schedule.externs] == [
        "aten.mul.Tensor"]
    for rows in (5, 8):
        assert assert_same_at(graph, emit(schedule).run, scaled,
                              [torch.randn(rows, 7)])


def test_a_correction_is_made_of_sizes():
    def deviation(x):
        return x.std(1, correction=x.shape[1] - 2)

    compiled = minicompile.compile(deviation)
    for columns in (5, 7, 8):
        x = torch.randn(3, columns)
        torch.testing.assert_close(compiled(x), deviation(x))
    assert not compiled.stats().fallbacks


def test_a_size_that_a_guard_holds_at_1_is_repeated():
    """The gradient of a part writes zeros around it; of one part, a guard
    tells the trace of the mask that its size is 1."""
    def part(x):
        x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 8))
        return x.reshape(x.shape[0], -1, 8, x.shape[-1])[:, 0].exp()

    compiled = minicompile.compile(part, dynamic=True)
    for batch, rows, columns in ((2, 6, 4), (3, 7, 2), (2, 11, 5)):
        x = torch.randn(batch, rows, columns, requires_grad=True)
        weight = torch.randn(batch, 8, columns)
        grads = [torch.autograd.grad((f(x) * weight).sum(), x)[0]
                 for f in (part, compiled)]
        torch.testing.assert_close(*grads)
    assert compiled.stats().graphs == 2


def test_one_column_is_left_of_sizes_that_vary():
    """Whether its place is inside depends on no loop variable."""
    def end(x):
        half = x[:, x.shape[1] // 2:]
        return torch.nn.functional.pad(half, (-1, 0)).flip(1)

    compiled = minicompile.compile(end, dynamic=True)
    for shape in ((9, 4), (5, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), end(x))
    assert not compiled.stats().fallbacks


def test_a_slice_is_put_where_equal_sizes_are_other_formulas():
    """The gradient of a part that is written, under one that is cut off."""
    def written(x):
        y = x.clone()
        y[..., :1].add_(1)
        y = torch.nn.functional.pad(y, (0, 0, 0, -x.shape[0] % 4))
        y = y.reshape(-1, 4, x.shape[1])
        return y, y.sum()

    compiled = minicompile.compile(written)
    for shape in ((5, 7), (9, 4), (2, 13)):
        grads = []
        for function in (written, compiled):
            x = torch.ones(shape, requires_grad=True)
            y, total = function(x)
            grads += torch.autograd.grad((y * y).sum() + total, x)
        torch.testing.assert_close(*grads)
    assert not compiled.stats().fallbacks


def test_no_index_grows_without_end():
    """Sizes that vary leave divisions of divisions; a copy ends them."""
    def turned(x):
        for _ in range(10):
            n, m = x.shape
            x = x.reshape(-1).flip(0).reshape(m, n).flip(1)[1:, 1:]
        return x.sin()
    graph = symbolic(turned, torch.randn(15, 16))
    schedule = fuse(graph)
    longest = max(len(line) for kernel in schedule.kernels
                  for line in in_cpp(kernel).splitlines())
    assert 2_000 < longest < 30_000
    for sizes in ((15, 16), (21, 30)):
        assert assert_same_at(graph, emit(schedule).run, turned,
                              [torch.randn(*sizes)])
