"""What a user can do with gradients, in eager and compiled, side by side."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minicompile

CASES = {}


def case(function):
    """Registers what is done with a `compile(f)` and observed."""
    CASES[function.__name__] = function
    return function


def grad(*shape, **kinds):
    return torch.randn(*shape, requires_grad=True, **kinds)


@case
def parameters_nothing_reaches(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)
            self.detached = nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.unused(x)
            return self.used(x) + self.detached.detach()

    model = Net()
    compile(model)(torch.randn(2, 3)).sum().backward()
    return [p.grad for p in model.parameters()]


@case
def one_output_of_two(compile):
    x, w = grad(3), grad(3)
    a, b = compile(lambda x, w: (x.sin(), w.cos() * x.detach()))(x, w)
    a.sum().backward()
    return x.grad, w.grad


@case
def outputs_without_gradient(compile):
    x = grad(4)
    results = compile(lambda x: (x.sin(), x.argmax(), x > 0, x.detach() * 2,
                                 None, 3))(x)
    results[0].sum().backward()
    return *results, x.grad


@case
def hooks(compile):
    x, seen = grad(4), []
    x.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    x.register_post_accumulate_grad_hook(
        lambda p: seen.append(p.grad.clone()))
    y = compile(torch.sin)(x)
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.sum().backward()
    return x.grad, y.grad, *seen


@case
def a_hook_inside(compile):
    def function(x):
        y = x.sin()
        y.register_hook(lambda g: g * 5)
        return y.cos()

    x = grad(4)
    compile(function)(x).sum().backward()
    return x.grad


@case
def retained_and_gone_through_twice(compile):
    x = grad(4)
    y = compile(lambda x: x.sin() * x)(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@case
def gone_through_twice(compile):
    x = grad(4)
    y = compile(lambda x: x.sin() * x)(x).sum()
    y.backward()
    y.backward()


@case
def twice_with_nothing_saved(compile):
    x = grad(4)
    y = compile(lambda x: x + 1)(x)
    y.sum().backward()
    y.sum().backward()
    return x.grad


@case
def by_some_inputs(compile):
    x, w, v = grad(3, 3), grad(3, 3), grad(3)
    y = compile(lambda x, w, v: (x @ w + v).sin())(x, w, v)
    return torch.autograd.grad(y.sum(), [w])


@case
def by_an_unused_input(compile):
    x, w = grad(3), grad(3)
    y = compile(lambda x, w: x.sin())(x, w)
    return torch.autograd.grad(y.sum(), [x, w])


@case
def accumulation_and_a_scaler(compile):
    model = nn.Linear(3, 3)
    run, scaler = compile(model), torch.amp.GradScaler("cpu", init_scale=4.)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        for _ in range(2):
            loss = run(torch.randn(2, 3)).pow(2).mean()
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return list(model.parameters())


@case
def a_scaler_meets_infinity(compile):
    model = nn.Linear(3, 1)
    run, scaler = compile(model), torch.amp.GradScaler("cpu", init_scale=4.)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler.scale(run(torch.full((1, 3), 3e38)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return *model.parameters(), torch.tensor(scaler.get_scale())


@case
def a_gradient_of_the_wrong_shape(compile):
    x = grad(3)
    return torch.autograd.grad(compile(torch.sin)(x), x, torch.ones(4))


@case
def a_gradient_of_another_dtype(compile):
    x = grad(3)
    return torch.autograd.grad(compile(torch.sin)(x), x,
                               torch.ones(3, dtype=torch.float64))


@case
def no_gradient_for_many_elements(compile):
    compile(torch.sin)(grad(3)).backward()


@case
def not_numbers(compile):
    x = torch.tensor([0., float("inf"), float("nan"), -1.],
                     requires_grad=True)
    compile(lambda x: x.sqrt() + x.log())(x).sum().backward()
    return x.grad


@case
def outputs_written_to(compile):
    x = grad(4)
    y, z = compile(lambda x: (x.sin(), x.cos().view(2, 2)))(x)
    y.mul_(2)
    z[0].mul_(3)
    (y.sum() + z.sum()).backward()
    return y, z, x.grad


@case
def a_leaf_written_to(compile):
    compile(lambda p: p.add_(1) * 2)(grad(3))


@case
def a_leaf_written_to_without_gradient(compile):
    def function(p):
        with torch.no_grad():
            p.add_(1)
        return p * 2

    p = grad(3)
    compile(function)(p).sum().backward()
    return p, p.grad


@case
def flags_that_change(compile):
    model = nn.Linear(3, 3)
    run, x = compile(model), torch.randn(2, 3)
    run(x).sum().backward()
    model.weight.requires_grad_(False)
    model.zero_grad()
    run(x).sum().backward()
    return [p.grad for p in model.parameters()]


@case
def a_linear_functions_gradient_is_constant(compile):
    x = grad(4)
    y = compile(lambda x: x * 2)(x)
    return torch.autograd.grad(y.sum(), x, create_graph=True)


@case
def kept_elsewhere(compile):
    x = grad(3, 3)
    with torch.autograd.graph.save_on_cpu():
        y = compile(lambda x: (x @ x).sin())(x)
    y.sum().backward()
    return x.grad


def observed(function, compile):
    """What a case gives; an exception counts by its type."""
    torch.manual_seed(0)
    try:
        found = function(compile)
    except RuntimeError as error:
        return type(error), str(error)[:45]
    return [each.detach() if isinstance(each, torch.Tensor) else each
            for each in found] + [getattr(each, "requires_grad", None)
                                  for each in found]


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, backend):
    made = []

    def compile(function):
        made.append(minicompile.compile(function, backend=backend))
        return made[-1]

    want = observed(CASES[name], lambda function: function)
    got = observed(CASES[name], compile)
    assert len(got) == len(want)
    for ours, theirs in zip(got, want):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        else:
            assert type(ours) is type(theirs) and ours == theirs
    assert not made[0].stats().fallbacks


@pytest.mark.parametrize("write", ["input", "parameter", "result"])
def test_a_tensor_changed_before_the_backward(write):
    model = nn.Linear(3, 3)
    run = minicompile.compile(lambda x: model(x).exp())
    x = grad(2, 3)
    middle = x * 1
    y = run(middle)
    with torch.no_grad():
        {"input": middle, "parameter": model.weight,
         "result": y}[write].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_derivatives_of_any_order():
    x = grad(3)
    for how in {}, {"dynamic": True}, {"backend": "split"}, {
            "backend": "eager"}:
        run = minicompile.compile(lambda x: x.sin() * x, **how)
        y, wanted = run(x), x.sin() * x
        for _ in range(4):
            y, = torch.autograd.grad(y.sum(), x, create_graph=True)
            wanted, = torch.autograd.grad(wanted.sum(), x,
                                          create_graph=True)
            torch.testing.assert_close(y, wanted, rtol=0, atol=0)
    with pytest.raises(minicompile.errors.OptionError):
        minicompile.compile(options={"double_backward": True})


@pytest.mark.parametrize("function", [
    lambda x, w: (x * w).sin(), lambda x, w: x.exp() + w.tanh(),
    lambda x, w: (x.exp() + 1) * w,
    lambda x, w: x.detach().exp() * w + w.sin() * 2])
def test_second_derivatives_reach_whatever_the_inputs_are_made_of(function):
    """One input is made of another, and of a leaf that is none."""
    leaf = grad(3)
    found = []
    for run in (function, minicompile.compile(function)):
        x = leaf * 2
        w = x.sin()
        first = torch.autograd.grad(run(x, w).sum(), (x, w),
                                    create_graph=True)
        penalty = sum(each.pow(2).sum() for each in first)
        found.append([*first, *torch.autograd.grad(
            penalty + leaf.sum(), (x, w, leaf, grad(3)),
            allow_unused=True)])
    for ours, eager in zip(*found):
        torch.testing.assert_close(ours, eager)


def test_a_penalty_on_the_gradients_trains_as_eager():
    """As of a WGAN's critic; a break stands where they are asked for."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def penalty(x):
        x = (x * 1).requires_grad_()
        first, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (first.norm(dim=1) - 1).pow(2).mean()

    found, x = [], torch.randn(5, 4)
    compiled = minicompile.compile(penalty)
    for run in (penalty, compiled, compiled):
        model.zero_grad()
        run(x).backward()
        found.append([each.grad for each in model.parameters()])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    stats = compiled.stats()
    assert stats.kernels and not stats.fallbacks and not stats.recompiles


def test_gradients_that_do_not_vary_are_differentiable_no_more():
    """One result's gradient is constant, the other's is not asked for."""
    run = minicompile.compile(lambda x, w: (x * 2, w.sum()))
    x, w = grad(3), grad(3)
    tangent = torch.tensor(1.0, requires_grad=True)
    first, none = torch.autograd.grad(run(x, w)[0].sum(), (x, w),
                                      create_graph=True, allow_unused=True)
    assert none is None and not first.requires_grad
    last, = torch.autograd.grad(run(x, w)[1], w, tangent, create_graph=True)
    assert last.requires_grad


def test_what_ran_without_gradients_runs_so_again():
    def function(x):
        factor = x * x
        with torch.enable_grad():
            return factor * x

    x = torch.arange(4., requires_grad=True)
    with torch.no_grad():
        y = minicompile.compile(function)(x)
    first, = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert first.tolist() == [0, 1, 4, 9] and not first.requires_grad


def test_a_gradient_is_differentiable_by_its_tangent():
    x, tangent = grad(3), grad(3)
    y = minicompile.compile(lambda x: x * 2)(x)
    first, = torch.autograd.grad(y, x, tangent, create_graph=True)
    first.sum().backward()
    torch.testing.assert_close(tangent.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("inside, later", [
    (False, True), (True, False), (True, True)])
def test_second_derivatives_are_of_the_autocast_of_the_call(inside, later):
    def ends(x):
        return (x @ x).sin().float().sum()

    x, found = grad(3, 3), []
    for run in (ends, minicompile.compile(ends)):
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            y = run(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=later):
            first, = torch.autograd.grad(y, x, create_graph=True)
        found.append((first, *torch.autograd.grad(first.sum(), x)))
    torch.testing.assert_close(*found, rtol=0.02, atol=0.02)


def once(function, *inputs):
    return minicompile.compile(function)(*inputs)


BIAS = torch.ones(3)


def changing(x):
    y = once(lambda x: (x + BIAS).exp(), x)
    BIAS.add_(1)
    return y


def sharing(x):
    y = x.sin()
    return y, y[0]


def leaving(x):
    return once(lambda x: x.sum(1).exp(), x * 2)


with torch.inference_mode():
    TIMELESS = torch.ones(3)


def timeless(x):
    return once(lambda x, y: (x + y).exp(), x, TIMELESS)


@pytest.mark.parametrize("why, run", [
    ("an input was made in inference mode", timeless),
    ("it draws random numbers", lambda x: once(
        lambda x: nn.functional.dropout(x), x)),
    ("it writes to its inputs", lambda x: once(
        lambda x: x.mul_(2).sin(), x * 2)),
    ("its results share memory", lambda x: once(sharing, x)[0]),
    ("an input has changed since", changing),
    ("an input is gone", leaving)])
def test_where_there_is_only_a_first_derivative_an_error_says_why(why, run):
    x = grad(3, 3)
    y = run(x)
    gc.collect()  # what was traced holds the first inputs
    with pytest.raises(RuntimeError, match=(
            r"begins at .*test_gradients.py:\d+ has only a first "
            rf"derivative, as {why}; for gradients .*backend=.eager")):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.autograd.grad(run(x).sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("image", [(1, 4, 5), (2, 2, 3, 4)])
def test_a_grid_of_points_has_a_gradient_for_batches_that_vary(
        image, corners):
    def function(theta):
        return F.affine_grid(theta, (theta.shape[0], *image), corners).sin()
    compiled = minicompile.compile(function, dynamic=True, fullgraph=True)
    for batch in (2, 3, 5):
        theta = torch.rand(batch, len(image) - 1, len(image))
        found = [torch.autograd.functional.vjp(
            run, theta, torch.ones(batch, *image[1:], len(image) - 1))
            for run in (compiled, function)]
        torch.testing.assert_close(*found)
    assert compiled.stats().kernels and not compiled.stats().fallbacks


@pytest.mark.parametrize("function", [lambda x: x.t(), lambda x: x[0]])
def test_a_view_of_an_expanded_input_has_eagers_gradient(function):
    """as_strided would share it among the elements in one place."""
    x = torch.arange(3.0).expand(2, 3).requires_grad_()
    run = minicompile.compile(function)
    for called in (function, run):
        y = called(x)
        weight = torch.arange(1.0, 1 + y.numel()).view_as(y)
        found, = torch.autograd.grad(y, x, weight)
        if called is function:
            want = found
    torch.testing.assert_close(found, want)


#: Two results, and whether eager allows their backwards one by one.
APART = {
    "nothing": (lambda x, w: (x.sin().exp(), (w * w).cos()), True),
    "an input": (lambda x, w: ((x * w).exp(), (x.cos() * w).exp()), True),
    "a detached value": (lambda x, w: (lambda h: (
        h.exp(), (h.detach() * w).exp()))((x * 2).sin()), True),
    "a view": (lambda x, w: (lambda v: (v.exp(), v.sin()))(x[None]), True),
    "a value": (lambda x, w: (lambda h: (h.sin(), h * w))((x * w).exp()),
                False),
    "a value of three": (lambda x, w: (lambda h: (
        h.sin(), w.exp(), h * w))((x * w).exp()), True),
}


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("name", APART)
def test_two_results_with_something_in_common_one_backward_each(
        name, backend):
    function, allowed = APART[name]
    args, same = [[torch.linspace(1, 2, 4).requires_grad_()
                   for _ in range(2)] for _ in range(2)]
    for run, given in ((function, args), (minicompile.compile(
            function, backend=backend), same)):
        first, second, *_ = run(*given)
        first.sum().backward()
        if allowed:
            second.sum().backward()
        for each in (second, first) if not allowed else (first, second):
            with pytest.raises(RuntimeError, match="second time|backward"):
                each.sum().backward()
    for ours, theirs in zip(same, args):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_backward_that_reads_nothing_runs_as_often_as_in_eager(backend):
    def function(x, w):
        return x.mean(0), (x * w).exp(), w.sum()

    def gradients(run):
        x, w = [torch.linspace(1, 2, 4).requires_grad_() for _ in range(2)]
        mean, both, total = run(x, w)
        (mean + total).backward()
        (mean + both.sum()).backward()
        (total * mean).backward()
        with pytest.raises(RuntimeError, match="second time"):
            both.sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(
        gradients(minicompile.compile(function, backend=backend)),
        gradients(function))


@pytest.mark.parametrize("ran", [True, False])
def test_what_a_backward_needs_may_not_be_written_to(ran):
    x, w = [torch.ones(4, requires_grad=True) for _ in range(2)]
    first, second = minicompile.compile(APART["an input"][0])(x, w)
    if ran:
        first.sum().backward()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        second.sum().backward()


def test_what_no_second_backward_needs_is_freed():
    def function(x, w):
        return (x @ w).exp(), (w * w).cos()

    x, w = [torch.ones(4, 4, requires_grad=True) for _ in range(2)]
    first, second = minicompile.compile(function)(x, w)
    node = first.grad_fn
    first.sum().backward()
    assert None not in [each for each, _ in node.rest]
    second.sum().backward()
    assert {each for each, _ in node.rest} == {None}


def test_a_step_between_two_backwards_writes_to_what_one_has_used():
    """As a GAN does, whose two networks have an optimizer each."""
    def function(x, g, d):
        fake = (x * g).tanh()
        return fake, ((fake.detach() * d).exp() * d).sum()

    x = torch.linspace(1, 2, 4)
    found = []
    for run in (function, minicompile.compile(function)):
        g, d = [torch.full((4,), 0.5, requires_grad=True) for _ in range(2)]
        fake, loss = run(x, g, d)
        loss.backward()
        with torch.no_grad():
            d -= d.grad
        (fake * d).sum().backward()
        found += [(g.grad, d.grad)]
    torch.testing.assert_close(found[1], found[0])


def test_results_that_are_used_together_have_one_backward():
    """A backward for each would run the whole graph's for each."""
    def function(xs):
        return [x.sin() for x in xs]

    calls = []
    xs = [torch.rand(4, requires_grad=True) for _ in range(5)]
    results = minicompile.compile(function)(xs)
    node, = {result.grad_fn for result in results}
    node.register_prehook(calls.append)
    sum(result.sum() for result in results).backward()
    assert len(calls) == 1
    for x in xs:
        torch.testing.assert_close(x.grad, x.cos())


def test_results_with_a_backward_each_that_is_never_run_are_freed():
    """What one saves may be the other's result: no cycle keeps them."""
    def function(x, w):
        return x.exp(), w.exp(), (x @ x) * 2

    x, w = [torch.ones(4, 4, requires_grad=True) for _ in range(2)]
    results = minicompile.compile(function)(x, w)
    nodes = [weakref.ref(each.grad_fn) for each in results]
    enabled = gc.isenabled()
    gc.disable()
    del results
    assert [node() for node in nodes] == [None] * 3
    if enabled:
        gc.enable()


def test_a_first_call_under_the_detection_of_anomalies_is_compiled():
    compiled = minicompile.compile(lambda x: (x.sqrt() * 0).sum())
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        with pytest.raises(RuntimeError, match="nan"):
            compiled(x).backward()
    assert not compiled.stats().fallbacks


@pytest.mark.parametrize("function", [
    lambda x: x.sum(0).real * 2, lambda x: x.sum().abs(),
    lambda x: x.mean((0, 1)).imag, lambda x: x.expand(2, 3, 4).conj()])
def test_gradients_of_complex_sums_are_expanded_as_in_eager(function):
    x = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    want, found = function(x), minicompile.compile(function)(x)
    tangent = torch.ones_like(want)
    for mine, its in ((found, want), *(zip(*(torch.autograd.grad(
            each, x, tangent) for each in (found, want))))):
        torch.testing.assert_close(mine, its)
        assert mine.stride() == its.stride()
