"""Graphs as programs of Triton kernels give what eager gives.

Runs on a GPU, or with TRITON_INTERPRET=1 in Triton's interpreter.
"""

import pytest
import torch
import torch.nn.functional as F
import triton

import minicompile
from minicompile import emit, fusion
from minicompile.budget.memory import bound
from minicompile.split.prices import min_cut
from minicompile.core.index import index
from minicompile.core.loops import Buffer, Load, Op
from minicompile.core.options import Options
from minicompile.core.random.philox import UNIFORM
from minicompile.core.schedule import Schedule, View
from minicompile.emit.schedules import gpu as triton_tiles
from tests.emit.sums import Sums
from tests.emit.triton_kernels import (DEVICE, RUNS, at, buffer, pointwise,
                                       variables)
from tests.fusion.graphs import aten
from tests.fusion.symbolic import (
    assert_same_at,
    results,
    sized,
    symbolic,
)
from tests.guards.test_truths import (ANSWERS, AS_VALUES, FLOATS, NUMBERS,
                                      values_at)
from tests.judge import judged, near

pytestmark = pytest.mark.skipif(
    not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")
OPTIONS = Options(cpu_backend="triton")


def check(function, *args, kernels=None, exactly=False):
    """The program's results are as right as eager's, strides included."""
    args = [arg.to(DEVICE) if isinstance(arg, torch.Tensor) else arg
            for arg in args]
    program = emit.emit(fusion.fuse(aten(function, *args)), OPTIONS)
    if kernels is not None:
        assert len(program.kernels) == kernels, program.source
    expected = results(function, args)
    for _ in range(2):  # the second call is launched another way
        found = program.run(list(args))
        judged(near, found, expected, results, function, args)
        for got, want in zip(found, expected, strict=True):
            assert got.stride() == want.stride()
            assert not exactly or torch.equal(got, want)
    return program


def scaled(x, y):
    """Rows that add up to their length, beside rows of another size."""
    rows = torch.cat([x, y * x.shape[0] ** -0.5])
    return rows.sum(0), (x.softmax(-1) * x.shape[1])[1:], rows.t() + 1


def test_one_program_serves_all_sizes():
    args = torch.randn(5, 7, device=DEVICE), torch.randn(3, 7, device=DEVICE)
    graph = symbolic(scaled, *args)
    run = emit.emit(fusion.fuse(graph), OPTIONS).run
    for n, m, k in [(5, 3, 7), (3, 9, 300), (9, 8, 16), (6, 2, 500),
                    (16, 16, 32), (60, 3, 5)]:
        args = (torch.randn(n, k, device=DEVICE),
                torch.randn(m, k, device=DEVICE))
        for _ in range(2):
            assert assert_same_at(graph, run, scaled, args)


def rounded_up(x, y):
    """Sizes rounded up to multiples, by what is left of negative numbers.
    """
    wide = F.pad(x.exp(), (0, -x.shape[1] % 8))
    long = F.pad(y, (0, 0, 0, -y.shape[0] % 4))
    flat = F.pad(wide.reshape(-1), (0, -wide.numel() % 48))
    return (wide, long.softmax(0), wide.std(1),
            flat.reshape(-1, 48).t() + 1)


def test_sizes_are_rounded_up_in_a_kernel():
    args = torch.rand(9, 7, device=DEVICE), torch.rand(3, 7, device=DEVICE)
    graph = symbolic(rounded_up, *args)
    run = emit.emit(fusion.fuse(graph), OPTIONS).run
    for n, m, k in [(9, 3, 7), (5, 6, 301), (3, 9, 4099), (50, 999, 3)]:
        args = (torch.rand(n, k, device=DEVICE),
                torch.rand(m, k, device=DEVICE))
        assert assert_same_at(graph, run, rounded_up, args)


def masked_layers(x, weight, seed):
    """Layers that draw: each has numbers of its own."""
    for draw in range(1, 18):
        x = x * (UNIFORM(seed, draw, x.shape) > 0.3) @ weight
    return x


def test_layers_that_draw_share_a_kernel():
    seed = torch.tensor([7, 5])
    program = check(masked_layers, torch.rand(4, 8), torch.eye(8), seed)
    first = torch.device(DEVICE).type == "cpu"  # reads an input
    assert program.source.count("\ndef kernel_") == 1 + first


@pytest.mark.parametrize("seed", range(16))
def test_random_sums(seed):
    sums = Sums(seed)
    args = [arg.to(DEVICE) for arg in sums.inputs()]
    graph = sums.graph(DEVICE)
    found = emit.emit(fusion.fuse(graph), OPTIONS).run(
        sized(graph, args) if sums.symbolic else list(args))
    judged(near, tuple(found), sums(*args), sums, *args)


@pytest.fixture(params=["whole rows", "walked rows"])
def rows(request, monkeypatch):
    """Rows that fit a block, and rows that do not."""
    if request.param == "walked rows":
        monkeypatch.setattr(triton_tiles, "IN_REGISTERS", 4)
        monkeypatch.setattr(triton_tiles, "WALKED", 16)


#: Rows that a mask ends, rows that fill a block, rows of one element.
ROWS = [(torch.float32, (7, 13)), (torch.float32, (3, 4, 8)),
        (torch.float32, (5, 64)), (torch.float32, (1, 1)),
        (torch.bfloat16, (7, 13)), (torch.bfloat16, (5, 64))]


@pytest.mark.slow(sample=12)
@pytest.mark.parametrize("dtype, shape", ROWS, ids=str)
@pytest.mark.parametrize("function", [
    lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, x.shape[-1:]),
    lambda x: x.sum(-1), lambda x: x.sum(0), lambda x: x.sum(),
    lambda x: x.amax(-1), lambda x: x.mean(0, keepdim=True) + x,
    lambda x: x - x.exp().sum(-1, keepdim=True).log(),
    lambda x: x.var(-1, correction=0) + x.mean(-1),
], ids=["softmax", "layer_norm", "sum rows", "sum columns", "sum all",
        "amax", "mean columns", "log_softmax", "var"])
def test_reductions(function, shape, dtype, rows):
    check(function, torch.randn(shape).to(dtype))


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int8,
    torch.uint8, torch.bool, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions_of_every_type(dtype, dim, rows):
    x = torch.randint(0, 3, (6, 21)).to(dtype)
    check(lambda x: x.sum(dim), x)
    check(lambda x: x.amax(dim), x)
    check(lambda x: x.amin(dim), x)
    check(lambda x: ((x != 0).any(dim), (x != 0).all(dim)), x)
    if dtype != torch.bool:
        check(lambda x: (x.argmax(dim), x.argmin(dim)), x)
    if dtype.is_floating_point:
        check(lambda x: x.prod(dim), x / 2 + 0.5)


@pytest.mark.parametrize("dim", [0, 1])
def test_nan_and_infinity_in_reductions(dim, rows):
    x = torch.randn(20, 20)
    x[3, 4] = x[3, 9] = float("nan")
    x[5] = float("-inf")
    x[7, 7] = float("inf")
    check(lambda x: (x.amax(dim), x.amin(dim), x.sum(dim), x.argmax(dim),
                     x.argmin(dim), F.softmax(x, dim)), x)


def test_the_first_of_equal_values_wins(rows):
    x = torch.tensor([[1, 3, 3, 0, 0] * 9, [2] * 45]).float()
    check(lambda x: (x.argmax(-1), x.argmin(-1)), x)


def test_an_empty_row(rows):
    check(lambda x: (x.sum(1), x.prod(1), x.any(1)), torch.empty(3, 0))


def test_a_scalar():
    check(lambda x: x * 2 + 1, torch.tensor(3.0))
    check(lambda x: x.sum(), torch.tensor(3.0))


def test_transposes():
    check(lambda x, y: x.t() + y, torch.randn(40, 70), torch.randn(70, 40),
          kernels=1)
    check(lambda x: x.permute(2, 0, 1).contiguous(), torch.randn(20, 7, 33))
    check(lambda x: (x + 1).permute(0, 2, 1, 3).reshape(2, 17, 60),
          torch.randn(2, 3, 17, 20))


def test_a_transposed_tile_is_used():
    program = check(lambda x, y: x.t() + y, torch.randn(64, 64),
                    torch.randn(64, 64))
    assert "YBLOCK" in program.source


def test_a_bias_of_the_row_needs_no_tile():
    program = check(lambda x, y: x + y[:, None], torch.randn(64, 64),
                    torch.randn(64))
    assert "YBLOCK" not in program.source


def test_masked_loads():
    check(lambda x, y: torch.cat([x * 2, y], 1), torch.randn(5, 3),
          torch.randn(5, 9))
    check(lambda x: F.pad(x, (2, 3, 1, 0), value=7.0), torch.randn(4, 6))
    check(lambda x: F.pad(x, (2, -3)).sum(1), torch.randn(4, 6))
    check(lambda x, y: torch.cat([x, y]).sum(0), torch.randn(3, 9),
          torch.randn(5, 9))


def test_positions_as_values():
    check(lambda x: x + torch.arange(x.shape[1], device=x.device),
          torch.randn(3, 37))
    check(lambda x: torch.tril(x), torch.randn(17, 17))
    check(lambda x: torch.ones_like(x), torch.randn(5))


@pytest.mark.parametrize("make", [
    lambda: torch.randn(6, 10)[:, 1:], lambda: torch.randn(6, 10)[1:, ::2],
    lambda: torch.randn(10).expand(6, 10), lambda: torch.randn(9, 5).t(),
    lambda: torch.randn(64)[3:35], lambda: torch.randn(0, 4)])
def test_layouts(make):
    check(lambda x: (x * 2 + 1, x.sum(-1)), make())


def test_several_outputs_and_rows_used_twice(rows):
    def function(x, w):
        y = F.layer_norm(x, x.shape[-1:]) * w
        return y, y.sum(-1), (y * y).sum(0), F.softmax(y, -1)
    check(function, torch.randn(9, 30), torch.randn(30))


def test_a_chain_in_bfloat16_is_eagers_bit_for_bit():
    def chain(x, y):
        z = x * y + 1
        z = torch.relu(z) * 0.1 - x
        z = torch.maximum(z.abs(), y)
        return (z + x).sigmoid() * y
    for dtype in (torch.bfloat16, torch.float16):
        check(chain, torch.randn(100, 7).to(dtype),
              torch.randn(100, 7).to(dtype), kernels=1, exactly=True)


def test_backward_of_a_block():
    from minicompile import split
    from tests.fusion.graphs import recorded
    x = torch.randn(4, 8, device=DEVICE, requires_grad=True)
    w = torch.randn(8, 16, device=DEVICE, requires_grad=True)

    def forward(x, w):
        return F.gelu(F.layer_norm(x @ w, (16,))) * 2

    joint = recorded(forward, (x, w))
    pair = split.partition(joint, bound.choose(joint, 1.0, cut=min_cut.cut))
    runs = {name: emit.emit(fusion.fuse(half), OPTIONS).run
            for name, half in pair.halves().items()}
    out, = split.make_runtime(joint, pair, **runs)([x, w])
    gradient = torch.randn_like(out)

    def seen(out, leaves, gradient):
        return [out, *torch.autograd.grad(out, leaves, gradient)]

    def eager(x, w, gradient):
        return seen(forward(x, w), (x, w), gradient)

    judged(near, seen(out, (x, w), gradient), eager(x, w, gradient),
           eager, x, w, gradient)


@pytest.mark.parametrize("form", ["x +", "and", "where", "float", "set",
                                  "masked", "size"])
def test_truths_have_a_graph_each(form):
    compiled = minicompile.compile(AS_VALUES[form], fullgraph=True, options={
        "cpu_backend": "triton"})
    for n in NUMBERS:
        values_at(compiled, AS_VALUES[form], FLOATS.to(DEVICE), n)
    assert compiled.stats().graphs <= 2 + ANSWERS[form]
    assert not compiled.stats().fallbacks


def adamw(parameters, gradients, first, second):
    with torch.no_grad():
        for p, g, m, v in zip(parameters, gradients, first, second):
            p.mul_(0.99)
            m.lerp_(g, 0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def launched(function, *args):
    """How often a compiled function launches, having done what it does."""
    compiled = minicompile.compile(
        function, options={"cpu_backend": "triton"})
    theirs = clone(args)
    for _ in range(2):
        compiled(*args)
        function(*theirs)
        torch.testing.assert_close(args, theirs)
    program = compiled.cache.entries[0].lowered.programs["forward"]
    return program.source.count(".run("), program.source


def clone(args):
    return [[each.clone() for each in arg] if isinstance(arg, list)
            else arg.clone() for arg in args]


def many(count, *shapes):
    return [[torch.rand(shape, device=DEVICE) for shape in shapes
             for _ in range(count)] for _ in range(4)]


def test_equal_updates_are_one_launch():
    launches, source = launched(adamw, *many(3, (40, 5), (7,)))
    assert launches == 2 and source.count("members=3)") == 2
    launches, source = launched(adamw, *many(18, (5,)))
    assert launches == 2 and "members=16)" in source


def test_updates_that_depend_on_each_other_are_not_one_launch():
    def chained(xs, factor):
        for x in xs:
            x.mul_(factor)
            factor.add_(1)
            x.add_(factor)
        for x, y in zip(xs, xs[1:]):
            x.copy_(y * 2)

    xs = [torch.rand(9, device=DEVICE) for _ in range(5)]
    launched(chained, xs, torch.rand(1, device=DEVICE))


def test_small_kernels_that_are_needed_one_after_another_are_one_launch():
    """As those of batch norms at inference, one before each layer."""
    def scaled(x, weight, variances):
        y = x
        for variance in variances:
            y = y @ weight * variance.rsqrt()
        x.copy_(y)

    launches, source = launched(
        scaled, torch.rand(64, 7, device=DEVICE),
        torch.rand(7, 7, device=DEVICE),
        [torch.rand(7, device=DEVICE) + 1 for _ in range(3)])
    assert launches == 4 and source.count("members=3)") == 1


def test_what_allocates_much_does_not_wait():
    def doubled(xs):
        return [x.sin() * 2 for x in xs]

    launches, _ = launched(doubled, [
        torch.rand(20_000, device=DEVICE) for _ in range(4)])
    assert launches == 4


def test_a_number_in_the_hosts_memory():
    x, y = buffer("x", (40,)), buffer("y", (40,))
    n = Buffer("n", (), (), torch.float32, torch.device("cpu"))
    ranges = variables("i", (40,))
    number = Load("n", index(0), torch.float32, host=True)
    kernel = pointwise(Op("div", (at(x, ranges), number), torch.float32), y,
                       ranges)
    run = emit.emit(Schedule((n, x), (kernel,), (View(
        "y", y.shape, y.stride, index(0), y.dtype),), {}),
        OPTIONS).run
    given = torch.randn(40, device=DEVICE)
    # Triton's interpreter took the sign of a zero away in these releases.
    signed = DEVICE == "cuda" or not triton.__version__.startswith(
        ("3.6", "3.7"))
    for divisor in (3.0, 7.0, -0.0 if signed else 0.0):
        (got,) = run([torch.tensor(divisor), given])
        inverse = (1 / torch.tensor(divisor)).to(DEVICE)
        assert torch.equal(got, given * inverse)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "of", "kernels"), [
    (torch.float16, torch.float16, 1), (torch.bfloat16, torch.bfloat16, 1),
    (torch.float32, torch.float64, 2)])  # one of them rounds
def test_a_number_in_the_hosts_memory_is_as_eager(dtype, of, kernels):
    x, n = torch.randn(4096, device="cuda").to(dtype), torch.tensor(
        13.8564, dtype=torch.float64).to(of)

    def f(x, n):
        return x / n, x * n, x - n, n / x, torch.where(x > 0, x, n)

    compiled = minicompile.compile(f)
    for got, want in zip(compiled(x, n), f(x, n)):
        assert torch.equal(got, want)
    assert compiled.stats().kernels == kernels


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_functions_of_denormal_numbers_are_eagers(dtype):
    tiny = torch.finfo(dtype).tiny
    x = torch.linspace(-2, 2, 4097, device="cuda").to(dtype) * tiny
    y = torch.full_like(x, -2 * tiny)

    def f(x, y):
        return (x.expm1(), x.log1p(), x.sin(), x.tan(), x.tanh(), x.asinh(),
                x.atanh(), x.rsqrt(), x.lgamma(), x.atan(), x.asin(),
                x.erf(), torch.fmod(x, y), torch.remainder(x, y), F.elu(x),
                torch.div(x, y, rounding_mode="floor"), x * 0.5)

    for got, want in zip(minicompile.compile(f)(x, y), f(x, y)):
        assert torch.equal(got.nan_to_num(), want.nan_to_num())


@pytest.mark.gpu
def test_pytorchs_optimizer_is_a_few_launches():
    """Its step counts lie in the host's memory."""
    def made():
        torch.manual_seed(0)
        found = [torch.nn.Parameter(torch.randn(size, device="cuda"))
                 for size in [5000] * 20 + [7] * 3]
        for each in found:
            each.grad = torch.randn_like(each)
        return found, torch.optim.AdamW(found, foreach=True)

    ours, optimizer = made()
    theirs, reference = made()
    optimizer.step()
    reference.step()
    step = minicompile.compile(optimizer.step)
    for _ in range(3):
        step()
        reference.step()
        torch.testing.assert_close(ours, theirs)
    program = step.cache.entries[0].lowered.programs["forward"]
    assert program.source.count(".run(") == 3


@pytest.mark.gpu
def test_a_quotient_by_a_number_in_common_is_eagers():
    """Where what is left of a number can be a float, it is to the bit."""
    special = torch.tensor([0, -0.0, torch.inf, -torch.inf, torch.nan, 1,
                            1e-45, 2.0 ** -127, 2.0 ** 126, 3e38, -7])

    def bits(count):
        return torch.randint(2 ** 32, (count,)).to(torch.int32).view(
            torch.float32)

    a = torch.cat([special, bits(4096 - len(special))]).cuda()
    a[a.abs().lt(1e-32) & a.ne(0)] = 1
    b = torch.cat([special, -special, bits(1000)])[:, None].cuda()

    def quotients(a, b):
        found = a / b
        return found, found.amax(1)

    got, want = (each(a, b)[0] for each in (
        minicompile.compile(quotients), quotients))
    same = got.view(torch.int32) == want.view(torch.int32)
    assert (same | got.isnan() & want.isnan()).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_opposites_and_inverses_are_eagers_to_the_bit(dtype):
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    bits = torch.randint(-2 ** 63, 2 ** 63 - 1, (1 << 20,), device="cuda")
    special = torch.tensor([0, -0.0, torch.inf, -torch.inf, 1, -1],
                           device="cuda", dtype=dtype)
    x = torch.cat([special, (bits >> 64 - 8 * dtype.itemsize).to(kind).view(
        dtype)])

    def f(x):
        return -x, x.reciprocal(), x.sigmoid()

    for got, want in zip(minicompile.compile(f)(x), f(x)):
        same = got.view(kind) == want.view(kind)
        assert (same | got.isnan() & want.isnan()).all()


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int8,
    torch.int64], ids=str)
def test_an_opposite_keeps_its_sign(dtype):
    x = torch.tensor([0, -0.0, 3, 200, -7]).to(dtype)
    check(lambda x: (-x, torch.copysign(torch.ones_like(x), -x)), x,
          exactly=True)


@pytest.mark.gpu
def test_a_quotient_of_bfloat16_numbers_is_eagers():
    """Of any number by some 2000."""
    every = torch.arange(-2 ** 15, 2 ** 15, dtype=torch.int32).to(
        torch.int16).view(torch.bfloat16).cuda()
    some = every[torch.randperm(2 ** 16)[:2048]]
    got, want = (each(every, some[:, None]) for each in (
        minicompile.compile(torch.div), torch.div))
    assert ((got == want) | got.isnan() & want.isnan()).all()


@pytest.mark.gpu
@pytest.mark.parametrize("numerics", ["eager", "fast"])
@pytest.mark.parametrize("function", [
    lambda x: x.softmax(-1).amax(-1), lambda x: F.normalize(x).amax(-1),
    lambda x: F.layer_norm(x, x.shape[-1:]).max(-1)[0],
    lambda x: (x.exp() / x.exp().sum(-1, True)).amax(0)])
def test_the_gradient_of_a_maximum_finds_it_again(function, numerics):
    """What is computed again is what it was, whatever the kernel."""
    x = torch.randn(300, 1000, device="cuda", requires_grad=True)
    want, = torch.autograd.grad(function(x).sum(), x)
    got, = torch.autograd.grad(minicompile.compile(function, options={
        "numerics": numerics})(x).sum(), x)
    assert got.ne(0).any(-1).equal(want.ne(0).any(-1))
