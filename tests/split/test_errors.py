"""What eager refuses because of the elements of a tensor is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import minicompile

ones, zeros, half = torch.ones(3, 3), torch.zeros(3, 3), torch.full((3,), .5)
linalg, classes = torch.linalg, torch.tensor([0, 1])
rows = torch.rand(2, 3)
seen: list = []


@torch.library.custom_op("errors::note", mutates_args=())
def note(x: torch.Tensor) -> None:
    seen.append(x.sum().item())


@torch.library.custom_op("errors::say", mutates_args=(),
                         schema="(str text) -> ()")
def say(text):
    seen.append(text)


note.register_fake(lambda x: None)
say.register_fake(lambda text: None)

#: The function, arguments that it takes, and such as it refuses.
BAD = {
    "cholesky": (linalg.cholesky, (ones.diag().diag(),), (-ones,)),
    "inv": (linalg.inv, (ones.diag().diag(),), (ones,)),
    "inverse": (torch.inverse, (ones.diag().diag(),), (ones,)),
    "power": (lambda x: linalg.matrix_power(x, -1),
              (ones.diag().diag(),), (ones,)),
    "solve": (linalg.solve, (ones.diag().diag(), ones), (ones, ones)),
    "lu_factor": (linalg.lu_factor, (ones.diag().diag(),), (zeros,)),
    "lu_solve": (lambda a, b: torch.lu_solve(b, *linalg.lu_factor(a)),
                 (ones.diag().diag(), ones), (zeros, ones)),
    "an assertion": (lambda x: (torch._assert_async(
        x.sum() > 1, "a sum of elements that is larger than one, which is "
        "a long message"), x * 2)[1], (half,), (half / 9,)),
    "an operator that checks": (
        lambda x, info: torch.ops.aten._linalg_check_errors(
            info, "linalg.inv", is_matrix=True) or x * 2,
        (half, torch.tensor(0, dtype=torch.int32)),
        (half, torch.tensor(1, dtype=torch.int32))),
    "bernoulli": (torch.bernoulli, (half,), (half * 4,)),
    "bernoulli of nan": (torch.bernoulli, (half,), (half * torch.nan,)),
    "bernoulli_": (lambda x, p: (x + 0).bernoulli_(p), (half, half),
                   (half, half - 1)),
    "normal": (lambda x: torch.normal(0., x), (half,), (-half,)),
    "normal of two": (torch.normal, (half, half), (half, -half)),
    "input of a loss": (F.binary_cross_entropy, (half, half),
                        (half * 4, half)),
    "target of a loss": (F.binary_cross_entropy, (half, half),
                         (half, -half)),
    "a class": (F.cross_entropy, (rows, classes), (rows, classes + 2)),
    "no class": (lambda x, y: F.nll_loss(x.log_softmax(1), y),
                 (rows, classes), (rows, classes - 2)),
    "one_hot": (lambda y: F.one_hot(y, 3), (classes,), (classes + 2,)),
    "gather": (lambda x, y: x.softmax(1).gather(1, y[:, None]),
               (rows, classes), (rows, classes + 2)),
    "an index": (lambda x, y: x[y] * 2, (ones, classes),
                 (ones, classes + 2)),
}


def outcome(function, args):
    """What comes of a call, in training if an argument can be trained."""
    args = [each.clone().requires_grad_(each.is_floating_point())
            for each in args]
    torch.manual_seed(0)
    try:
        made = function(*args)
        ends = [each for each in (
            made if isinstance(made, tuple) else (made,)) if each.grad_fn]
        sum(end.sum() for end in ends).backward() if ends else None
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_bad_element_raises_as_in_eager(name, backend):
    function, good, bad = BAD[name]
    for call in (good, bad):
        compiled = minicompile.compile(function, backend=backend)
        wanted = outcome(function, call)
        assert outcome(compiled, call) == wanted
        assert outcome(compiled, call) == wanted  # from the cache
    assert wanted is not None


@pytest.mark.parametrize("function", [
    lambda x: x.clone().uniform_(1, -1), lambda x: x.bernoulli(2.),
    lambda x: x.clone().random_(3, 1)])
def test_a_bad_number_raises_as_in_eager(function):
    assert outcome(function, (half,)) is RuntimeError
    assert outcome(minicompile.compile(function), (half,)) is RuntimeError


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_operators_without_a_result_run_once_and_in_order(backend):
    def function(x):
        note(x.sin())
        say("between")
        torch.ops.errors.note.default(x.sin())
        return x * 2

    seen.clear()
    x = torch.ones(2, requires_grad=True)
    minicompile.compile(function, backend=backend)(x).sum().backward()
    once = x.sin().sum().item()
    assert seen == [pytest.approx(once), "between", pytest.approx(once)]


def test_a_check_in_a_branch_and_one_in_the_backward():
    def branch(x):
        torch.cond(x.sum() > 0, demanding, torch.sin, (x,))
        return x * 2

    for function in (branch, lambda x: Small.apply(x) * 2):
        compiled = minicompile.compile(function, fullgraph=True)
        assert outcome(compiled, (half * 4,)) is RuntimeError


class Small(torch.autograd.Function):
    """The input, if its gradient is small."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        torch._assert_async((gradient < 1).all())
        return gradient * 1


def demanding(x):
    torch._assert_async((x < 0).all())
    return x + 1


def test_a_check_costs_no_kernel_of_its_own():
    kernels = [minicompile.explain(function)(classes).kernels for function
               in (lambda y: F.one_hot(y, 3) * 2,
                   lambda y: (y[:, None] == torch.arange(3)).long() * 2)]
    assert len(kernels[0]) <= len(kernels[1]) + 1


mask, whole, short = ones > 0, torch.arange(9), torch.randn(4).half()

#: What eager's CPU kernels have no kernel for, or no place.
WRONG = [
    *[(f, (mask,)) for f in (
        torch.abs, torch.floor, torch.round, F.relu, torch.argmax,
        lambda m: 1 - m, lambda m: m - 1, lambda m: m.sum() - m)],
    *[(f, (whole,)) for f in (
        lambda x: x.softmax(0), torch.std, F.gelu,
        lambda x: torch.lerp(x, x, 0.5), lambda x: F.huber_loss(x, x))],
    *[(f, (short,)) for f in (
        lambda x: x.masked_fill(x > 0, -1e9), lambda x: x.clamp(max=1e9),
        lambda x: torch.full_like(x, 1e9), lambda x: x.clone().fill_(1e9),
        lambda x: x + torch.full((4,), -1e9, dtype=torch.half),
        lambda x: F.pad(x, (1, 1), value=1e9))],
    *[(f, (whole.byte(),)) for f in (
        lambda x: x.clone().fill_(300),
        lambda x: torch.where(x > 0, x, 300))],
    (torch.heaviside, (half, half.double()))]


@pytest.mark.parametrize("place", range(len(WRONG)))
@pytest.mark.filterwarnings("ignore")
def test_dtypes_that_eager_has_no_kernel_for_raise_its_error(place):
    function, args = WRONG[place]
    with pytest.raises(Exception) as expected:
        function(*args)
    with pytest.raises(type(expected.value)) as found:
        minicompile.compile(function)(*args)
    assert str(found.value) == str(expected.value)


def test_what_eager_has_kernels_for_is_compiled():
    def function(x, m, n):
        x = x.masked_fill(m, float("-inf")).softmax(0) + 1e9
        return x * n.sum(), n % 3 - n.max(), ~m, n[n.argmin()], x - n
    compiled = minicompile.compile(function)
    for mask in short > 0, short > -9.0:  # all masked is NaN
        args = short, mask, whole[:4]
        torch.testing.assert_close(compiled(*args), function(*args), rtol=0,
                                   atol=0, equal_nan=True)
    assert not compiled.stats().fallbacks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one, other", [
    (torch.half, torch.float32), (torch.half, torch.bfloat16),
    (torch.float32, torch.float64)], ids=str)
def test_a_loss_has_the_dtype_that_eager_gives_it(one, other):
    x = short.to(one)
    for args in (x, x.to(other)), (x.to(other), x):
        found = minicompile.compile(F.huber_loss)(*args)
        assert found.dtype == F.huber_loss(*args).dtype


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.half],
                         ids=str)
def test_a_part_gets_the_dtype_of_what_it_is_put_into(dtype):
    def function(x, part):
        rows = torch.stack([part, part])
        return (x.select_scatter(part, 0, 0), x.slice_scatter(rows, 0, 0),
                x.slice_scatter(rows[:1], 0, 1))
    args = torch.zeros(2, 3, dtype=dtype), torch.tensor([1.5, 2.5, 0])
    for got, want in zip(minicompile.compile(function)(*args),
                         function(*args)):
        assert got.dtype == want.dtype and got.equal(want)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_a_mean_in_halves_adds_what_eager_adds(dtype):
    x = torch.tensor([[1e5, 3.1], [-9e4, -3], [2.0, 1.003]])
    for axis in (0, 1):
        assert minicompile.compile(torch.mean)(x, axis, dtype=dtype).equal(
            x.mean(axis, dtype=dtype))


def looks_up(table, places, seen):
    found = F.embedding(places, table)
    return found.sum(), seen.mul_(2)


def looks_up_later(table, places, seen):
    seen += 1
    found = F.embedding(places, table.exp()).exp()
    return found.sum(), seen.mul_(2)


@pytest.mark.filterwarnings("ignore:a graph of")
@pytest.mark.parametrize("function", [looks_up, looks_up_later])
def test_a_wrong_index_leaves_what_eager_leaves(function):
    """The graph raises before it writes, so Python can make the call."""
    table, seen = torch.randn(500, 64), torch.zeros(3)
    right, wrong = torch.arange(400), torch.arange(400) + 200
    compiled, left = minicompile.compile(function), []
    compiled(table, right, seen.clone())
    for call in (function, compiled):
        given = seen.clone()
        with pytest.raises(IndexError):
            call(table, wrong, given)
        left.append(given)
    assert left[0].equal(left[1]) and compiled.stats().kernels
    assert not compiled.stats().fallbacks


def test_no_kernel_writes_before_an_operator_that_raises():
    def function(x, place):
        x.add_(1)
        found = x[place]
        return found, x.mul_(2)

    compiled, x = minicompile.compile(function), torch.ones(3)
    compiled(x.clone(), torch.tensor([2]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([3]))
    assert x.equal(torch.ones(3))  # eager's first write is not done, either


@pytest.mark.parametrize("choose", [torch.max, torch.min, torch.median,
                                    torch.nanmedian])
@pytest.mark.parametrize("numbers", [[0.0, 0, 0, 1], [-1.0, 0, 2, torch.nan],
                                     [4.0, 1, 3, 0]])
def test_an_infinite_gradient_reaches_the_chosen_alone(choose, numbers):
    def function(x):
        return choose(x).sqrt()

    found = []
    for call in (function, minicompile.compile(function)):
        x = torch.tensor(numbers, requires_grad=True)
        call(x).backward()
        found.append(x.grad)
    assert found[0].equal(found[1]) or (
        found[0].nan_to_num(7).equal(found[1].nan_to_num(7)))


def test_a_loss_overflows_in_halves_where_eager_does():
    x = torch.tensor([-60.0, 2.0]).half()
    args = x, torch.tensor([1.0, -1.0]).half()
    assert minicompile.compile(F.soft_margin_loss)(*args).equal(
        F.soft_margin_loss(*args))
    assert F.soft_margin_loss(*args).isinf()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_only_the_first_result_has_to_have_eagers_dtype(dtype):
    """Eager holds a batch's statistics in float32, a fake one in halves."""
    norm = torch.nn.BatchNorm2d(3).to(dtype)
    compiled = minicompile.compile(norm)
    x = torch.randn(2, 3, 4, 4).to(dtype).requires_grad_()
    compiled(x).sum().backward()
    assert x.grad.dtype == dtype and not compiled.stats().fallbacks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_row", [True, False])
def test_observers_that_resize_what_they_are_given(per_row):
    """Quantisation-aware training begins with empty minima and maxima."""
    def observed(x, on, low, high, scale, zero):
        return torch.fused_moving_avg_obs_fake_quant(
            x, on, on, low, high, scale, zero, 0.01, -128, 127, 0, per_row)

    compiled = minicompile.compile(observed)
    start = [torch.empty(0)] * 3 if per_row else [
        torch.tensor(float("inf")), torch.tensor(-float("inf")),
        torch.ones(1)]
    whole = torch.zeros(0 if per_row else 1, dtype=torch.int32)
    ours, theirs = ([each.clone() for each in (*start, whole)]
                    for _ in range(2))
    for _ in range(3):
        given = torch.randn(8, 4), torch.ones(1, dtype=torch.long)
        assert torch.equal(compiled(*given, *ours),
                           observed(*given, *theirs))
        assert all(map(torch.equal, ours, theirs))
