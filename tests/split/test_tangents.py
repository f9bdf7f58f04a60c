"""Which results pass a gradient back, and what of the backward then runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain, combinations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

import minicompile
from minicompile import emit, pipeline, split
from minicompile.core.errors import CompileError
from minicompile.dispatch.policy import plans
from tests.split.judge import compiled, near


def grad(*values):
    return torch.tensor(values, requires_grad=True)


class Mixed(torch.autograd.Function):
    """Its gradient is no sum of what each result passes back."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    @once_differentiable
    def backward(ctx, one, two):
        return (one + 1) * (two + 2)


class Weighted(torch.autograd.Function):
    """Its gradient is a sum with a factor."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, one, two):
        return torch.add(one, two, alpha=3)


def weighted(x):
    return Weighted.apply(x * 1)


def roots(x):
    return x.sum(), x.sqrt()


def parts_of_one(x):
    a, b = (x * 2).chunk(2)
    return a.exp(), b.sqrt(), a.sum()


def stacked(x):
    a, b = torch.stack([x[:2] * 2, x[2:]]).unbind()
    return a.exp(), b.sqrt() + a, (a * b).t()


def functions(x):
    one, two = Mixed.apply(x.sqrt())
    three, _ = Mixed.apply(one)
    return one.exp(), two.sin(), three * 1


def branches(x):
    def side(x):
        return x.sqrt(), x * 2
    a, b = torch.cond(x.sum() < 0, side, side, (x,))
    return a * 1, b.sin()


def repeated_sums(x):
    y = x + x
    z = y + y.sin() + x
    return y * 1, z, z.sqrt(), (y * z).sum()


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [
    roots, parts_of_one, stacked, functions, weighted, branches,
    repeated_sums])
def test_a_gradient_of_any_results_is_eagers(fn, dynamic, backend):
    """A root of zero shows where a gradient came from zeros: as NaN."""
    x = grad(0.0, 1.0, 0.0, 4.0)
    made = minicompile.compile(fn, backend=backend, dynamic=dynamic)
    places = range(len(fn(x)))
    for chosen in chain.from_iterable(
            combinations(places, k + 1) for k in places):
        want, got = (torch.autograd.grad(
            [results[k] for k in chosen], x,
            [torch.ones_like(results[k]) for k in chosen],
            allow_unused=True)[0] for results in (fn(x), made(x)))
        near(got, want)


def test_a_result_may_pass_nothing_to_an_input():
    x, y, z = grad(1.0), grad(2.0), grad(3.0)

    @minicompile.compile
    def made(x, y, z):
        return x.exp() * y, z.sin(), (y * z).sum()

    def arrived(*chosen):
        results = made(x, y, z)
        return [g is not None for g in torch.autograd.grad(
            [results[k] for k in chosen], [x, y, z], allow_unused=True)]

    assert arrived(0) == [True, True, False]
    assert arrived(1) == [False, False, True]
    assert arrived(2) == [False, True, True]
    assert arrived(0, 1) == [True, True, True]


@pytest.mark.parametrize("function, after", [
    (torch.sum, lambda y: (torch.complex(y.detach(), y).conj() * 1j).real),
    (lambda x: torch.view_as_complex(x * 2), lambda y: y.conj()[0].real)])
def test_a_gradient_may_be_yet_to_conjugate_or_to_negate(function, after):
    x = torch.arange(6.).view(3, 2).requires_grad_()
    want, got = (torch.autograd.grad(after(call(x)), x)[0] for call in (
        function, minicompile.compile(function)))
    near(got, want)


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("function", [
    lambda x: x.conj()[1].imag * 2, lambda x: torch._neg_view(x.real).exp()])
def test_a_kernel_sees_the_sign_that_a_view_promises(function, backend):
    x = torch.complex(*torch.randn(2, 3, 4)).requires_grad_()
    made = minicompile.compile(function, backend=backend)
    want, got = (
        (y := call(x), torch.autograd.grad(y.sum(), x)[0])
        for call in (function, made))
    near(got[0], want[0])
    near(got[1], want[1])


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("gradient", [
    torch._efficientzerotensor((4, 3)), torch.eye(4, 3).to_sparse()])
def test_a_gradient_may_be_sparse_or_without_memory(backend, gradient):
    x = torch.arange(12.).view(4, 3).requires_grad_()
    made = minicompile.compile(torch.sin, backend=backend)
    want, got = (torch.autograd.grad(call(x), x, gradient)[0]
                 for call in (torch.sin, made))
    near(got.to_dense(), want.to_dense())


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_what_is_left_of_a_sum_lies_as_the_sum_does(backend):
    def function(x, w):
        image = x.view(-1, 3, 8, 8)
        return F.conv2d(image, w, padding=1), F.max_pool2d(image, 2)

    x, w = torch.randn(5, 192, requires_grad=True), torch.randn(4, 3, 3, 3)
    want, got = (torch.autograd.grad(call(x, w)[0].square().sum(), x)[0]
                 for call in (function, minicompile.compile(
                     function, backend=backend)))
    torch.testing.assert_close(got, want, check_stride=True)


def test_a_custom_function_that_passes_nothing_on():
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return None

    x = grad(1.0)
    inner = minicompile.compile(lambda x: (x.sin(), x.exp()))
    Nothing.apply(inner(x)[0]).backward()
    assert x.grad is None
    one, two = inner(x)
    (Nothing.apply(one) + two).backward()
    near(x.grad, x.exp().detach())


@pytest.fixture
def made(monkeypatch):
    """The backwards that are compiled when their tangents come."""
    found = []

    def spy(*given):
        found.append(given[-2])
        return backward_from(*given)
    backward_from = pipeline.backward_from
    monkeypatch.setattr(pipeline, "backward_from", spy)
    return found


def test_a_loss_among_results_has_its_backward_at_once(made):
    x = grad(0.0, 1.0)
    loss = minicompile.compile(lambda x: (x.exp(), x.sin().sum(), 3 * x))
    loss(x)[1].backward()
    assert made == []
    loss(x)[0].sum().backward()
    sum(each.sum() for each in loss(x)).backward()
    sum(each.sum() for each in loss(x)).backward()
    assert made == [(0,), (0, 1, 2)]


def test_what_the_loss_does_not_need_is_not_in_its_backward():
    def fn(x):
        return x.sin().sum(), (x @ x).exp()

    x = torch.randn(4, 4, requires_grad=True)
    _, joint, pair = compiled(fn, [x])
    assert joint.likely == (0,) and pair.tangents == (0, 1)
    half = split.partition(joint, set(), joint.likely).backward
    read = {node.name for node in half.graph.nodes
            if node.op == "placeholder"}
    assert "tangents_1" in read and "tangents_2" not in read
    assert "mm" not in str(half.graph)


def test_threads_make_a_backward_once(made):
    x = grad(0.5, 1.0)
    y, *_ = minicompile.compile(lambda x: (x.exp(), x.sin().sum()))(x)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda _: torch.autograd.grad(
            y.sum(), x, retain_graph=True)[0], range(4))]
    near(torch.stack(found), y.detach().expand(4, 2))
    assert len(made) == 1


def test_a_backward_that_does_not_compile_runs_its_operators(monkeypatch):
    x = grad(0.5, 1.0)
    loss = minicompile.compile(lambda x: (x.exp(), x.sin().sum(), 3 * x))
    results = loss(x)

    def fails(*_):
        raise CompileError("no compiler")
    monkeypatch.setattr(emit.Program, "ready", fails)
    with pytest.warns(UserWarning, match="does not fuse: .*no compiler"):
        results[0].sum().backward()
    near(x.grad, x.exp().detach())


def test_a_backward_that_needs_another_size_runs_its_operators(
        monkeypatch):
    seen, program_of = [], plans.program_of

    def asks(graph, *given):
        size = next(node.meta["val"] for node in graph.graph.nodes
                    if isinstance(node.meta["val"], torch.SymInt))
        seen.append(bool(size > 3))
        return program_of(graph, *given)

    x = grad(*map(float, range(8)))
    made = minicompile.compile(lambda x: (x.exp(), x.sum()), dynamic=True)
    results = made(x)
    monkeypatch.setattr(plans, "program_of", asks)
    results[0].sum().backward()
    assert seen == [True]
    near(x.grad, x.exp().detach())
    y = grad(0.5, 1.0)
    made(y)[0].sum().backward()
    near(y.grad, y.exp().detach())


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_of_many_gradients_at_once(dynamic):
    """vmap's tensors have no memory that a kernel could read."""
    x = torch.randn(3, 4, requires_grad=True)
    many = torch.randn(4, 3, 5).permute(2, 1, 0)
    fn = minicompile.compile(
        lambda x: (x.sin() * 2, x.exp().sum()), dynamic=dynamic)
    for chosen in [0], [1], [0, 1]:
        want, got = (torch.autograd.grad(
            [results[k] for k in chosen], x,
            [[many, many[:, 0, 0]][k] for k in chosen],
            is_grads_batched=True)[0]
            for results in ((x.sin() * 2, x.exp().sum()), fn(x)))
        near(got, want)


class Products(torch.autograd.Function):
    """Two results that have nothing to do with each other."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, one, two):
        x, y = ctx.saved_tensors
        return one * x, two * y


def test_a_function_s_backward_runs_once_for_all_its_results():
    def both(x, y):
        return Products.apply(x.sin(), y.cos())

    for run in both, minicompile.compile(both):
        x, y = grad(1.0, 2.0), grad(3.0, 4.0)
        one, two = run(x, y)
        one.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            two.sum().backward()
