"""One recording for all sizes: values, gradients, writes, aliases."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import minicompile
from minicompile import pipeline
from minicompile.core.errors import BackendError
from minicompile.core.graph import is_number, placeholders
from minicompile.report.views.models import build
from tests.judge import judged
from tests.same import close
from tests.split import programs
from tests.split.dynamic import assert_same, compiled

SIZES = (3, 4, 7, 12)


def tensor(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def grad(*shape):
    return tensor(*shape).requires_grad_()


def block(x, w, scale):
    return F.gelu(F.layer_norm(x @ w, w.shape[1:])) * scale / x.shape[0]


def touch(x, w):
    y = x * 2
    x[:, 1] += 1
    x.view(-1)[2:].mul_(3)
    return y, y[1:], x.view(-1), x, w.sum(0) / w.shape[0], x.shape[0] + 2


CASES = {
    "block": (block, lambda n: [grad(n, 4), grad(4, n + 2), 2 * n]),
    "writes and views": (touch, lambda n: [tensor(n, 4), grad(n + 1, 2)]),
    "gradient through a written input": (
        lambda x, y: (x.mul_(y), x[1:] * y.shape[0]),
        lambda n: [grad(n, 3) * 1, grad(n, 1)]),
    "a written input": (
        lambda x, y: (x.mul_(y.detach()), x[1:] * y * y.shape[0]),
        lambda n: [tensor(n, 3), grad(1)]),
    "views of a view": (
        lambda x: (x * 2).view(-1).chunk(2),
        lambda n: [grad(n, 4)]),
    "reshapes": (
        lambda x: x.reshape(x.shape[0] * x.shape[1], -1).sum(1).expand(
            x.shape[2], -1) * x.numel(),
        lambda n: [grad(2, n, 3)]),
    "transposed": (lambda x: (x.t().contiguous().view(-1), x.softmax(0)),
                   lambda n: [tensor(n, n + 1).t().requires_grad_()]),
    "creation": (
        lambda x: torch.cat([x, torch.ones(x.shape[0], x.shape[0] + 2)
                             .double()], 1).cumsum(1),
        lambda n: [grad(n, 4)]),
    "slices": (lambda x: x[:, : x.shape[1] // 2] + x[:, -1:],
               lambda n: [grad(3, 2 * n)]),
    "only the size": (lambda x: (x.sum(), x.shape[0] * x.shape[1]),
                      lambda n: [grad(n, 3)]),
    "a convolution": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1), 2).flatten(1),
        lambda n: [grad(n, 2, 8, 6), grad(3, 2, 3, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_recording_serves_all_sizes(name):
    function, make = CASES[name]
    calls = [make(n) for n in SIZES]
    leaves = name != "gradient through a written input"
    joint, allowed = assert_same(function, *calls, leaves=leaves)
    assert allowed == len(SIZES)
    assert any(map(is_number, joint.primals))


def test_sizes_that_differ_by_a_guard_are_another_recording():
    def function(x):
        return x * 2 if x.shape[0] > 5 else x * 3
    _, allowed = assert_same(function, *([tensor(n)] for n in SIZES))
    assert allowed == 2  # 3 and 4


def test_a_size_that_is_forced_is_a_specialisation():
    def function(x):
        return x * int(x.shape[0])
    _, allowed = assert_same(function, *([tensor(n)] for n in SIZES))
    assert allowed == 1


def test_a_view_that_has_a_gradient_is_written_to():
    double = minicompile.compile(lambda y: y.mul_(2), fullgraph=True)
    for rows in SIZES:
        x = grad(12, 2)
        y = (x * 2)[:rows]
        double(y)
        y.sum().backward()
        assert x.grad.unique().tolist() == [0, 4][rows == 12:]
    assert double.stats().graphs == 2


def kinds(pair):
    """Of each saved value: a number, an input or an output."""
    given = {node.name: node for node in placeholders(pair.forward.graph)}
    return ["output" if at >= len(given) else "number" if is_number(
        given[name]) else "input" for name, at in pair.saved.items()]


def test_the_backward_is_given_ints_and_computes_with_them():
    def function(x, y):
        return x.expand(y.shape[0], -1) * (y.shape[0] * y.shape[1])
    *_, pair, known = compiled(function, [grad(1, 4), tensor(3, 4)])
    assert {*kinds(pair)} == {"number"}
    assert pair.saved_bytes == 0
    assert len(pair.saved) <= len(known.places)


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_programs(first):
    outcomes = programs.outcomes(range(first, first + 20),
                                 programs.judge_dynamic)
    assert outcomes["same at other sizes too"] >= 5, outcomes


@pytest.fixture
def lowered():
    """What our backend makes of each graph that Dynamo hands over."""
    found = []

    def backend(graph, inputs):
        found.append(pipeline.compile_graph(graph, inputs, pipeline.Settings(
            backend="split")))
        return lambda *given: found[-1].call(list(given))

    torch._dynamo.reset()
    found.append(backend)
    yield found
    torch._dynamo.reset()


def test_graphs_of_dynamo(lowered):
    def function(x, w, k):
        y = F.gelu(x @ w) * x.shape[0]
        return y, y.view(-1)[1:], x.shape[1] * k

    compiled = torch.compile(function, dynamic=True, backend=lowered.pop())
    for n in SIZES:
        x, w = grad(n, n + 2), grad(n + 2, 4)
        want, got = function(x, w, n), compiled(x, w, n)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(
            torch.autograd.grad([got[0].sum(), got[1].sum()], [x, w]),
            torch.autograd.grad([want[0].sum(), want[1].sum()], [x, w]))
    assert len(lowered) == 1 and not lowered[0].fallback


def test_sizes_come_in_front_of_what_else_is_saved():
    *_, pair, _ = compiled(block, [grad(3, 4), grad(4, 5), 6])
    found = kinds(pair)
    assert found == sorted(found, key=["number", "input", "output"].index)
    assert "number" in found


def test_a_size_that_no_input_decides_is_refused():
    with pytest.raises(BackendError, match="not decided by the sizes"):
        compiled(lambda x: torch.ones(x.nonzero().shape[0]), [tensor(4)])


def step(model, batch) -> list:
    """The loss and its gradients."""
    loss = model(*batch)
    return [loss, *torch.autograd.grad(loss, [*model.parameters()])]


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("name", ["mlp", "gpt", "resnet"])
def test_a_model_in_training_is_compiled_once(name):
    model, batch = build(name)
    compiled = minicompile.compile(model, dynamic=True, backend="split")
    for n in (2, 3, 5):
        given = [part[:1].expand(n, *part.shape[1:]).clone()
                 for part in batch]
        judged(close, step(compiled, given), step(model, given),
               step, model, given)
    stats = compiled.stats()
    assert stats.graphs == 1 and not stats.fallbacks, stats


def one_of_two(x, y):
    return torch.cond(x.sum() > 0,
                      lambda x, y: (x.sin() * x.shape[0]).sum(0) + y,
                      lambda x, y: x.cos().mean(0) * 2, (x, y))


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_branches_that_use_a_size(backend):
    compiled = minicompile.compile(one_of_two, dynamic=True,
                                   backend=backend)
    for n in SIZES:
        for sign in (1, -1):
            x, y = (sign * tensor(n, 5).abs()).requires_grad_(), grad(5)
            want, got = one_of_two(x, y), compiled(x, y)
            torch.testing.assert_close(got, want)
            gradients = [torch.autograd.grad(each.sin().sum(), [x, y])
                         for each in (got, want)]
            torch.testing.assert_close(*gradients)
    stats = compiled.stats()
    assert stats.graphs == 1 and not stats.fallbacks, stats


def test_a_write_to_one_of_several_views_of_a_symbolic_size():
    def function(x):
        first, second = (x * 2).unbind(-2)
        first.sub_(1)
        return first * second

    run = minicompile.compile(function, dynamic=True)
    for n in (3, 5):
        x = torch.randn(4, 2, n)
        close(run(x), function(x))
    assert run.stats().graphs <= 2 and not run.stats().fallbacks


def test_a_float_that_varies_times_small_integers():
    run = minicompile.compile(lambda x, n: x * n + 1)
    x = torch.arange(9, dtype=torch.uint8)
    for n in (0.5, 1.5, 2.25):
        close(run(x, n), x * n + 1)
    assert run.stats().graphs == 2 and not run.stats().fallbacks


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_an_image_of_bytes_is_resized_as_in_eager(mode):
    run = minicompile.compile(lambda x: F.interpolate(
        x, size=(x.shape[-1] + 3, 7), mode=mode))
    for side in (5, 8, 11):
        image = torch.randint(256, (1, 3, side, side), dtype=torch.uint8)
        assert run(image).equal(F.interpolate(
            image, size=(side + 3, 7), mode=mode))
