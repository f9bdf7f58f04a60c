"""Operators that write, reached as methods, functions and overloads."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx
from torch.nn import functional as F

import minicompile
from minicompile import split
from minicompile.errors import BackendError
from tests.same import assert_same, close

aten = torch.ops.aten
places = torch.tensor([[0, 1, 1], [1, 0, 1]])
ROW = torch.tensor([0.5, 2.0])
BOX = torch.arange(6.).view(3, 2) / 7


def rows(x):
    return x.sin().expand(3, 2)


def keeping_strides(write):
    """A write to a transposed tensor, then one that sees its strides."""
    def function(x):
        y = x.sin().t()
        write(y)
        z = y.t().reshape(-1)
        z.add_(1)
        return y, z
    return function


STRIDES = {
    "method": lambda y: y.scatter_(0, places, y * 2),
    "packet": lambda y: aten.scatter_(y, 0, places, y * 2),
    "overload": lambda y: aten.scatter_.src(y, 0, places, y * 2),
    "value": lambda y: aten.scatter_.value(y, 0, places, 2.),
    "list": lambda y: aten._foreach_add_.Scalar([y], 1.),
    "index_put_": lambda y: aten.index_put_.default(
        y, [torch.tensor([1])], torch.ones(3)),
    "masked_fill_": lambda y: aten.masked_fill_.Scalar(y, y > 0, 2.),
}


@pytest.mark.parametrize("name", STRIDES)
def test_a_write_keeps_the_strides(name):
    assert_same(keeping_strides(STRIDES[name]), BOX, backend="split")


SEVERAL = {
    "method": lambda x: rows(x).add_(1),
    "packet": lambda x: aten.add_(rows(x), 1),
    "overload": lambda x: aten.add_.Tensor(rows(x), 1),
    "scalar": lambda x: aten.mul_.Scalar(rows(x), 2.),
    "operator": lambda x: operator.iadd(rows(x), 1),
    "unary": lambda x: aten.sin_.default(rows(x)),
    "copy": lambda x: aten.copy_.default(rows(x), torch.ones(3, 2)),
    "zeros": lambda x: aten.zero_.default(rows(x)),
    "mask": lambda x: aten.masked_fill_.Scalar(rows(x), rows(x) > 0, 1.),
    "item": lambda x: operator.setitem(rows(x), 0, 1.),
    "list": lambda x: aten._foreach_add_.Scalar([rows(x)], 1.),
    "inplace": lambda x: F.relu(rows(x), inplace=True),
    "window": lambda x: aten.add_.Tensor(x.cos().unfold(0, 2, 1), 1),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.filterwarnings("ignore")
def test_several_elements_in_one_place_are_eagers_business(name):
    for leaf in (ROW, ROW.clone().requires_grad_()):
        assert_same(SEVERAL[name], leaf, backend="split", fallback=True,
                    backward=False)


def shifted(write):
    def function(x):
        y = x * 1
        write(y)
        return y
    return function


PARTS = {
    "method": lambda y: y[1:].add_(y[:-1]),
    "overload": lambda y: aten.add_.Tensor(y[1:], y[:-1]),
    "copy": lambda y: y[1:].copy_(y[:-1]),
    "item": lambda y: operator.setitem(y, slice(1, None), y[:-1]),
    "transposed": lambda y: y[:2].add_(y[:2].t()),
}
APART = {
    "rows": lambda y: operator.setitem(y, 0, y[1]),
    "columns": lambda y: y[:, 0].add_(y[:, 1]),
    "itself": lambda y: y[1:].mul_(y[1:]),
    "halves": lambda y: y[:1].add_(y[2:]),
}


@pytest.mark.parametrize("name", PARTS)
def test_reading_a_part_of_what_is_written_raises(name):
    function = shifted(PARTS[name])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        function(BOX)
    assert_same(function, BOX, backend="split", fallback=True)


@pytest.mark.parametrize("name", APART)
def test_reading_other_parts_of_the_memory_is_compiled(name):
    assert_same(shifted(APART[name]), BOX, backend="split")


@pytest.mark.parametrize("write", [
    lambda x: aten.mul_.Tensor(x, 1.5), lambda x: x.multiply_(1.5)])
def test_a_product_that_does_not_fit_raises(write):
    numbers = torch.ones(3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="can't be cast"):
        minicompile.compile(write, backend="split")(numbers)


def test_what_changes_a_tensor_not_its_elements_is_seen():
    def function(x):
        return aten.detach_.default(x * 2) * 3

    x = ROW.clone().requires_grad_()
    found = minicompile.compile(function, backend="split")(x)
    close(found, function(x))
    assert not found.requires_grad


def test_an_empty_input_that_grows_is_refused():
    graph = fx.symbolic_trace(lambda x, empty: torch.sin(x, out=empty))
    with pytest.raises(BackendError, match="changes its shape"):
        split.record(graph, [BOX, torch.empty(0)])


def test_running_statistics_of_an_overload_are_written():
    assert_same(lambda x, mean, var: aten.native_batch_norm.default(
        x, None, None, mean, var, True, 0.1, 1e-5)[0], BOX,
        torch.zeros(2), torch.ones(2), backend="split")


def test_sizes_that_vary_are_compared():
    def function(x):
        y = x * 1
        y.mul_(y.detach()).view(-1)[1:].add_(2)
        return y

    run = minicompile.compile(function, backend="split", dynamic=True)
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        close(run(x), function(x))
    assert not run.stats().fallbacks


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_gradient_written_in_does_not_reach_what_was_read_before(backend):
    def function(c, w):
        before = c.roll(1, 0)
        c.copy_(w)
        return before, c * 2

    compiled = minicompile.compile(function, backend=backend)
    for run in function, compiled:
        c, w = torch.ones(3), torch.randn(3, requires_grad=True)
        before, after = run(c, w)
        assert [t.requires_grad for t in (before, after, c)] == [
            False, True, True], run
        after.sum().backward()
        torch.testing.assert_close(w.grad, torch.full((3,), 2.))


MASK = torch.tensor([True, False, True])
MASKED = {
    "number": lambda y, v: operator.setitem(y, y > 0.5, 2),
    "number of rows": lambda y, v: operator.setitem(y, MASK, -0.5),
    "tensor of one": lambda y, v: operator.setitem(y, MASK, v[0]),
    "row": lambda y, v: operator.setitem(y, MASK, v),
    "row, once": lambda y, v: operator.setitem(y, MASK, v.view(1, 2)),
    "ones before": lambda y, v: operator.setitem(
        y, y > 0.5, v[:1].view(1)),
    "transposed": lambda y, v: operator.setitem(
        y.t(), MASK.new_tensor([False, True]), v[1:]),
    "view": lambda y, v: operator.setitem(y[1:], MASK[1:], v),
    "none": lambda y, v: operator.setitem(y, y > 9, v[:1]),
}
OTHERS = {
    "element of itself": lambda y, v: operator.setitem(y, MASK, y[0, 0]),
    "rows": lambda y, v: operator.setitem(y, MASK, torch.stack([v, -v])),
    "pair": lambda y, v: operator.setitem(y, (slice(None), v > 1), 3.),
    "zero-dim": lambda y, v: operator.setitem(y, MASK[0], 3.),
}


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("name", MASKED | OTHERS)
def test_a_write_under_a_mask_fuses_if_all_get_the_same(name, backend):
    def function(x, v):
        y = x * 1
        (MASKED | OTHERS)[name](y, v)
        return y.sin()

    given = BOX.clone().requires_grad_(), ROW.clone().requires_grad_()
    assert_same(function, *given, backend=backend,
                fallback=name not in MASKED)
    if name in MASKED and backend == "fused":
        assert not minicompile.explain(function)(*given).externs


@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
def test_rows_written_under_a_mask_have_gradients(rest):
    """As a mixture of experts writes what each computes of its rows."""
    def function(x, mask, rows):
        y = x * 1
        y[mask] = rows * 2
        return y.sin()
    compiled = minicompile.compile(function, dynamic=True, fullgraph=True)
    for count in (2, 3, 5, 0):
        mask = torch.arange(7) % 6 < count
        x, rows = [torch.rand(n, *rest, requires_grad=True)
                   for n in (7, int(mask.sum()))]
        (got, *gradients), (want, *wanted) = [
            (result, *torch.autograd.grad(result.sum(), (x, rows)))
            for run in (compiled, function)
            for result in [run(x, mask, rows)]]
        close([got.detach(), *gradients], [want.detach(), *wanted])
    assert compiled.stats().kernels and not compiled.stats().fallbacks
    for fn in (function, compiled):
        with pytest.raises(RuntimeError, match="shape mismatch"):
            fn(x, mask, x[:3])


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.bfloat16])
def test_a_write_under_a_mask_keeps_the_dtype(dtype):
    def function(x):
        x[MASK] = 1.5
        return x.clone()
    assert_same(function, BOX.to(dtype), backward=False)


@pytest.mark.parametrize("mask, given", [
    (torch.ones(1, 2, dtype=torch.bool), 0.5), (MASK[:1], ROW),
    (MASK.view(3, 1), ROW[:1]), (MASK, BOX), (MASK, ROW.double())])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_mask_or_row_that_does_not_fit_raises(mask, given, dynamic):
    def function(x):
        y = x * 1
        y[mask] = given
        return y
    with pytest.raises(Exception) as eager:
        function(BOX)
    with pytest.raises(eager.type):
        minicompile.compile(function, dynamic=dynamic)(BOX)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_diagonal_is_filled_wherever_the_memory_starts(dynamic):
    def filled(x):
        return x.fill_diagonal_(7) + 1
    compiled = minicompile.compile(filled, dynamic=dynamic)
    for start in (0, 3, 1):
        got, want = torch.zeros(2, 5, 4)
        close(compiled(got.view(-1)[start:start + 16].view(4, 4)), filled(
            want.view(-1)[start:start + 16].view(4, 4)))
        close(got, want)
