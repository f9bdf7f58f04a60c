"""Additions to elements that numbers name, in loops that add to memory.

The Triton kernels run on a GPU, or with TRITON_INTERPRET=1.
"""

import pytest
import torch

import minicompile
from minicompile import emit, fusion
from minicompile.core.options import Options
from minicompile.core.schedule import Extern
from minicompile.emit import cpp
from minicompile.fusion.rules import indexing
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.fusion.graphs import as_cuda, assert_right, aten
from tests.judge import judged, near
from tests.same import assert_same


def table(*shape):
    return torch.randn(*shape or (6, 5, 8))


def places(*shape, size=6):
    return torch.randint(size, shape)


def messages(x, a, b):
    """What a graph's edges carry from one node to another, added up."""
    sent = x.index_select(0, a) * 2
    return torch.zeros_like(x).scatter_add(
        0, b[:, None, None].expand(sent.shape), sent)


def put(x, at, y):
    return torch.ops.aten.index_put(x, at, y, True)


def embedding_gradient(y, p, rows, padding=-1):
    return torch.ops.aten.embedding_dense_backward(
        y, p, rows, padding, False)


#: name -> (a function, what makes its arguments).
PROGRAMS = {
    "rows": (lambda x, p, y: x.scatter_add(0, p, y), lambda: (
        table(), places(9, 5, 8), table(9, 5, 8))),
    "the last dimension": (lambda x, p, y: x.scatter_add(-1, p, y), lambda: (
        table(), places(6, 5, 3, size=8), table(6, 5, 3))),
    "fewer places than numbers": (
        lambda x, p, y: x.scatter_add(1, p, y.exp()), lambda: (
            table(), places(2, 3, 4, size=5), table(6, 7, 8))),
    "a vector": (lambda x, p, y: x.scatter_add(0, p, y).relu(), lambda: (
        table(7), places(50, size=7), table(50))),
    "one place": (lambda x, p, y: x.scatter_add(0, p, y), lambda: (
        table(1), places(20, size=1), table(20))),
    "messages": (messages, lambda: (table(), places(30), places(30))),
    "a transpose": (
        lambda x, p, y: x.mT.scatter_add(0, p, y.mT).exp(), lambda: (
            table(), places(6, 8, 5), table())),
    "twice": (
        lambda x, p, y: x.scatter_add(0, p, y).scatter_add(1, p % 5, y),
        lambda: (table(), places(6, 5, 8), table())),
    "added and returned": (
        lambda x, p, y: ((z := x * 2), z.scatter_add(0, p, y), z + 1),
        lambda: (table(), places(6, 5, 8), table())),
    "read where it was added": (
        lambda x, p, y: (x.scatter_add(0, p, y) * 2).gather(0, p[:1]) + 1,
        lambda: (table(), places(6, 5, 8), table())),
    "in place": (lambda x, p, y: x.clone().scatter_add_(0, p, y + x),
                 lambda: (table(), places(6, 5, 8), table())),
    "rows of a table": (lambda x, p, y: put(x, [p], y), lambda: (
        table(), places(9), table(9, 5, 8))),
    "columns": (lambda x, p, y: put(x, [None, p - 3], y), lambda: (
        table(), places(2, 3, size=5), table(6, 2, 3, 8))),
    "elements": (lambda x, p, y: put(x, [p, p[:, None] % 5], y.sin()),
                 lambda: (table(), places(7), table(7, 7, 8))),
    "apart": (lambda x, p, y: put(x, [p, None, p], y), lambda: (
        table(), places(9), table(9, 5))),
    "one number": (lambda x, p, y: put(x, [p], y), lambda: (
        table(), places(9), table(1))),
    "one of them": (lambda x, p, y: put(x, [p[0]], y), lambda: (
        table(), places(9), table(5, 8))),
    "all inside": (lambda x, p, y: torch.ops.aten._unsafe_index_put(
        x * 2, [p], y, True) + 1, lambda: (
            table(), places(9), table(9, 5, 8))),
    "an embedding": (lambda p, y: embedding_gradient(y.sin(), p, 6), lambda: (
        places(3, 7), table(3, 7, 8))),
    "padding": (lambda p, y: embedding_gradient(y, p, 6, 2), lambda: (
        places(90), table(90, 8))),
    "a gradient": (
        lambda x, p: torch.ops.aten.scatter_add(
            torch.zeros_like(x), 1, p, x.gather(1, p).cos()),
        lambda: (table(), places(6, 5, 8, size=5))),
}


def added(schedule):
    """How many loops add to memory."""
    return sum(loop.adds for kernel in schedule.kernels
               for loop in kernel.loops)


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_that_add_mean_the_same(name):
    function, inputs = PROGRAMS[name]
    args = inputs()
    schedule = assert_right(aten(function, *args), args)
    assert added(schedule) == 1 + (name == "twice")
    assert {str(call.target) for call in schedule.externs} <= {
        "aten._assert_async.msg", "aten.gather.default"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_processor_adds_in_the_order_of_the_numbers(name, dtype):
    """One thread does, so each run gives the same."""
    function, inputs = PROGRAMS[name]
    args = [arg.to(dtype) if arg.is_floating_point() else arg
            for arg in inputs()]
    graph = aten(function, *args)
    program = emit.emit(fusion.fuse(graph), Options())
    assert program.source.count("] += ") == 1 + (name == "twice")
    found = program.run(list(args))
    judged(near, found, graph(*args), graph, *args)
    torch.testing.assert_close(program.run(list(args)), found, rtol=0, atol=0)


def test_only_places_that_lie_apart_are_a_vector():
    """Of two equal ones a vector would lose one."""
    def adding(function, *args):
        text, = (text for text in map(cpp.in_cpp, fusion.fuse(aten(
            function, *args)).kernels) if "] += " in text)
        return text
    x, y, p = table(600, 64), table(9000, 64), places(9000, size=600)
    rows = adding(lambda x, y, p: x.index_add(0, p, y), x, y, p)
    assert "simd" in rows and "parallel" not in rows
    for text in (
            adding(lambda x, y, p: x.scatter_add(0, p, y), x[:, 0], y[:, 0],
                   p),
            adding(lambda x, y, p: x.index_add(1, p % 64, y.mT[:, :600].mT),
                   x, y, p[:64]),
            adding(lambda x, y, p: put(x, [p[:64] % 3, p[:64] % 2], y[:64, 0]),
                   x, y, p[:64])):
        assert "simd" not in text and "parallel" not in text


@pytest.mark.parametrize("alpha", [1, -2.5])
@pytest.mark.parametrize("axis", [0, -1])
def test_slices_times_a_number_are_added(axis, alpha):
    def function(x, p, y):
        return x.sin().index_add(axis, p, y, alpha=alpha).cos()
    y = table(6, 5, 9) if axis else table(9, 5, 8)
    compiled = assert_same(function, table().requires_grad_(), places(9),
                           y.requires_grad_())
    with pytest.raises((IndexError, RuntimeError)):
        compiled(table(), places(9) + 6, y)


def slice_copied(x, at, y):
    return x.index_copy(1, at, y * 2)


def slice_put(x, at, y):
    return torch.ops.aten.index_put(x, [None, at - 5], y * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16,
                                   torch.int64], ids=str)
@pytest.mark.parametrize("function", [slice_copied, slice_put])
def test_a_gpus_kernel_replaces_the_slice_at_a_place(
        function, dtype, monkeypatch):
    """One place; of several, PyTorch's kernel runs."""
    monkeypatch.setattr(indexing, "STOPS", {"cpu", "cuda"})
    args = [each.to(DEVICE if RUNS else "cpu") for each in (
        table().to(dtype), places(1, size=5), table(6, 1, 8).to(dtype))]
    if RUNS:
        run = minicompile.compile(function, options={
            "cpu_backend": "triton"})
        judged(near, run(*args), function(*args), function, *args)
    args = [each.cpu() for each in args]
    assert not assert_right(aten(function, *args), args).externs
    many = args[0], torch.tensor([0, 1]), args[2].repeat(1, 2, 1)
    assert assert_right(aten(function, *many), many).externs


@pytest.mark.gpu
def test_a_caches_slice_is_written_where_it_lies():
    """By the kernel that makes it; the cache is not copied."""
    def function(cache, at, x):
        cache.index_copy_(2, at, x * 2)
        return cache.sum(-1)

    def made():
        torch.manual_seed(0)
        return (torch.randn(1, 8, 64, 16, device="cuda"),
                torch.tensor([5], device="cuda"),
                torch.randn(1, 8, 1, 16, device="cuda"))

    run = minicompile.compile(function)
    mine, theirs = made(), made()
    torch.testing.assert_close(run(*mine), function(*theirs))
    assert mine[0].equal(theirs[0])
    schedule = run.cache.entries[0].lowered.schedules["forward"]
    writing, summing = schedule.steps
    assert [each.into for each in writing.written.values()] == [
        schedule.inputs[0].name]


@pytest.mark.skipif(not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_add(name):
    function, inputs = PROGRAMS[name]
    args = [arg.to(DEVICE) for arg in inputs()]
    graph = aten(function, *args)
    program = emit.emit(fusion.fuse(graph), Options(cpu_backend="triton"))
    assert "tl.atomic_add(" in program.source
    judged(near, program.run(list(args)), graph(*args), graph, *args)


@pytest.mark.skipif(not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1")
def test_a_place_outside_raises():
    def f(x, p, y):
        return x.scatter_add(0, p, y)
    if DEVICE == "cuda":
        pytest.skip("a GPU stops at once")
    run = minicompile.compile(f, options={"cpu_backend": "triton"})
    x, y, right = table(5), table(3), torch.tensor([0, 4, 0])
    for _ in range(2):
        torch.testing.assert_close(run(x, right, y), f(x, right, y))
        for far in (5, -1, 2 ** 40):
            with pytest.raises(RuntimeError):
                run(x, torch.tensor([0, far, 1]), y)


def test_places_in_a_row_are_no_reason_to_add():
    def f(x, y):
        places = torch.arange(3)[:, None].expand(3, 8)
        return x.scatter_add(0, places, y), x.scatter_add(
            0, places * 0, y), x.scatter_add(0, 2 - places, y)
    args = table(3, 8), table(3, 8)
    assert added(assert_right(aten(f, *args), args)) < 3


def externs(dtype=torch.float32):
    """The operators called for a scatter_add on a GPU."""
    x, y = (torch.empty(size, 8, dtype=dtype) for size in (100, 50))
    graph = as_cuda(aten(lambda x, p, y: x.scatter_add(0, p, y), x, places(
        50, 8), y))
    return [str(each.target) for each in fusion.fuse(graph).steps
            if isinstance(each, Extern)]


def test_where_an_order_is_asked_for_pytorch_adds():
    theirs = ["aten.scatter_add.default"]
    assert externs() == []
    assert externs(torch.bfloat16) == theirs
    torch.use_deterministic_algorithms(True)
    try:
        assert externs() == theirs
    finally:
        torch.use_deterministic_algorithms(False)


def test_places_that_repeat_are_checked_once():
    x, p, y = table(6, 8), places(40), table(40, 8)
    schedule = fusion.fuse(aten(lambda x, p, y: x.scatter_add(
        0, p[:, None].expand(40, 8), y), x, p, y))
    check, *_ = (loop for kernel in schedule.kernels for loop
                 in kernel.loops if loop.reduction == "all")
    assert all(variable.size != 8 and variable.size != 320
               for variable in (*check.ranges, *check.reduced))
