"""Writes to inputs: stored by kernels, and never before they may be."""

from __future__ import annotations

import random

import pytest
import torch
from torch import fx
from torch.nn import functional as F

import minicompile
from minicompile.core.schedule import Extern
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.fusion import fuse
from minicompile.report.views.stages import moved
from tests.same import assert_same


def schedule_of(function, *args):
    run = minicompile.compile(function)
    run(*args)
    [entry] = run.cache.entries
    return entry.lowered.schedules["forward"]


def adamw(p, g, m, v):
    with torch.no_grad():
        p.mul_(0.99)
        m.lerp_(g, 0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def test_an_optimizer_moves_each_element_once():
    """Reads parameter, gradient and two moments; writes all but one."""
    args = [torch.rand(1000) for _ in range(4)]
    schedule = schedule_of(adamw, *args)
    assert len(schedule.kernels) == 1 and not schedule.externs
    assert moved(schedule) == 7 * 1000


@pytest.mark.parametrize("foreach", [False, True])
def test_pytorchs_adamw_moves_no_more(foreach):
    parameters = [torch.nn.Parameter(torch.rand(1000)) for _ in range(3)]
    for each in parameters:
        each.grad = torch.rand_like(each)
    optimizer = torch.optim.AdamW(parameters, foreach=foreach)
    optimizer.step()
    schedule = schedule_of(lambda: optimizer.step())
    assert not schedule.externs
    steps = moved(schedule) - 3 * 7 * 1000  # the counters of steps
    assert 2 * 3 <= steps < 10 * 3


def test_what_cannot_be_stored_in_place_is_copied_at_the_end():
    def function(x, y):
        x.copy_(y.flip(0) + x.flip(0))

    *_, last = schedule_of(function, torch.rand(4), torch.rand(4)).steps
    assert isinstance(last, Extern) and "copy_" in str(last.target)


def stored(schedule) -> list[str]:
    return sorted(buffer.into for kernel in schedule.kernels
                  for buffer in kernel.written.values() if buffer.into)


def test_of_a_swap_one_side_is_stored_in_place():
    def function(x, y):
        z = x.clone()
        x.copy_(y)
        y.copy_(z)

    args = torch.rand(4), torch.rand(4)
    assert len(stored(schedule_of(function, *args))) <= 1
    assert_same(function, *args)


def test_operators_write_over_an_input():
    """A cache gets some rows, a table sums: neither is copied."""
    def function(cache, table, at, x):
        cache.index_copy_(0, at, x * 2)
        table.index_add_(0, at, x * 3)
        return cache.sum() + table.sum()

    args = (torch.rand(9, 4), torch.rand(9, 4), torch.tensor([5, 1, 7]),
            torch.rand(3, 4))
    assert_same(function, *args)
    schedule = schedule_of(function, *args)
    assert [str(step.target) for step in schedule.externs] == [
        "aten._assert_async.msg", "aten.index_copy_.default"]
    [table] = stored(schedule)
    assert table == schedule.inputs[1].name


def test_one_value_for_two_inputs():
    """It lies in the memory of one; the other gets a copy."""
    aten, graph, args = torch.ops.aten, fx.Graph(), [
        torch.zeros(3), torch.zeros(3), torch.arange(3.)]
    nodes = [graph.placeholder(name) for name in "xyz"]
    made = graph.call_function(aten.mul.Tensor, (nodes[2], 2))
    for node, value in zip([*nodes, made], [*args, args[2]]):
        node.meta["val"] = value
    for node in nodes[:2]:
        graph.call_function(aten.copy_.default, (node, made)).meta[
            "val"] = args[0]
    graph.output(())
    schedule = fuse(fx.GraphModule({}, graph))
    assert len(stored(schedule)) == len(schedule.externs) == 1
    evaluate_schedule(schedule, args)
    assert args[0].tolist() == args[1].tolist() == [0, 2, 4]


def product_between(x, w):
    """The old value is read by a kernel after a matmul."""
    old = x.cos()
    y = (x + 1) @ w
    x.add_(1)
    return y * old, x * 2


def old_and_new(x):
    y = x * 2
    x.sin_()
    return y, x + y


def written_and_returned(x):
    return x.mul_(3)


def returned_beside(x):
    x.mul_(3)
    return x, x.clone(), x[1:]


def view_is_written(x):
    x[1:].mul_(2)
    x.t().add_(1)
    return x.sum()


def turned(x):
    x.copy_(x.t() + 1)


def shifted(x):
    x.copy_(x.roll(1, 0))


def by_rows(x):
    x.copy_(x.softmax(-1))
    return x.sum(-1)


def by_columns(x):
    x.sub_(x.mean(0))
    return x.std(0)


def from_another(x, y):
    x.copy_(y)
    y.add_(x)
    return x - y


def by_an_operator(x, y):
    x.copy_(torch.linalg.inv(y))
    y.copy_(torch.cumsum(x, 0))
    return x @ y


def twice(x):
    x.add_(1)
    x.mul_(x)
    return x.exp()


def converted(x):
    x.copy_(x.double().sin())
    return x.half()


def row_into_all(x, y):
    y[0] = 7
    x.copy_(y[0])
    return x.amax()


ALONE = [old_and_new, written_and_returned, returned_beside,
         view_is_written, turned, shifted, by_rows, by_columns, twice,
         converted]
PAIRS = [product_between, from_another, by_an_operator, row_into_all]
LAYOUTS = {
    "rows": lambda: torch.rand(6, 6) + torch.eye(6),
    "columns": lambda: (torch.rand(6, 6) + torch.eye(6)).t(),
    "window": lambda: torch.rand(8, 9)[1:7, 2:8] + torch.eye(6),
    "gaps": lambda: (torch.rand(12, 6) + torch.eye(6).repeat(2, 1))[::2],
}


@pytest.mark.slow(sample=25)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [*ALONE, *PAIRS])
def test_as_in_eager(function, layout):
    make = LAYOUTS[layout]
    args = [make() for _ in range(1 + (function in PAIRS))]
    assert_same(function, *args, fallback=None)
    assert_same(function, *args, dynamic=True, fallback=None)


def test_running_statistics():
    assert_same(lambda x, mean, var: F.batch_norm(
        x, mean, var, training=True), torch.rand(4, 3, 5),
        torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("same", [
    lambda x: (x, x), lambda x: (x, x.view(-1)), lambda x: (x[:2], x[1:3]),
    lambda x: (x[0].expand(3, 4), x)])
def test_inputs_that_share_memory(same):
    def function(x, y):
        y.mul_(2)
        return x + 1, y.cos()

    def make():
        return same(torch.arange(12.).view(3, 4))

    run = minicompile.compile(function)
    one, two = make(), make()
    for got, want in zip((*run(*one), *one), (*function(*two), *two)):
        torch.testing.assert_close(got, want)


def test_autograd_notices_the_write():
    run = minicompile.compile(lambda x: x.add_(1))
    x, w = torch.rand(4), torch.rand(4, requires_grad=True)
    y = (x * w).sum()
    run(x)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


def test_a_tensor_of_inference_mode_is_written_where_eager_writes_it():
    run = minicompile.compile(lambda x: x.add_(1))
    with torch.inference_mode():
        x = torch.zeros(3)
        run(x)
        assert x.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="inference tensor"):
        run(x)


STEPS = [
    lambda a, b: a.add_(b), lambda a, b: a.mul_(0.5),
    lambda a, b: a.copy_(b), lambda a, b: a.copy_(b.t()),
    lambda a, b: a.sub_(b.mean(0)), lambda a, b: a[1:].add_(b[:-1]),
    lambda a, b: a[0].copy_(b[1]), lambda a, b: a.copy_((a @ b).sin()),
    lambda a, b: a.t().add_(1), lambda a, b: a.copy_(b.softmax(0)),
    lambda a, b: a.copy_(b.flip(1)), lambda a, b: a.clamp_(-2, 2),
    lambda a, b: a.index_copy_(0, b[:, 0].argsort(), b),
    lambda a, b: a.index_add_(0, b.argmax(1), b.cos()),
    lambda a, b: a.index_put_((b.argmax(1)[:1],), b[1] * 2),
]


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("seed", range(60))
def test_random_writes(seed):
    choose = random.Random(seed)
    steps = [(choose.choice(STEPS), *choose.sample(range(4), 2))
             for _ in range(choose.randint(2, 7))]
    returned = choose.sample(range(4), 2)

    def function(w, x, y, z):
        given = [w, x, y, z * 2]
        for step, into, other in steps:
            step(given[into], given[other])
        return [given[k] * 2 for k in returned], given[returned[0]]

    assert_same(function, *(torch.rand(4, 4) for _ in range(4)))
