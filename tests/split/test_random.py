"""Random numbers in kernels: distributions, seeds, masks, the ladder."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minicompile
from minicompile.core.random.philox import UNIFORM, philox
from minicompile.emit.cuda.equal_kernels import recipe

MANY = (500, 400)
#: The operator, and its distribution function.
DRAWN = {
    "rand": (lambda x: torch.rand_like(x), lambda x: x),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-1, 3),
                lambda x: (x + 1) / 4),
    "randn": (lambda x: torch.randn_like(x),
              lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2),
    "normal": (lambda x: torch.empty_like(x).normal_(2, 3),
               lambda x: (1 + torch.erf((x - 2) / 3 / math.sqrt(2))) / 2),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2),
                    lambda x: 1 - torch.exp(-2 * x)),
}
#: The operator, and what each of its few values weighs.
COUNTED = {
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.9),
                   {0: 0.1, 1: 0.9}),
    "randint": (lambda x: torch.randint(-1, 3, x.shape),
                dict.fromkeys((-1, 0, 1, 2), 0.25)),
    "randint_like": (lambda x: torch.randint_like(x, 5),
                     dict.fromkeys(range(5), 0.2)),
    "random_": (lambda x: torch.empty_like(x).random_(2, 4),
                {2: 0.5, 3: 0.5}),
    "dropout": (lambda x: F.dropout(torch.ones_like(x), 0.25),
                {0: 0.25, 4 / 3: 0.75}),
}


def compiled(function, **options):
    return minicompile.compile(function, fullgraph=True, options=options)


def in_kernels(run) -> bool:
    """Whether the only draw outside of kernels is that of the seed."""
    drawn = [step.target for entry in run.cache.entries
             for schedule in entry.lowered.schedules.values()
             for step in schedule.externs
             if torch.Tag.nondeterministic_seeded in step.target.tags]
    return drawn == [torch.ops.aten.randint.low]


def test_philox_gives_the_numbers_its_authors_publish():
    """Counter and key all 0 and all 1, as 24 bits."""
    known = {
        0: (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        -1: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)}
    for n, words in known.items():
        same = torch.tensor(n)
        got = philox(same, same, 4 * n + torch.arange(4))
        assert got.tolist() == [(bits & 0xFFFFFF) / 2 ** 24
                                for bits in words]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64,
                                   torch.bfloat16])
@pytest.mark.parametrize("name", DRAWN)
def test_distribution(name, dtype):
    """Kolmogorov and Smirnov's distance, whose 99.999 % point is 2.4."""
    function, below = DRAWN[name]
    run = compiled(function)
    torch.manual_seed(3)
    got = run(torch.ones(MANY, dtype=dtype))
    assert in_kernels(run) and got.dtype == dtype
    want = torch.linspace(0, 1, got.numel(), dtype=torch.float64)
    distance = below(got.double().flatten().sort()[0]) - want
    rounding = torch.finfo(dtype).eps
    assert distance.abs().max() < 2.4 / math.sqrt(got.numel()) + rounding


@pytest.mark.parametrize("name", COUNTED)
def test_weights_of_few_values(name):
    function, weights = COUNTED[name]
    run = compiled(function)
    torch.manual_seed(4)
    got = run(torch.ones(MANY))
    assert in_kernels(run)
    assert got.dtype == function(torch.ones(2)).dtype
    for value, weight in weights.items():
        share = torch.isclose(got.double(), torch.tensor(value).double(
            )).double().mean().item()
        assert abs(share - weight) < 5 * math.sqrt(
            weight * (1 - weight) / got.numel()), (value, share)


@pytest.mark.parametrize("function", [
    lambda x: torch.bernoulli(x / 2), lambda x: torch.normal(x, 2.0),
    lambda x: x.clone().bernoulli_(x / 2)])
def test_draws_from_numbers_in_a_tensor_are_eagers(function):
    """They run as ATen has them, which checks the numbers."""
    run, x = compiled(function), torch.ones(MANY)
    torch.manual_seed(4)
    got = run(x)
    torch.manual_seed(4)
    assert got.equal(function(x)) and not in_kernels(run)


def test_neighbours_draws_and_calls_are_independent():
    run = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))
    torch.manual_seed(5)
    a, b = run(torch.ones(MANY))
    c, _ = run(torch.ones(MANY))
    for one, other in ((a, b), (a, c), (a[:, 1:], a[:, :-1]),
                       (a[1:], a[:-1])):
        pair = torch.stack([one.flatten(), other.flatten()])
        assert torch.corrcoef(pair)[0, 1].abs() < 5 / math.sqrt(a.numel())


def test_numbers_stay_below_one_in_every_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        got = compiled(lambda x: torch.rand_like(x))(
            torch.ones(MANY, dtype=dtype))
        assert 0 <= got.min() and got.max() < 1


def test_the_logarithm_of_an_exponential_is_finite():
    run = compiled(lambda x: torch.empty_like(x).exponential_().log())
    assert run(torch.ones(4000, 400)).isfinite().all()


def masked(x):
    return F.dropout(x, 0.4) * 3


def test_forward_and_backward_see_one_mask_saved_as_sixteen_bytes():
    run, x = compiled(masked), torch.randn(MANY, requires_grad=True)
    y = run(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0, 3 / 0.6))
    pair = run.cache.entries[0].lowered.pair
    assert pair.saved_bytes == 16


def test_an_attention_with_dropout_saves_no_mask():
    def attention(q, k, v):
        weights = F.dropout((q @ k.mT).softmax(-1), 0.5)
        return weights @ v, weights

    given = [torch.randn(4, 32, 8, requires_grad=True) for _ in range(3)]
    run = compiled(attention)
    torch.manual_seed(0)
    out, weights = run(*given)
    found = torch.autograd.grad(out.sum(), given)
    mask = (weights != 0).double() * 2

    def same(q, k, v):
        return ((q @ k.mT).softmax(-1) * mask) @ v

    want = [each.detach().double().requires_grad_() for each in given]
    for mine, other in zip(found, torch.autograd.grad(
            same(*want).sum(), want)):
        torch.testing.assert_close(mine, other.float())
    assert in_kernels(run)


def test_seeds_repeat_and_move_on():
    run, x = compiled(masked), torch.ones(MANY)
    torch.manual_seed(1)
    first, second = run(x), run(x)
    torch.manual_seed(1)
    assert torch.equal(run(x), first)
    assert torch.equal(run(x), second)
    assert not torch.equal(first, second)
    state = torch.random.get_rng_state()
    run(x)
    assert not torch.equal(torch.random.get_rng_state(), state)


def test_two_draws_of_one_call_differ():
    run = compiled(lambda x: torch.stack([F.dropout(x), F.dropout(x)]))
    first, second = run(torch.ones(MANY))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("function", [
    masked, *(function for function, _ in DRAWN.values()),
    *(function for function, _ in COUNTED.values())])
def test_fallback_random_gives_eagers_numbers(function):
    run = compiled(function, fallback_random=True)
    x = torch.ones(6, 10)
    for seed in range(2):
        torch.manual_seed(seed)
        want = function(x)
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(run(x), want)
        assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("function, compiles", [
    (lambda x: F.dropout(x, 0.5), False),
    (lambda x: F.dropout(x, 0.5, inplace=True), False),
    (lambda x: F.alpha_dropout(x, 0.5, True), False),
    (lambda x: x.bernoulli_(0.4), False), (lambda x: x.normal_(), False),
    (lambda x: x.uniform_(), True), (torch.rand_like, True)])
def test_eagers_numbers_are_drawn_along_the_memory(function, compiles):
    """An operator that draws row by row instead is left to eager."""
    run = compiled(function, fallback_random=True)
    for make in (lambda: torch.ones(5, 6).t(),
                 lambda: torch.ones(3, 4, 5).permute(2, 0, 1),
                 lambda: torch.ones(2, 3, 4, 5).contiguous(
                     memory_format=torch.channels_last)):
        torch.manual_seed(1)
        want = function(make())
        torch.manual_seed(1)
        torch.testing.assert_close(run(make()), want)
    told = "a draw is in the order of the memory"
    assert run.stats().fallbacks == ({} if compiles else {told: 3})


def test_a_generator_of_the_users_own_is_used():
    def function(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    run, x = minicompile.compile(function), torch.ones(5)
    want = function(x, torch.Generator().manual_seed(7))
    got = run(x, torch.Generator().manual_seed(7))
    torch.testing.assert_close(got, want)


def test_strides_are_eagers():
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for function in (torch.rand_like, lambda x: torch.dropout(x, .5, True),
                     lambda x: x.mT.bernoulli(0.5)):
        assert compiled(function)(x).stride() == function(x).stride()


def test_printed_kernels_draw_the_operators_numbers():
    """C++, through views and reshapes, against core/random/philox.py."""
    run = compiled(lambda x: (torch.rand(6, 10).t().reshape(5, 12), x))
    torch.manual_seed(2)
    got, _ = run(torch.ones(3))
    torch.manual_seed(2)
    seed = torch.randint(-2 ** 63, 2 ** 63 - 1, (2,))
    want = UNIFORM(seed, 0, (6, 10)).t().reshape(5, 12)
    assert torch.equal(got, want)


def test_layers_that_draw_share_their_kernels():
    def layers(x, weight, count):
        for _ in range(count):
            x = F.dropout(x, 0.5) @ weight
        return x

    def printed(count):
        run = compiled(layers)
        run(torch.ones(4, 8), torch.eye(8), count)
        (schedule,) = run.cache.entries[0].lowered.schedules.values()
        return len({*map(recipe, schedule.kernels)})

    assert printed(12) == printed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5),
                                   nn.Linear(64, 1))

    def forward(self, x):
        return self.inner(x)


def test_training_and_evaluation_of_a_module_with_dropout():
    model = Net()
    run = minicompile.compile(model)
    x = torch.randn(4, 8)
    assert not torch.equal(run(x), run(x))
    run.eval()
    torch.testing.assert_close(run(x), model(x))
    assert torch.equal(run(x), run(x))


#: Draws that follow the memory of an image.
ON_IMAGES = {
    **{name: lambda y, draw=draw: y + draw(y.detach())
       for name, (draw, _) in {**DRAWN, **COUNTED}.items()
       if name not in ("random_", "dropout", "randint")},
    "cauchy": lambda y: y + torch.empty_like(y).cauchy_(),
    "log_normal": lambda y: y + torch.empty_like(y).log_normal_(),
    "geometric": lambda y: y + torch.empty_like(y).geometric_(0.3),
    "poisson": lambda y: y + torch.poisson(y.detach().abs()),
    "normal of means": lambda y: y + torch.normal(y.detach(), 1.0),
    "bernoulli of tensor": lambda y: y * torch.empty_like(y).bernoulli_(
        y.detach().sigmoid()),
    "dropout": lambda y: F.dropout(y, 0.5),
    "dropout in place": lambda y: F.dropout(y * 1, 0.5, inplace=True),
    "rrelu": lambda y: F.rrelu(y, training=True),
    "alpha_dropout": lambda y: F.alpha_dropout(y, 0.5, True),
    "dropout2d": lambda y: F.dropout2d(y, 0.5),
    "feature_alpha_dropout": lambda y: F.feature_alpha_dropout(
        y, 0.5, True),
}


def drawn_between(name: str, run, size: int) -> list[torch.Tensor]:
    """The result, the gradient and the next number under one seed."""
    x = torch.randn(2, 3, size, size + 1, dtype=torch.float64,
                    generator=torch.Generator().manual_seed(size))
    torch.manual_seed(5)
    y = run(x.requires_grad_())
    y.square().sum().backward()
    return [y.detach(), x.grad, torch.rand(1)]


@pytest.mark.slow(sample=15)
@pytest.mark.parametrize("name, backend", [
    *((name, "split") for name in ON_IMAGES),
    ("randn", "fused"), ("dropout", "fused"), ("dropout2d", "fused")])
def test_between_convolutions(name, backend):
    """Eager's numbers in eager's order; drawn in kernels, one mask."""
    w = torch.linspace(-1, 1, 81, dtype=torch.float64).view(3, 3, 3, 3)

    def function(x):
        return F.conv2d(ON_IMAGES[name](F.conv2d(x, w)).relu(), w)

    run = minicompile.compile(function, dynamic=True, backend=backend,
                              options={"fallback_random":
                                       backend == "split"})
    for size in (8, 11):
        found = drawn_between(name, run, size)
        judge = function if backend == "split" else run
        torch.testing.assert_close(
            found, drawn_between(name, judge, size))
    assert not run.stats().fallbacks
