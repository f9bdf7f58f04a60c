"""Sizes and ints that vary: how often a function is compiled, and for what."""

import math
import operator
import types
from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import minicompile
from tests.same import assert_same, close


def compiles(fn, calls, backend="eager", **options):
    """How often ours compiled `fn`; every call is compared with eager."""
    graphs = []

    def seen(graph, example_inputs):
        graphs.append(graph)
        return graph

    ours = minicompile.compile(fn, backend=seen, **options)
    for args in calls:
        close(ours(*args), fn(*args))
    assert not ours.stats().fallbacks, ours.stats()
    return len(graphs)


def theirs(fn, calls, **options):
    """How often torch.compile does."""
    graphs = []

    def seen(graph, example_inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=seen, **options)
    for args in calls:
        compiled(*args)
    return len(graphs)


def rows(*sizes, width=3):
    return [(torch.randn(size, width),) for size in sizes]


def halve(x):
    return x.view(x.shape[0] // 2, -1)


def branch(x):
    return x + 1 if x.shape[0] > 6 else x - 1


def product(x):
    return x.reshape(x.size(0) * x.size(1)) / x.size(0)


def slices(x):
    return x[: x.shape[0] // 2], x[-1], x[1:-1], x[::2]


def made(x):
    b, n = x.shape
    return torch.zeros(b, n) + torch.arange(b)[:, None] * x.new_ones(b, 1)


def sizes(x):
    return (x + 1, x.shape, x.shape[0] * 2, x.numel(), len(x), x.size(),
            x.stride())


def floats(x):
    return x / math.sqrt(x.shape[1]), x.shape[0] / 2, x.shape[0] ** 0.5


def texts(x):
    return f"{x.shape[1]}", str(x.size(1)), {x.shape[1]: x + 1}


def extremes(x):
    return x * max(x.shape[0], 3) + min(x.shape[0], x.shape[1])


def kinds(x):
    n = x.shape[0]
    return isinstance(n, int), type(n) is int, n is None, x * int(n), float(n)


def outer(x):
    shape = x.shape[:-1] + (1, x.shape[-1])
    return x.view(*shape).expand(-1, 2, -1), torch.Size((x.shape[0], 2))


def attention(x):
    q = x.view(x.shape[0], -1, 1)
    return torch.softmax(q @ q.mT / math.sqrt(q.shape[-1]), -1) @ q


def padded(x):
    extra = 64 - x.shape[0]
    return nn.functional.pad(x, (0, 0, 0, extra)) if extra > 0 else x


def compared(x):
    return x + (x.shape == (6, 3)) + (x.shape[0] in (10, 12))


def ceiled(x):
    return x[: math.ceil(x.shape[0] / 2)], x[: math.floor(x.shape[0] / 3)]


PROGRAMS = [halve, branch, product, slices, made, sizes, floats, texts,
            extremes, kinds, outer, attention, padded, ceiled]


def formatted(x):
    form = "{} rows"
    return f"{x.shape[0]:3d}", form.format(x.size(0)), x + 1


@pytest.mark.parametrize("program", [compared, formatted])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_constants_where_they_are_needed(program, dynamic):
    compiles(program, rows(4, 6, 8, 10, 12), dynamic=dynamic)


@pytest.mark.slow(sample=8)
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_as_often_as_torch(program, dynamic):
    calls = rows(4, 6, 8, 10, 12, 6)
    ours = compiles(program, calls, dynamic=dynamic)
    assert ours <= theirs(program, calls, dynamic=dynamic)


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_both_dimensions(program):
    calls = [(torch.randn(b, n),) for b, n in
             ((4, 6), (8, 6), (8, 12), (10, 14), (2, 2), (6, 30))]
    assert compiles(program, calls) <= theirs(program, calls)


@pytest.mark.parametrize("sizes", [(0, 4, 6), (1, 4, 6), (4, 1, 6, 8),
                                   (4, 6, 1, 0, 8), (4, 6, 0, 7)])
def test_zero_and_one(sizes):
    calls = rows(*sizes)
    assert compiles(torch.relu_, calls) <= theirs(torch.relu_, calls)
    assert compiles(branch, calls) <= theirs(branch, calls)


def scaled(x, n):
    return x[:n] * n, n + 1, n


def repeated(x, n):
    for _ in range(n):
        x = x * 2
    return x


def picked(x, n):
    y = x.view(3, 3).repeat(3, 1)
    y[n], y[1:, n % 3] = 1.0, x[n]
    y[..., n % 2, None] *= 2
    return y[n], y[:, n % 3], y[..., n, 1:, None], y[None, 1], x[n - 9]


def told(x, n):
    table = torch.tensor(((n, 2), [True, n / 2]), device="cpu")
    return (torch.tensor(n), torch.tensor([n], dtype=torch.float64), table,
            torch.as_tensor([n, 0.5]), torch.tensor(x.shape) + x[0])


def told_narrow(x, n):
    return torch.tensor([n, 1], dtype=torch.bfloat16), torch.tensor(
        [n + 0.5], requires_grad=True) * x


def in_tuple(x, pair):
    return x * pair[0] - pair[1]["n"]


@pytest.mark.parametrize("program", [scaled, repeated, picked,
                                     told])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_ints(program, dynamic):
    calls = [(torch.randn(9), n) for n in (3, 5, 7, 2, 8)]
    ours = compiles(program, calls, dynamic=dynamic)
    assert ours <= theirs(program, calls, dynamic=dynamic)


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_an_int_picks_a_part(backend):
    compiled = assert_same(picked, torch.randn(9), 3, backend=backend)
    for n in (5, 7, 2, 8):
        x = torch.randn(9)
        close(compiled(x, n), picked(x, n))
    assert compiled.stats().graphs == 2
    for wrong in (9, -20):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(torch.randn(9), wrong)


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
@pytest.mark.parametrize("odd", [-1, 0, 2**31, 2**40])
@pytest.mark.parametrize("program", [told, told_narrow])
def test_a_tensor_of_numbers_that_vary(program, odd, backend):
    compiled = minicompile.compile(program, backend=backend)
    for n in (3, 5, odd, 7):
        x = torch.randn(3)
        close(compiled(x, n), program(x, n))


def test_ints_in_containers():
    calls = [(torch.randn(3), (n, {"n": n + 1})) for n in (3, 5, 7, 9)]
    assert compiles(in_tuple, calls) == 2 == theirs(in_tuple, calls)


@pytest.mark.parametrize("number", [0, 1, -1, -5, 2**31 - 1])
def test_odd_ints(number):
    calls = [(torch.randn(9), n) for n in (3, number, 4, 6)]

    def add(x, n):
        return x + n, n * n

    assert compiles(add, calls) <= theirs(add, calls)


@pytest.mark.parametrize("other", [True, 3.0, "3", None])
def test_another_type_is_another_graph(other):
    def typed(x, n):
        return x + 1, isinstance(n, int), type(n).__name__

    calls = [(torch.randn(3), n) for n in (3, 5, other, 7)]
    compiles(typed, calls)


# Floats


def stretched(x, p):
    y = x * p + (1 - p) * 0.5
    return y / (p * 3), p, (p * 0.1) * 3, p - 0.1 + 0.1, -p, p ** 2


def decided(x, p):
    x = x * 2 if p > 0.5 else x * p
    return x - p if p and not p / 2 else x * bool(p) + (p or 3.0)


def passed_on(x, p):
    return nn.functional.leaky_relu(x, p), torch.full((3,), p), x.add(
        x, alpha=p)


def mixed(x, p):
    return x * (p * x.shape[0]), max(p, 0.25), min(p, 0.5), abs(p), round(
        p, 2), int(p * 100), p == 0.25


def spoken(x, p):
    return x + 1, f"{p:.3f}", str(p), {p: x + 2}


@pytest.mark.parametrize("program", [stretched, decided, passed_on, mixed])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_floats(program, dynamic):
    calls = [(torch.randn(3), p) for p in (0.3, 0.7, 0.123456789, 0.9)]
    ours = minicompile.compile(program, backend="eager", dynamic=dynamic)
    for args in calls:
        close(ours(*args), program(*args))
    assert not ours.stats().fallbacks
    assert ours.stats().graphs <= theirs(program, calls, dynamic=dynamic)


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("program", [stretched, decided, passed_on, mixed])
def test_floats_reach_kernels(program, backend):
    compiled = minicompile.compile(program, backend=backend)
    for p in (0.3, 0.7, 0.0, 0.123456789, -2.5):
        x = torch.randn(3, requires_grad=True)
        made, want = compiled(x, p), program(x, p)
        close(made, want)
        if not torch.is_tensor(made):
            made, want = made[0], want[0]
        close(torch.autograd.grad(made.sum(), x),
              torch.autograd.grad(want.sum(), x))
    assert not compiled.stats().fallbacks


@pytest.mark.parametrize("program", [stretched, decided, mixed, spoken])
@pytest.mark.parametrize("odd", [0.0, -0.0, 1.0, -1e100, 1e-320, math.inf,
                                 -math.inf, math.nan, 2, True])
def test_odd_floats(program, odd):
    if program is mixed and not math.isfinite(odd):
        pytest.skip("int() of it raises")
    ours = minicompile.compile(program, backend="eager")
    for p in (0.3, odd, 0.6, odd, 0.7, -0.7):
        x = torch.tensor([1.0, -2.0, 0.0])
        close(ours(x, p), program(x, p))


def test_ints_of_modules_and_globals_are_constants():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = 2

        def forward(self, x):
            return x * self.by

    module = Scale()
    compiled = minicompile.compile(module, backend="eager")
    x = torch.randn(3)
    for module.by in (3, 4, 5):
        assert torch.equal(compiled(x), x * module.by)
    assert compiled.stats().graphs == 3


def test_parameters_are_constants():
    def linear(x, w):
        return x @ w

    calls = [(torch.randn(2, n), nn.Parameter(torch.randn(n, 3)))
             for n in (4, 5, 6)]
    assert compiles(linear, calls) == 3


def test_a_buffer_is_a_constant_until_its_size_varies():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("by", torch.randn(4))

        def forward(self, x):
            return x[:, None] + self.by

    module = Shift()
    compiled = minicompile.compile(module, backend="eager", dynamic=True)
    for rows in (4, 5):  # at first as many as the buffer has elements
        x = torch.randn(rows)
        close(compiled(x), module(x))
    assert compiled.stats().graphs == 1
    for size in (6, 7):
        module.by = torch.randn(size)
        close(compiled(x), module(x))
    assert compiled.stats().graphs == 2


def test_equal_sizes_share_a_symbol():
    def add(x, y):
        return x + y

    graphs = []

    def seen(graph, example_inputs):
        graphs.append([n.name for n in graph.graph.nodes
                       if n.op == "placeholder"])
        return graph

    compiled = minicompile.compile(add, backend=seen, dynamic=True)
    compiled(torch.randn(5, 7), torch.randn(5, 7))
    assert len(graphs[0]) == 4  # two symbols, two tensors
    compiled(torch.randn(6, 7), torch.randn(6, 7))
    assert len(graphs) == 1
    close(compiled(torch.randn(5, 1), torch.ones(5, 7)).shape,
          torch.Size((5, 7)))
    assert len(graphs) == 2


def test_strides_that_vary():
    def double(x):
        return x * 2

    full = torch.randn(8, 12)
    calls = [(full[:, :k],) for k in (6, 6)] + [
        (torch.randn(8, 6),), (torch.randn(8, 9)[:, :6],)]
    assert compiles(double, calls) <= theirs(double, calls)
    calls = [(torch.randn(4, 6, 5).transpose(0, 1),),
             (torch.randn(8, 6, 5).transpose(0, 1),),
             (torch.randn(9, 6, 5).transpose(0, 1),)]
    assert compiles(double, calls) == 2


def test_a_stride_made_of_a_later_one_that_varies():
    made = minicompile.compile(lambda x: x.sin() * 2, backend="split",
                               fullgraph=True)
    x = torch.randn(2, 4, 4, 4)  # 64 is 4 * 16 in both layouts
    for given in (x, x.to(memory_format=torch.channels_last),
                  torch.randn(3, 4, 5, 6), x.transpose(2, 3)):
        found = made(given)
        close(found, given.sin() * 2)
        assert found.stride() == (given.sin() * 2).stride()
    assert not made.stats().fallbacks


def test_views_and_offsets():
    whole = torch.randn(40, 3)

    def write(x):
        x.mul_(2)
        return x.sum(), x.storage_offset()

    compiled = minicompile.compile(write, backend="eager")
    for start, end in ((0, 8), (3, 14), (9, 30), (2, 11)):
        mine, eagers = whole.clone(), whole.clone()
        close(compiled(mine[start:end]), write(eagers[start:end]))
        close(mine, eagers)


def test_other_dimensions():
    def double(x):
        return x * 2

    calls = [(torch.randn(*shape),) for shape in
             ((3, 4), (3, 4, 5), (4, 5, 6), (7,), (8, 9), (2, 2, 2))]
    assert compiles(double, calls) <= theirs(double, calls)


def test_a_convolution_asks_for_no_batch_size():
    conv = nn.Conv2d(3, 4, 3)

    def convolve(x):
        return nn.functional.conv2d(x, conv.weight) + x.shape[0]

    calls = [(torch.randn(n, 3, 8, 8),) for n in (2, 15, 16, 17, 40)]
    assert compiles(convolve, calls) == 2 < theirs(convolve, calls)


def test_sizes_in_graphs_inside():
    def chosen(x, k):
        return torch.cond(
            x.sum() > 0, lambda x: x.view(x.shape[0] * 3) * x.shape[0] + k,
            lambda x: (x - k).reshape(-1), (x,))

    calls = [(sign * torch.rand(n, 3), n) for n in (4, 5, 6, 7)
             for sign in (1, -1)]
    assert compiles(chosen, calls, fullgraph=True) == 2


class Stretch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * x * n * x.shape[0]

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * 2 * x * ctx.n * x.shape[0], None


def test_sizes_in_an_autograd_function():
    def stretch(x, n):
        return Stretch.apply(x, n) + x.shape[0]

    compiled = minicompile.compile(stretch, backend="eager")
    for n in (4, 5, 6, 7):
        mine = torch.randn(n, 3, requires_grad=True)
        eagers = mine.detach().clone().requires_grad_()
        for x, apply in ((mine, compiled), (eagers, stretch)):
            apply(x, n).sum().backward()
        close(mine.grad, eagers.grad)
    assert compiled.stats().graphs == 2


# Marks


@pytest.mark.parametrize("mark", [minicompile.mark_dynamic,
                                  torch._dynamo.mark_dynamic,
                                  torch._dynamo.maybe_mark_dynamic])
def test_a_mark_spares_the_first_compile(mark):
    calls = rows(4, 6, 8)
    for x, in calls:
        mark(x, 0)
    assert compiles(product, calls) == 1 == theirs(product, calls)


@pytest.mark.parametrize("mark", [minicompile.mark_dynamic,
                                  minicompile.mark_static])
def test_dimensions_that_are_marked(mark):
    x = torch.randn(4, 3)
    with pytest.raises(IndexError, match="2 dimensions has no dimension 2"):
        mark(x, 2)
    with pytest.raises(ValueError, match="from 5 to 4"):
        minicompile.mark_dynamic(x, 0, min=5, max=4)
    with pytest.raises(ValueError, match="to 1"):
        minicompile.mark_dynamic(x, 0, max=1)
    mark(x, -2)
    compiled = minicompile.compile(product, backend="eager", dynamic=(
        mark is minicompile.mark_static or None))
    close(compiled(x), product(x))
    marked = mark is minicompile.mark_dynamic
    assert "dimension 0" in str(compiled.stats().dynamic) or not marked
    assert "dimension 1" in str(compiled.stats().dynamic) or marked


@pytest.mark.parametrize("name, whole", [
    ("mark_dynamic", ([0, 1],)), ("mark_static", ()),
    ("mark_static", ((0, 1),))])
def test_several_dimensions_are_marked_as_torch_marks_them(name, whole):
    ours, torchs = torch.randn(4, 3), torch.randn(4, 3)
    getattr(minicompile, name)(ours, *whole)
    getattr(torch._dynamo, name)(torchs, *whole)
    for mark in "_dynamo_dynamic_indices", "_dynamo_static_indices":
        assert getattr(ours, mark, 0) == getattr(torchs, mark, 0)


def test_a_mark_of_torchs_on_no_dimension():
    x = torch.randn(4, 3)
    for dim in (5, -1):  # torch takes any, and heeds none
        torch._dynamo.mark_dynamic(x, dim)
    compiled = minicompile.compile(product, backend="eager")
    close(compiled(x), product(x))
    assert compiled.stats().graphs == 1 and not compiled.stats().fallbacks


@pytest.mark.parametrize("mark", [minicompile.mark_static,
                                  torch._dynamo.mark_static])
def test_a_static_mark_keeps_the_size(mark):
    calls = rows(4, 6, 8)
    for x, in calls:
        mark(x, 0)
    assert compiles(product, calls, dynamic=True) == 3
    assert compiles(product, calls) == 3


@pytest.mark.parametrize("mark", [minicompile.mark_dynamic,
                                  torch._dynamo.mark_dynamic])
def test_a_range_is_guarded(mark):
    compiled = minicompile.compile(product, backend="eager")
    for size in (4, 8, 6):
        x = torch.randn(size, 3)
        mark(x, 0, min=3, max=8)
        close(compiled(x), product(x))
    assert compiled.stats().graphs == 1
    x = torch.randn(9, 3)
    close(compiled(x), product(x))
    assert compiled.stats().graphs == 2
    mark(x, 0, min=3, max=8)
    with pytest.raises(minicompile.ConstraintViolation, match="3 to 8"):
        minicompile.compile(product, backend="eager")(x)


def one_by_one(x):
    return torch.stack([row * 2 for row in x])


def fixed(x):
    return x + torch.ones(4, 1)


@pytest.mark.parametrize("program, line", [
    (one_by_one, "for row in x"), (fixed, "torch.ones"),
    (texts, "x.shape"), (lambda x: x.view(4, 3), "view")])
def test_a_constant_that_was_marked_names_the_line(program, line):
    x = torch.randn(4, 4 if program is texts else 3)
    minicompile.mark_dynamic(x, 1 if program is texts else 0)
    compiled = minicompile.compile(program, backend="eager")
    with pytest.raises(minicompile.ConstraintViolation) as caught:
        compiled(x)
    assert line in str(caught.value) and __file__ in str(caught.value)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="specialized|dynamic"):
        torch.compile(program, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("size", [0, 1])
def test_a_mark_on_zero_or_one(size):
    x = torch.randn(size, 3)
    minicompile.mark_dynamic(x, 0)
    with pytest.raises(minicompile.ConstraintViolation, match="always"):
        minicompile.compile(branch, backend="eager")(x)


def test_marks_inside():
    def inside(x):
        minicompile.mark_static(x, 0)
        return x * x.shape[0]

    assert compiles(inside, rows(4, 5, 6), dynamic=True) == 3


# Breaks


def test_continuations_get_ints():
    def broken(x):
        n = x.sum().item()
        return torch.zeros(int(n)) + n

    compiled = minicompile.compile(broken, backend="eager")
    for n in (3, 4, 5, 6, 7, 8):
        x = torch.tensor([n, 0])
        close(compiled(x), broken(x))
    stats = compiled.stats()
    assert stats.graphs == 3 and not stats.fallbacks, stats


def test_sizes_over_a_break():
    def broken(x):
        shape, n = x.shape, x.shape[0] * 2
        minicompile.graph_break()
        return x.new_zeros(shape) + x.view(n, -1).sum()

    compiled = minicompile.compile(broken, backend="eager")
    for n in (3, 4, 5, 6, 7, 8):
        x = torch.randn(n, 4)
        close(compiled(x), broken(x))
    stats = compiled.stats()
    assert not stats.fallbacks and stats.recompiles <= 2, stats


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("breaks", [False, True])
def test_sizes_of_before_a_new_shape(dynamic, breaks):
    def turned(x):
        n = x.shape[0]
        x.t_()
        if breaks:
            minicompile.graph_break()
        return n, n * 2, x.shape, x + n

    compiled = minicompile.compile(turned, backend="eager", dynamic=dynamic)
    for n in (4, 5, 6):
        mine = torch.randn(n, 3)
        eagers = mine.clone()
        close(compiled(mine), turned(eagers))
        close(mine, eagers)


def test_numbers_that_are_written_back():
    def counted(x, counts):
        counts[0] += 1
        before = counts[0]
        minicompile.graph_break()
        counts.append(before * 2)
        return x * counts[0], before

    compiled = minicompile.compile(counted, backend="eager")
    mine, eagers = [[3]], [[3]]
    for _ in range(6):
        x = torch.randn(3)
        close(compiled(x, mine[0]), counted(x, eagers[0]))
        close(mine, eagers)
        del mine[0][1:], eagers[0][1:]
    assert compiled.stats().recompiles <= 2


# What is said


def test_reasons():
    compiled = minicompile.compile(branch, backend="eager")
    for x, in rows(4, 5, 12):
        compiled(x)
    turned, decided = compiled.stats().reasons
    assert turned == "branch: size of dimension 0 of `x` was 4, is 5"
    assert compiled.stats().dynamic == [
        "branch: dimension 0 of `x` was 4, is 5: dynamic from now on"]
    assert "`x.shape[0] <= 6` was true, is false: x.shape[0] is 12" in (
        decided) and "x.shape[0] > 6 else" in decided


def test_so_does_a_rank():
    compiled = minicompile.compile(scaled, backend="eager")
    for shape in ((4,), (4, 3)):
        compiled(torch.randn(shape), 2)
    assert compiled.stats().dynamic == [
        f"scaled: dimension {dim} of `x` is {size}: dynamic because its"
        " rank varies" for dim, size in enumerate((4, 3))]


def test_an_int_says_so_too():
    compiled = minicompile.compile(scaled, backend="eager")
    for n in (3, 4):
        compiled(torch.randn(9), n)
    assert compiled.stats().reasons == ["scaled: `n` was 3, is 4"]
    assert compiled.stats().dynamic == [
        "scaled: `n` was 3, is 4: dynamic from now on"]


@pytest.mark.parametrize("mark, how", [
    (minicompile.mark_dynamic, "mark_dynamic"),
    (torch._dynamo.mark_dynamic, "mark_dynamic"),
    (torch._dynamo.maybe_mark_dynamic, "maybe_mark_dynamic")])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_a_mark_says_so_too(mark, how, dynamic):
    compiled = minicompile.compile(product, backend="eager", dynamic=dynamic)
    for rows in (4, 6):
        x = torch.randn(rows, 3)
        mark(x, 0)
        compiled(x)
    told = [f"product: dimension 0 of `x` is 4: dynamic by {how}"]
    if dynamic:
        told += ["product: dimension 1 of `x` is 3: dynamic by dynamic=True"]
    assert compiled.stats().dynamic == told
    assert told[-1] in str(minicompile.explain(compiled)(x))


def test_dynamic_from_the_start_says_so_too():
    compiled = minicompile.compile(scaled, backend="eager", dynamic=True)
    for n in (7, 1, 4):
        compiled(torch.ones(1, n), n)
    assert compiled.stats().dynamic == [
        "scaled: dimension 1 of `x` is 7: dynamic by dynamic=True",
        "scaled: `n` is 7: dynamic by dynamic=True"]


@pytest.mark.parametrize("values, was", [
    ((0.5, 0.7), "was 0.5, is 0.7"), ((0.5, 0.5, 0.0, 0.7), "was 0.5, is 0.0"),
    ((0.5, math.inf, 0.7), "was 0.5, is inf"),
    ((math.nan, 0.7), "was nan, is 0.7")])
def test_a_float_says_so_too(values, was):
    compiled = minicompile.compile(lambda x, p: x * p, backend="eager")
    for value in values:
        compiled(torch.ones(2), value)
    told, = compiled.stats().dynamic
    assert told.endswith(f": `p` {was}: dynamic from now on")


def test_a_backend_without_symbols():
    def plain(graph, example_inputs):
        if any(isinstance(x, torch.SymInt) for x in example_inputs):
            raise minicompile.BackendError("no symbols here")
        return graph

    compiled = minicompile.compile(product, backend=plain)
    with pytest.warns(UserWarning, match="no symbols here"):
        for x, in rows(4, 5, 6, 7):
            close(compiled(x), product(x))
    stats = compiled.stats()
    assert stats.graphs == 4 and stats.fallbacks["static shapes"] == 1


def test_symbols_come_before_the_tensors_that_use_them():
    def matmul(x, n, y):
        return (x @ y) * n

    inputs = []

    def seen(graph, example_inputs):
        inputs.append(example_inputs)
        return graph

    compiled = minicompile.compile(matmul, backend=seen, dynamic=True)
    compiled(torch.randn(4, 5), 6, torch.randn(5, 7))
    known = set()
    for value in inputs[0]:
        if isinstance(value, torch.SymInt):
            known |= value.node.expr.free_symbols
        else:
            for size in (*value.shape, *value.stride()):
                if isinstance(size, torch.SymInt):
                    assert size.node.expr.free_symbols <= known


@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.sub,
                                operator.floordiv, operator.mod,
                                operator.truediv, operator.pow,
                                operator.and_, operator.lshift])
def test_arithmetic(op):
    def compute(x, n):
        return x * op(n, 2), op(n, 2), op(7, n)

    compiled = minicompile.compile(compute, backend="eager")
    for n in (3, 5, 6, 9):
        x = torch.randn(4, dtype=torch.float64)
        close(compiled(x, n), compute(x, n))


def test_symbols_may_run_what_is_no_library_we_know(monkeypatch):
    plain = ShapeEnv.evaluate_expr
    monkeypatch.setattr(ShapeEnv, "evaluate_expr", lambda *args, **more: (
        plain(*args, **more)))  # as a hook of imports would

    def least(x, ns):
        return x * min(ns), sorted(ns)

    compiled = minicompile.compile(least, backend="eager", fullgraph=True)
    for ns in ([3, 4], [5, 7], [6, 9]):
        x = torch.randn(3)
        close(compiled(x, ns), least(x, ns))


@pytest.mark.parametrize("text", ["n % n", "0 // n", "n / n", "n // n * 2",
                                  "divmod(n, n)[1]", "0 % min(n, 2)"])
def test_nothing_is_divided_by_zero(text):
    divide = eval(f"lambda x, n: (x + ({text}), {text})")
    compiled = minicompile.compile(divide, backend="eager")
    for n in (3, 5, -4):
        close(compiled(torch.ones(2), n), divide(torch.ones(2), n))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(2), 0)


@pytest.mark.parametrize("text", ["round(n, -1)", "round(n, ndigits=-1)",
                                  "round(len(x), -1)"])
def test_a_number_that_varies_is_rounded_to_tens(text):
    rounded = eval(f"lambda x, n: (x + 1, {text})")
    compiled = minicompile.compile(rounded, backend="eager")
    for n in (8, 9, 14, 16):
        x = torch.ones(n)
        close(compiled(x, n), rounded(x, n))


def test_a_gradient_that_an_input_has_brings_no_symbols():
    calls = [(x.requires_grad_(),) for (x,) in rows(4, 6, 8)]
    for (x,) in calls:
        x.grad = torch.ones_like(x)
    assert compiles(lambda x: x * 2, calls) == 2


def test_a_heap_of_numbers_that_vary_is_changed_once():
    def most(x, counts):
        counts.update("z")
        return x + 1, counts.most_common(2)

    compiled = minicompile.compile(most, backend="eager")
    mine, its = Counter("abca"), Counter("abca")
    for _ in range(4):
        assert compiled(torch.ones(1), mine)[1] == most(
            torch.ones(1), its)[1]


@pytest.mark.parametrize("number", [2**33, -2**62, 2**63, 10**30])
def test_a_number_whose_square_no_kernel_holds_is_a_constant(number):
    def function(x, k):
        return x * (k * k % 7)

    compiled = minicompile.compile(function)
    for k in (3, 5, number, 6, 2**31 - 1, -2**31):
        assert torch.equal(compiled(torch.ones(3), k),
                           function(torch.ones(3), k))


@pytest.mark.parametrize("draw", [
    torch.rand, torch.randn, torch.randperm,
    lambda n, **more: torch.randint(5, (n, n), **more)])
def test_random_numbers_of_no_generator_have_sizes_that_vary(draw):
    def function(x):
        return x + draw(x.shape[0], generator=None).sum()

    compiled = minicompile.compile(function, backend="eager",
                                   fullgraph=True)
    for x in map(torch.ones, (4, 5, 6)):
        torch.manual_seed(0)
        found = compiled(x)
        torch.manual_seed(0)
        close(found, function(x))
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("loss", [
    torch.nn.functional.multilabel_margin_loss,
    lambda x, y: torch.ops.aten.multilabel_margin_loss_forward(x, y, 0)[0]])
def test_a_loss_counts_the_labels_before_the_first_that_is_none(loss):
    """PyTorch's form in Python, which symbols need, counts all."""
    compiled = minicompile.compile(loss, dynamic=True)
    for n in (3, 4):
        x, y = torch.randn(n, 5), torch.tensor([[1, 2, -1, 0, 0]] * n)
        close(compiled(x, y), loss(x, y))
    assert compiled.stats().graphs == 1


@pytest.mark.parametrize("question", [
    lambda x: 0 in x.shape or 3 in [*x.shape], lambda x: x.shape[1] is None,
    lambda x: math.prod(x.shape), lambda x: x.shape.numel(),
    lambda x: divmod(x.shape[1], x.shape[0] - 1),
    lambda x: x.new_tensor([x.shape[0], 1.5]),
    lambda x: (x.new(x.shape).fill_(2), x.new(*x.shape).fill_(3)),
    lambda x: (x.new(torch.Size()).fill_(2), x.new((2, 3)), x.new([4])),
    lambda x: torch.linspace(-1, 1, x.shape[1]),
    lambda x: torch.linspace(0.5, x.shape[0] - 0.5, steps=x.shape[0]),
    lambda x: torch.tril_indices(*x.shape)])
def test_questions_about_sizes_do_not_settle_them(question):
    def function(x):
        return x + 1, question(x)

    compiled = minicompile.compile(function, backend="eager",
                                   fullgraph=True)
    for shape in ((4, 5), (6, 7), (9, 11), (12, 40)):
        close(compiled(torch.ones(shape)), function(torch.ones(shape)))
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_numbers_between_two_of_a_tensor_have_no_gradient(dtype):
    """As kernels have it, and rounded as these do."""
    def function(x):
        ends = torch.linspace(x[0], x[1] + 1, x.shape[0])
        return x + ends, torch.linspace(1, 9, x.shape[0], dtype=dtype)

    compiled = minicompile.compile(function, backend="eager", dynamic=True)
    for n in (4, 7):
        x = torch.ones(n, requires_grad=True)
        found, expected = compiled(x), function(x)
        close(found, expected)
        assert [each.dtype for each in found] == [
            each.dtype for each in expected]


def test_a_function_bound_to_a_size_crosses_a_break():
    def times(n, x):
        return x * n

    def function(x):
        scale = types.MethodType(times, x.shape[0])
        print(end="")  # noqa: T201
        return scale(x)

    compiled = minicompile.compile(function, backend="eager", dynamic=True)
    for n in (3, 4, 5):
        close(compiled(torch.ones(n)), function(torch.ones(n)))
    assert not compiled.stats().fallbacks
