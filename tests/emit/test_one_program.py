"""Small kernels in a row become one launch, with the same results.

Tests of Triton run on a GPU, or with TRITON_INTERPRET=1 in the interpreter.
"""

import re
from dataclasses import replace

import pytest
import torch

import minicompile
from minicompile import emit, fusion
from minicompile.core.options import Options
from minicompile.emit import cpp
from minicompile.emit.program import Text
from minicompile.emit.schedules import one_program
from minicompile.split.torch import decompositions
from tests.emit.sums import Sums
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.fusion.graphs import as_cuda, aten
from tests.fusion.symbolic import results, symbolic
from tests.judge import judged, near

OPTIONS = {"C++": (Options(), torch.device("cpu")),
           "Triton": (Options(cpu_backend="triton"), DEVICE)}


@pytest.fixture(autouse=True)
def together(one_by_one, monkeypatch):
    """Kernels of so many elements are small here, on a CPU two, too."""
    monkeypatch.setattr(one_program, "SMALL", 8192)
    monkeypatch.setattr(one_program, "FEWEST", 2)


@pytest.fixture(params=["C++", pytest.param("Triton", marks=(
    pytest.mark.skipif(not RUNS, reason="needs a GPU, or "
                       "TRITON_INTERPRET=1")))])
def target(request):
    """The options of a program, and its device."""
    return OPTIONS[request.param]


def program_of(function, *args):
    """The text of a program for a GPU, which is not needed."""
    graph = as_cuda(aten(function, *args))
    return Text(fusion.fuse(graph), Options()).program()


def launches(text):
    """How many kernels a program launches."""
    return int(re.search(r"Kernels: (\d+)", text)[1])


def check(target, function, *args):
    """The program launches once, and is as right as eager."""
    options, device = target
    args = [arg.to(device) for arg in args]
    program = emit.emit(fusion.fuse(aten(function, *args)), options)
    assert launches(program.source) == 1 < len(program.kernels)
    expected = results(function, args)
    for _ in range(2):  # the second call is launched another way
        judged(near, program.run(list(args)), expected, results, function,
               args)
    return program


def normed(x, *weights):
    """Each step needs all that the one before has stored."""
    for weight in weights:
        x = torch.tanh((x.unsqueeze(-1) * weight).sum(-2))
        x = x / x.norm()
    return x


def test_steps_that_need_each_other(target):
    program = check(target, normed, torch.randn(5, 12), *torch.randn(3, 12, 12))
    parts = re.findall(r"(?:^def|void) \w+_part\(", program.source, re.M)
    assert len(parts) < len(program.kernels)  # equal ones are printed once
    assert program.source.count("= empty_strided(") == 2  # with the result


def test_what_is_called_twice_is_compiled_once():
    text = program_of(normed, torch.randn(5, 12), *torch.randn(3, 12, 12))
    parts = re.findall(r"(@triton.jit.*)\ndef (\w+_part)\(", text)
    assert {"noinline" in how for how, _ in parts} == {True, False}
    for how, name in parts:
        calls = len(re.findall(rf"^    {name}\(", text, re.MULTILINE))
        assert ("noinline=True" in how) == (calls > 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_what_lies_in_between_is_of_any_type(target, dtype):
    def f(x):
        y = x.amax(1).to(dtype)
        return (y[:, None] == y).sum(1), torch.where(y[:, None] > 0, x, 1)
    check(target, f, torch.randint(-2, 3, (7, 9)).float())


def test_one_row_of_several_lengths(target):
    def f(x, y):
        return x.softmax(0).sum(), (y - y.mean()).square().sum(), (
            x.amax() + y).argmax()
    check(target, f, torch.randn(1000), torch.randn(37))


@pytest.mark.parametrize("seed", range(12))
def test_random_sums(target, seed):
    sums, (options, device) = Sums(seed), target
    args = [arg.to(device) for arg in sums.inputs()]
    found = emit.emit(fusion.fuse(aten(sums, *args)), options).run(
        list(args))
    judged(near, found, sums(*args), sums, *args)


def test_what_is_written_in_place_is_no_part_of_the_scratch(target):
    def f(x, n):
        n.add_(1)
        x.mul_(n.sum())
        return x.sum(0) * 2
    options, device = target
    x, n = torch.randn(5, 3, device=device), torch.ones(4, device=device)
    theirs = x.clone(), n.clone()
    compiled = minicompile.compile(f, options={
        "cpu_backend": options.cpu_backend})
    want, got = f(*theirs), compiled(x, n)
    torch.testing.assert_close((got, x, n), (want, *theirs))
    assert not compiled.stats().fallbacks


def test_a_large_kernel_or_an_operator_is_between():
    def f(x, y):
        a = (x.sum(0) * 2).softmax(0)
        return a.norm(), y + a.sum(), (y @ y.t()).sum(0).norm()
    text = program_of(f, torch.randn(8, 30), torch.randn(300, 400))
    assert launches(text) > 3 and "_and_1_more.run(" in text


def test_steps_of_a_kalman_filter_are_one_launch(target, monkeypatch):
    monkeypatch.setitem(decompositions.PAIRS, "cpu", 256)

    def f(x, p, moves, sees):
        for _ in range(3):
            x, p = moves @ x, moves @ p @ moves.T + 1
            gain = p @ sees.T / (sees @ p @ sees.T + 2)
            x, p = x + gain @ (1 - sees @ x), p - gain @ sees @ p
        return x, p
    check(target, f, *(torch.rand(*shape) for shape in (
        (6, 1), (6, 6), (6, 6), (1, 6))))


def test_what_lies_in_one_memory_may_be_two_arguments():
    def f(x):
        y = x.sum(1)
        z = torch.tanh(y[:, None] * y).sum(1)
        return torch.tanh(y * 2 + z.flip(0))  # stored over y
    text = Text(fusion.fuse(aten(f, torch.randn(7, 5))), Options())
    chain, = text.schedule.steps
    over, = (b for b in chain.written.values() if b.into)
    assert over.into in chain.written
    for name in (over.name, over.into):
        assert f"float* {name}_ptr" in cpp.head(chain)  # not __restrict


def test_on_a_cpu_a_few_are_called_one_by_one(monkeypatch):
    monkeypatch.setattr(one_program, "FEWEST", 4)
    args = torch.randn(5, 12), *torch.randn(3, 12, 12)
    for count, expected in (2, 1), (1, 2):
        schedule = fusion.fuse(aten(normed, *args[:1 + count]))
        assert launches(Text(schedule, Options()).program()) == expected


def test_a_row_of_kernels_has_an_end(monkeypatch):
    args = torch.randn(5, 12), *torch.randn(3, 12, 12)
    text = program_of(normed, *args)
    assert launches(text) == 1
    monkeypatch.setattr(one_program, "MOST_CHAINED", 4)
    assert launches(program_of(normed, *args)) == 2
    monkeypatch.setattr(one_program, "MOST_TENSORS", 5)
    assert launches(program_of(normed, *args)) > 2


def test_each_gpu_has_its_own():
    graph = as_cuda(aten(normed, torch.randn(5, 12), torch.randn(3, 12, 12)[
        0]))
    *steps, last = fusion.fuse(graph).steps
    other = replace(last, loops=tuple(replace(loop, buffer=replace(
        loop.buffer, device=torch.device("cuda:1"))) for loop in last.loops))
    schedule = fusion.fuse(graph)
    text = Text(replace(schedule, steps=(*steps, other)), Options())
    assert len(schedule.steps) == 2 == len(text.schedule.steps)


def test_sizes_that_vary_are_launched_one_by_one():
    graph = symbolic(lambda x: x.softmax(0).sum(0).softmax(0), torch.randn(
        5, 7))
    schedule = fusion.fuse(as_cuda(graph))
    text = Text(schedule, Options()).program()
    assert launches(text) == len(schedule.kernels) > 1
