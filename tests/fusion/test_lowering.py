"""Every lowering rule, against PyTorch."""

import gc

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile.core.errors import BackendError
from minicompile.core.loops import Const, walk
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.core.schedule import Extern
from minicompile.fusion import fuse
from minicompile.fusion.lowerings import RULES
from tests.fusion.graphs import as_cuda, assert_right, aten
from tests.same import assert_same

X, Y, V = torch.Size((4, 6)), torch.Size((4, 6)), torch.Size((6,))


def numbers(shape, dtype=torch.float32):
    """A tensor of this shape and dtype, positive and negative."""
    values = torch.randn(shape) * 3
    return values > 0 if dtype == torch.bool else values.to(dtype)


UNARY = """neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
    cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma
    floor ceil trunc round sigmoid reciprocal relu isnan isinf signbit
    logical_not square positive isfinite""".split()

BINARY = """add sub mul div maximum minimum fmax fmin atan2 hypot copysign
    eq ne lt le gt ge logical_and logical_or logical_xor pow fmod
    remainder""".split()

VIEWS = {
    "transpose": lambda x: x.transpose(0, 1) + 1,
    "t": lambda x: x.t().exp(),
    "permute": lambda x: x.reshape(2, 2, 6).permute(2, 0, 1) * 2,
    "reshape": lambda x: x.reshape(3, 8) + 1,
    "reshape of a transpose": lambda x: x.t().reshape(8, 3) + 1,
    "flatten": lambda x: x.flatten() + 1,
    "unsqueeze and squeeze": lambda x: x.unsqueeze(1).squeeze(1) + 1,
    "expand": lambda x: x[:1].expand(5, 6) + 1,
    "expand new": lambda x: x.expand(3, 4, 6) + 1,
    "slice": lambda x: x[1:3, ::2] + 1,
    "negative slice": lambda x: x[-3:, :-1] + 1,
    "select": lambda x: x[2] + x[-1],
    "split": lambda x: torch.stack([s.sum(1) for s in x.split(2)]),
    "split unevenly": lambda x: tuple(s + 1 for s in x.split(4, 1)),
    "split by sizes": lambda x: tuple(s + 1 for s in x.split([1, 5], 1)),
    "chunk": lambda x: tuple(s * 2 for s in x.chunk(2, -1)),
    "unbind": lambda x: sum(x.unbind(1)),
    "flip": lambda x: x.flip(0, 1) + 1,
    "diagonal": lambda x: x.diagonal() + 1,
    "diagonal copied": lambda x: torch.diag(x, 1) * 2,
    "permute copied": lambda x: torch.permute_copy(x, (1, 0)).neg(),
    "diagonal below": lambda x: x.diagonal(-1) + 1,
    "repeat": lambda x: x.repeat(2, 3) + 1,
    "cat": lambda x: torch.cat([x, x + 1, x[:1]]),
    "cat along the last": lambda x: torch.cat([x, x.sin()], -1),
    "slice of cat": lambda x: torch.cat([x, x.exp()], 1)[:, 6:] + 1,
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "pad": lambda x: F.pad(x, (1, 2, 3, 0), value=0.5),
    "crop": lambda x: F.pad(x, (-1, -2, 1, 1)),
    "slice assigned": lambda x: slice_assigned(x),
    "row assigned": lambda x: row_assigned(x),
    "every other row assigned": lambda x: every_other_assigned(x),
    "columns interleaved": lambda x: interleaved(x),
    "roll": lambda x: x.roll(1, 0) + 1,
    "tril": lambda x: x.tril() + x.triu(1),
    "as_strided": lambda x: x.as_strided((2, 3), (6, 2)) + 1,
    "movedim": lambda x: x.reshape(2, 2, 6).movedim(0, -1) + 1,
    "unfold": lambda x: x.unfold(1, 2, 2) + 1,
}


def slice_assigned(x):
    x = x.clone()
    x[1:3] = x[0] * 2
    return x


def row_assigned(x):
    x = x.clone()
    x[:, 2] = 7
    return x


def every_other_assigned(x):
    x = x.clone()
    x[::2] += 1
    return x


def interleaved(x):
    made = torch.zeros_like(x)
    made[:, ::2], made[:, 1:-1:3] = x[:, 1::2] * 2, x[:, 1:-1:3] + 1
    return made


REDUCTIONS = {
    "sum": lambda x: x.sum(), "sum rows": lambda x: x.sum(1),
    "sum columns": lambda x: x.sum(0),
    "sum keeping": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(), "mean rows": lambda x: x.mean(1),
    "amax": lambda x: x.amax(1), "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(), "min": lambda x: x.min(),
    "prod": lambda x: x.prod(0), "prod of all": lambda x: x.prod(),
    "any": lambda x: (x > 2).any(1), "all": lambda x: (x > -2).all(),
    "any of floats": lambda x: x.any(0),
    "any along none": lambda x: (x > 2).any((), True),
    "all along none": lambda x: x.round().all(()),
    "sum along none": lambda x: x.sum((), True),
    "sum of bools": lambda x: (x > 2).sum(1, dtype=torch.bool),
    "product of bools": lambda x: (x > -9).prod(1, dtype=torch.bool),
    "argmax": lambda x: x.argmax(1), "argmin": lambda x: x.argmin(),
    "argmax keeping": lambda x: x.argmax(0, keepdim=True),
    "max with place": lambda x: tuple(x.max(1)),
    "min with place": lambda x: tuple(x.min(0, keepdim=True)),
    "var": lambda x: x.var(1), "var of all": lambda x: x.var(),
    "std": lambda x: x.std(0, correction=0),
    "var_mean": lambda x: torch.var_mean(x, 1, keepdim=True),
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: x.norm(dim=1),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "group_norm": lambda x: F.group_norm(x.reshape(2, 4, 3), 2),
    "of one element": lambda x: x[:, :1].sum(1) + x[:, :1].amax(1),
    "place of one element": lambda x: x[:, :1].argmax(1),
    "of a view": lambda x: x.reshape(2, 2, 6).sum((0, 2)),
}

OTHER = {
    "gelu": lambda x: F.gelu(x), "silu": lambda x: F.silu(x),
    "alpha": lambda x: torch.add(x, x.exp(), alpha=0.3),
    "subtract from": lambda x: 1 - x, "divide into": lambda x: 2 / x,
    "where": lambda x: torch.where(x > 0, x, -x),
    "where numbers": lambda x: torch.where(x > 0, 1.0, 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 0, float("-inf")),
    "clamp": lambda x: x.clamp(-0.5, 0.7), "floor": lambda x: x.clamp(0.1),
    "ceiling": lambda x: x.clamp(max=x.mean()),
    "powers": lambda x: x ** 2 + x ** 3 + x.abs() ** 0.5 + x ** -1,
    "power of a number": lambda x: 2 ** x,
    "rounded division": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "floored division": lambda x: x // 0.7,
    "remainders": lambda x: x % 0.7 + torch.fmod(x, 0.3),
    "to half": lambda x: x.half() + 1, "to int": lambda x: x.int() + 1,
    "to bool": lambda x: x.bool(), "to double": lambda x: x.double() + 1,
    "full": lambda x: torch.full((2, 3), 0.1) + x[:2, :3],
    "zeros and ones": lambda x: torch.zeros_like(x) + torch.ones(6),
    "arange": lambda x: torch.arange(6) * 2,
    "arange by steps": lambda x: torch.arange(1, 12, 2) + x,
    "arange of floats": lambda x: torch.arange(0, 3, 0.5) + x,
    "eye": lambda x: torch.eye(4, 6) * x,
    "causal mask": lambda x: torch.ones(4, 4).tril().bool(),
    "broadcast": lambda x: x + x[0] + x[:, :1] + x.sum(),
    "lerp": lambda x: torch.lerp(x, x.exp(), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "one hot": lambda x: (torch.arange(6) == x.argmax(1, True)).float(),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    function = getattr(torch, name)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        check(function, numbers(X, dtype))


@pytest.mark.parametrize("name", "neg abs sign logical_not square".split())
def test_unary_on_whole_numbers(name):
    check(getattr(torch, name), numbers(X, torch.int64))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    function = getattr(torch, name)
    for a, b in [(X, Y), (X, V), (X, (4, 1)), ((), X)]:
        check(function, numbers(a), numbers(b))
    if name not in ("copysign", "atan2", "hypot", "div"):
        check(function, numbers(X, torch.bfloat16),
              numbers(V, torch.bfloat16))


@pytest.mark.parametrize("name", [n for n in BINARY if n not in (
    "maximum minimum fmax fmin atan2 hypot copysign logical_and logical_or "
    "logical_xor").split()])
def test_binary_with_a_number(name):
    for number in (2, 0.3):
        check(lambda x, by=number: getattr(torch, name)(x, by), numbers(X))


@pytest.mark.parametrize("dtypes", [
    (torch.int64, torch.float32), (torch.float32, torch.bfloat16),
    (torch.int32, torch.int64), (torch.bool, torch.float32),
    (torch.float16, torch.bfloat16), (torch.bool, torch.int64)])
@pytest.mark.parametrize("name", "add mul div eq lt where maximum".split())
def test_types_are_promoted_as_eager_does(name, dtypes):
    def function(a, b):
        if name == "where":
            return torch.where(a > 0, a, b)
        return getattr(torch, name)(a, b)
    for shapes in [(X, V), (X, ()), ((), X)]:
        check(function, *map(numbers, shapes, dtypes))


@pytest.mark.parametrize("name", """bitwise_and bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift add mul maximum""".split())
def test_whole_numbers(name):
    a = torch.randint(0, 100, X)
    check(getattr(torch, name), a, torch.randint(0, 6, V))
    if "shift" not in name:
        check(getattr(torch, name), a > 50, torch.rand(V) > 0.5)


@pytest.mark.parametrize("table, name", [
    (table, name) for table in (VIEWS, REDUCTIONS, OTHER)
    for name in table])
def test_rules(table, name):
    check(table[name], numbers(X))
    check(table[name], numbers((6, 4)).t())


@pytest.mark.parametrize("name", [name for name in VIEWS if (
    name != "as_strided")])
def test_views_are_arithmetic_and_no_calls(name):
    assert not fuse(aten(VIEWS[name], numbers(X))).externs


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_halves(name):
    check(REDUCTIONS[name], numbers(X, torch.bfloat16))


@pytest.mark.parametrize("name", "sum amax argmax prod any mean".split())
def test_reductions_of_whole_numbers(name):
    if name != "mean":
        check(lambda x: getattr(x, name)(1), numbers(X, torch.int64))
    if name in ("sum", "any"):
        check(lambda x: getattr(x, name)(0), numbers(X, torch.bool))


def check(function, *args, exactly=False):
    assert_right(aten(function, *args), args, exactly=exactly)


def test_a_clamp_keeps_the_sign_of_a_zero():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor([0.0, -0.0, 1.0, -1.0] * 16).to(dtype)
        check(lambda x: (1 / F.relu6(x), 1 / x.clamp(max=-0.0),
                         1 / x.clamp(-0.0, 0.0)), x, exactly=True)


def test_a_sum_is_never_minus_zero():
    x = torch.full((3, 1, 4), -0.0)
    check(lambda x: (1 / x.sum(1), 1 / x[0].mean(0), 1 / x[0, 0, 0].sum(),
                     1 / x.sum(0), 1 / x.half().sum(1)), x, exactly=True)


def test_pointwise_chains_in_half_precision_are_bitwise_eager():
    def chain(x, y):
        return torch.where(x > 0.1, (x * 0.1 + y).exp() / 3, x - y) * y
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x, y = numbers((50,), dtype), numbers((50,), dtype)
        check(chain, x, y, exactly=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_number_beside_halves_has_the_digits_that_eager_leaves_it(dtype):
    """Rounded first, but for a factor and a divisor; so is a tensor without
    dimensions."""
    x = torch.linspace(-3, 3, 500).to(dtype)
    x[:4] = torch.tensor([0.1, 0.3, 0.7, -0.3])
    for number in (0.1, 0.3, 0.7):
        for name in "eq ne lt le gt ge remainder fmod".split():
            check(lambda x, by=number, f=getattr(torch, name): f(x, by), x,
                  exactly=True)
        check(lambda x, by=number: (
            x + by, x - by, by - x, x * by, x / by, F.hardshrink(x, by),
            torch.add(x, x.sign(), alpha=by), x.abs() ** by), x,
            exactly=True)
        for other in (torch.tensor(number), torch.tensor(number).double()):
            check(lambda x, y: (x + y, y - x, x * y, y * x, x / y, y / x,
                                x % y, x < y), x, other, exactly=True)
    check(lambda x, y: (x * y, x / y), x, torch.tensor(2051), exactly=True)
    check(lambda x, y: x / y, x, torch.tensor(65536.0), exactly=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_powers_of_halves_are_rounded_as_eager_rounds_them(dtype):
    """Eager rounds each product of bfloat16, and no part of a half's."""
    x = torch.linspace(-3, 3, 500).to(dtype)
    x[:3] = torch.tensor([-0.0, float("inf"), float("-inf")])
    for power in (2, 3, -1, -2, 1):
        check(lambda x, by=power: x ** by, x, exactly=True)
    assert_same(lambda x: (x ** 3, x ** 0.5, x ** -0.5), x, backward=False)


def test_on_a_gpu_a_number_is_rounded_if_it_is_compared():
    graph = as_cuda(aten(lambda x: (x * 0.1, x + 0.1, x < 0.1, x % 0.1),
                         torch.randn(9).bfloat16()))
    found = [each.value for kernel in fuse(graph).kernels
             for loop in kernel.loops for each in walk(loop.value)
             if isinstance(each, Const) and each.value]
    assert found == [0.1, 0.1, *[torch.tensor(0.1).bfloat16().item()] * 2]


@pytest.mark.parametrize("x", [
    torch.tensor([1e25, 3e25]), torch.linspace(-1, 1, 50) * 1e-25,
    torch.full((1000,), 1e8) + torch.arange(1000.)], ids=str)
def test_a_deviation_is_rounded_once(x):
    graph = aten(lambda x: (x.std(), *torch.std_mean(x, 0), x.var(),
                            torch.var_mean(x, 0)[0]), x)
    schedule = assert_right(graph, (x,))
    assert not schedule.externs
    found, exact = evaluate_schedule(schedule, [x]), x.double()
    for made, wanted in zip(found, (
            exact.std(), exact.std(), exact.mean(), exact.var(),
            exact.var()), strict=True):
        torch.testing.assert_close(made, wanted.float())


@pytest.mark.parametrize("function", [
    lambda x: x.sum(1), lambda x: x + 1, lambda x: x.t() * 2,
    lambda x: torch.cat([x, torch.ones(2, x.shape[1])]),
    lambda x: x[:, :0].sum(1)])
def test_nothing_and_single_elements(function):
    for shape in ((0, 3), (3, 0), (1, 1), (1, 5)):
        check(function, torch.randn(shape))


def test_a_row_that_is_repeated_no_times_is_not_written():
    """There is no memory for it."""
    graph = aten(lambda x: x.sum(0).expand(0, 3), torch.randn(4, 3))
    assert [kernel.rows for kernel in fuse(graph).kernels] == [3, 0]


def test_tensors_without_dimensions():
    check(lambda x, y: (x + y, x.sum(), x.exp() * y), torch.randn(()),
          torch.randn(()))
    check(lambda x: x.flip(0) + 1, torch.randn(()))


@pytest.mark.parametrize("function", [
    lambda x: torch.sort(x, 1)[0] + 1, lambda x: x.cumsum(0) * 2,
    lambda x: x[torch.tensor([0, 2])].exp(),
    lambda x: torch.view_as_real(x + 0j) + 1,
    lambda x: torch.cummax(x, 1)[0] + 1,
    lambda x: torch.linalg.svdvals(x) + 1])
def test_what_no_rule_knows_runs_as_it_is(function):
    x = numbers(X)
    schedule = fuse(aten(function, x))
    assert schedule.externs and schedule.kernels
    check(function, x)


def test_a_whole_number_divided_by_nothing_raises_as_in_eager():
    a, b = torch.tensor([4, 2]), torch.tensor([2, 0])
    graph = aten(lambda a, b: a // (b + 1), a, b)
    assert any(isinstance(step, Extern) for step in fuse(graph).steps)
    assert not fuse(aten(lambda a: a // 3 + a % 3, a)).externs
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        assert_right(aten(lambda a, b: a // b, a, b + 1), (a, b))


def on_a_gpu(function, *args, but="primals_2"):
    """What a graph becomes whose values lie on a GPU, but for one."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    graph = aten(function, *args)
    with FakeTensorMode():
        for node in graph.graph.nodes:
            if "val" in node.meta and node.name != but:
                node.meta["val"] = torch.empty(
                    node.meta["val"].shape, device="cuda",
                    dtype=node.meta["val"].dtype)
    return fuse(graph)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_in_the_hosts_memory_is_given_to_the_kernel(dtype):
    schedule = on_a_gpu(lambda x, y: x * y + 1, torch.randn(3, dtype=dtype),
                        torch.randn((), dtype=dtype))
    assert not schedule.externs
    (kernel,) = schedule.kernels
    assert kernel.loops[0].buffer.device.type == "cuda"
    assert kernel.numbers == {"primals_2"}


def test_a_double_in_the_hosts_memory_is_rounded_there_once():
    schedule = on_a_gpu(lambda x, y: [x * y, x.t() @ x - y],
                        torch.randn(3, 3), torch.randn((), dtype=torch.double))
    (number,) = [b for k in schedule.kernels for b in k.written.values()
                 if b.device.type == "cpu"]
    assert number.dtype == torch.float32
    assert {number.name}.union(*(
        k.numbers for k in schedule.kernels)) == {number.name}
    assert [str(e.target) for e in schedule.externs] == ["aten.mm.default"]


def test_rows_side_by_side_are_assigned_without_a_remainder():
    text = str(fuse(aten(VIEWS["slice assigned"], numbers(X))))
    assert "where" in text and "==" not in text and "%" not in text


def test_a_gpu_gathers_where_the_numbers_are_read():
    schedule = on_a_gpu(lambda x, p: x.gather(1, p) * 2, torch.randn(3, 4),
                        torch.tensor([[0, 1, 2, 3, 3]] * 3), but="")
    assert not schedule.externs and len(schedule.kernels) == 1


def test_a_constant_number_is_given_to_the_kernel_as_it_is():
    schedule = on_a_gpu(lambda x: x * torch.tensor(2.5), torch.randn(3),
                        but="_constant0")
    (kernel,) = schedule.kernels
    assert kernel.numbers == {*schedule.constants} == {"_constant0"}


def test_devices_are_not_mixed_in_a_loop():
    schedule = on_a_gpu(lambda x, y: x * y + 1,
                        torch.randn(3), torch.ones((), dtype=torch.long))
    assert [str(e.target) for e in schedule.externs] == ["aten.mul.Tensor"]
    (kernel,) = schedule.kernels
    assert kernel.loops[0].buffer.device.type == "cuda"
    assert not kernel.numbers


def test_a_graph_that_writes_to_its_input_is_refused():
    graph = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: x.add_(1))(torch.randn(3))
    with pytest.raises(BackendError, match="writes to its input"):
        fuse(graph)
    assert gc.isenabled()  # fusing pauses it


def test_a_sparse_result_is_refused():
    with pytest.raises(BackendError, match="sparse"):
        fuse(aten(lambda x: x.to_sparse(), torch.eye(3)))


def test_every_rule_is_an_operator_of_pytorch():
    for name in RULES:
        space = next((space for space in ("prims", "minicompile")
                      if name.startswith(f"{space}.")), "aten")
        packet, _, overload = name.removeprefix(f"{space}.").partition(".")
        found = getattr(getattr(torch.ops, space), packet)
        assert not overload or overload in found.overloads(), name


def test_picking_one_element_of_each_row():
    def picked(x, places):
        return x.log_softmax(-1).gather(1, places)
    x, places = numbers(X), torch.tensor([[3], [0], [5], [2]])
    schedule = assert_right(aten(picked, x, places), (x, places))
    assert {str(call.target) for call in schedule.externs} == {
        "aten._assert_async.msg"}
    assert len(schedule.kernels) == 2


@pytest.mark.parametrize("wrong", [-1, 6])
def test_picking_what_is_not_there_raises(wrong):
    x, places = numbers(X), torch.tensor([[3], [wrong], [5], [2]])
    graph = aten(lambda x, p: x.exp().gather(1, p), x, places.clamp(0, 5))
    with pytest.raises(RuntimeError, match="out of bounds"):
        evaluate_schedule(fuse(graph), [x, places])


def test_picking_from_memory_is_left_to_the_operator():
    x, places = numbers(X), torch.tensor([[3], [0], [5], [2]])
    for function in (lambda x, p: x.gather(1, p) + 1,
                     lambda x, p: (x + 1).gather(1, p[:2]) + 1,
                     lambda x, p: (x + 1).scatter(1, p, 2.5) + 1,
                     lambda x, p: x.scatter(1, p[:3], 1.0) + 1):
        schedule = assert_right(aten(function, x, places), (x, places))
        assert len(schedule.externs) == 1


def test_cross_entropy_writes_no_row(golden):
    def loss(x, target):
        return F.cross_entropy(x, target)
    x, target = torch.randn(6, 10), torch.tensor([0, 9, 3, -100, 1, 2])
    schedule = assert_right(aten(loss, x, target), (x, target))
    golden("cross_entropy.py", str(schedule))
    assert [str(e.target) for e in schedule.externs] == [
        "aten._assert_async.msg"]


@pytest.mark.parametrize("function", [
    lambda x: torch.unsafe_split(x, 4, 0),
    lambda x: torch.unsafe_chunk(x, 3, -1),
    lambda x: torch.unsafe_split_with_sizes(x, [2, 4], 0)])
def test_unsafe_pieces_do_not_share_memory_with_the_input(function):
    """Their schema promises so, although eager gives views."""
    x = torch.randn(6, 5)
    assert not assert_right(aten(function, x), (x,)).externs


@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 3), (3, 0, 4, 5)])
def test_views_of_nothing_are_stored(shape):
    x = torch.randn(shape)
    assert_right(aten(lambda x: (x.exp()[..., ::2], x[..., 1:].mT), x), (x,))
    assert_right(aten(lambda x: torch.stack([x, x.sin()], -1).flatten(-2)[
        ..., ::2], x), (x,))


POOLS = {
    "stem": lambda x: F.max_pool2d(x.relu(), 3, 2, 1),
    "apart": lambda x: F.max_pool2d(x, (2, 3), 1, dilation=(3, 2)) + 1,
    "rest counts": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "one image": lambda x: F.max_pool2d(x[0], 2).sin(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_small_windows_are_read_by_a_loop(name, dtype):
    """On a CPU and on a GPU."""
    x = torch.randn(2, 3, 9, 8, dtype=dtype)
    x[0, 1, 2, 3], x[1, 0, 4:, :] = torch.nan, -torch.inf
    graph = aten(POOLS[name], x)
    assert not assert_right(graph, (x,)).externs
    assert not fuse(as_cuda(graph)).externs


@pytest.mark.parametrize("size, step, margin, operators", [
    (2, None, 0, 0), ((1, 3), None, 0, 0), (2, 3, 0, 0), (3, None, 0, 0),
    (2, 1, 0, 0), (3, 1, 1, 0), (2, None, 1, 0), (3, 2, 1, 0),
    (3, (1, 2), 1, 0), (4, None, 0, 0), (5, None, 0, 1)])
@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
@pytest.mark.parametrize("layout", [torch.contiguous_format,
                                    torch.channels_last])
def test_windows_are_read_by_a_loop_on_a_cpu(
        pool, size, step, margin, operators, layout):
    """PyTorch's kernels are better where they are large."""
    x = torch.randn(2, 3, 9, 8).contiguous(memory_format=layout)
    x[0, 1, 2, 3], x[1, 0, 4:, :] = torch.nan, -torch.inf
    graph = aten(lambda x: pool(x.sin(), size, step, margin), x)
    assert len(assert_right(graph, (x,)).externs) == operators


@pytest.mark.parametrize("size, step, operators", [
    (2, 2, 0), (3, 1, 0), (2, 3, 0), (3, 2, 1), ((1, 3), (1, 2), 1)])
@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_gradients_of_windows_that_overlap_and_leap_are_an_operator_s(
        pool, size, step, operators):
    """On a CPU, which is slower at asking whose window an element is in."""
    def pooled(x):
        return pool(x.sin(), size, step)
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    assert len(minicompile.explain(pooled)(x).externs) == operators
    assert_same(pooled, x)


@pytest.mark.parametrize("size, operators", [
    ((3, 4), 0), ((9, 8), 0), ((3, 2), 0), ((4, 4), 2),
    ((1, 8), 0), ((1, 2), 1)])
@pytest.mark.parametrize("layout", [torch.contiguous_format,
                                    torch.channels_last])
def test_windows_of_one_size_that_lie_side_by_side(size, operators, layout):
    """Others are PyTorch's; of large ones, the forward alone."""
    def pooled(x):
        return F.adaptive_avg_pool2d(x.sin(), size)
    x = torch.randn(2, 3, 9, 8).contiguous(
        memory_format=layout).requires_grad_()
    assert len(minicompile.explain(pooled)(x).externs) == operators
    assert_same(pooled, x)


@pytest.mark.parametrize("size, step, operators", [
    (3, 1, 0), (2, 3, 0), (4, 2, 0), (7, 2, 0), (4, 3, 1), (17, 1, 1)])
def test_slices_of_a_dimension_add_up_again(size, step, operators):
    """Where steps do not fill it, a processor would divide."""
    def slid(x):
        return x.unfold(1, size, step).sin()
    x = torch.randn(3, 20, 5, requires_grad=True)
    assert len(minicompile.explain(slid)(x).externs) == operators
    assert_same(slid, x)


@pytest.mark.parametrize("window, step, margin, apart, operators", [
    (3, 1, 1, 1, 0), (2, 2, 0, 1, 0), (2, 3, 1, 1, 0), ((1, 4), 1, 0, 1, 0),
    ((3, 2), 1, (2, 0), 1, 0), (3, 2, 1, 1, 1), (5, 1, 2, 1, 1),
    (2, 1, 0, 2, 2)], ids=str)
def test_windows_become_columns_and_add_up_again(
        window, step, margin, apart, operators):
    """Where many of them overlap, PyTorch's operator adds."""
    how = {"kernel_size": window, "stride": step, "padding": margin,
           "dilation": apart}

    def columns(x):
        return F.unfold(x.sin(), **how) * 2
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    assert len(minicompile.explain(columns)(x).externs) == operators
    assert_same(columns, x)
    given = torch.randn(columns(x).shape, requires_grad=True)
    assert_same(lambda y: F.fold(y.sin(), (9, 8), **how), given)
    assert_same(lambda y: F.fold(y, (9, 8), **how), given[0].detach())


def test_halves_that_add_up_are_rounded_once():
    y = torch.randn(1, 27, 72).bfloat16()
    mine, eager, exact = (function(given, (9, 8), 3, padding=1).double()
                          for function, given in (
        (minicompile.compile(F.fold), y), (F.fold, y),
        (F.fold, y.double())))
    assert mine.equal(exact.bfloat16().double())
    assert not eager.equal(mine)


@pytest.mark.parametrize("by, axes", [
    (0, 0), (1, 1), (-1, 0), (5, 1), ((2, -3), (0, 1)), ((1, 1), (0, 0)),
    ((7, 4, 1), (1, 0, -1))], ids=str)
def test_what_rolls_comes_in_again(by, axes):
    for shape in ((4, 5), (1, 6), (3, 2, 2)):
        x = torch.randn(shape)
        graph = aten(lambda x: x.exp().roll(by, axes) + 1, x)
        assert not assert_right(graph, (x,)).externs


def test_a_large_window_is_an_operator():
    x = torch.randn(2, 3, 9, 8)
    for function in (lambda x: F.max_pool2d(x, 5).sin(),
                     lambda x: F.avg_pool2d(x, (3, 6)).sin()):
        assert len(assert_right(aten(function, x), (x,)).externs) == 1
