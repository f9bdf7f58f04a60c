"""The reference evaluator, and loops printed as Python that runs."""

import pytest
import torch

from minicompile.core.semantics.evaluate import (NAMESPACE, evaluate_kernel,
                                       evaluate_schedule)
from minicompile.core.index import Variable, index
from minicompile.core.loops import row_major
from minicompile.core.loops import (OPS, REDUCTIONS, SCANS, Buffer, Const,
                                    Kernel, Load, Loop, Op, Position,
                                    rewrite, walk)
from minicompile.core.schedule import Extern, Schedule, View

F32, CPU = torch.float32, torch.device("cpu")
ROWS, LENGTH = 5, 7
I, R = Variable("i0", index(ROWS)), Variable("r0", index(LENGTH))
AT = index(I) * LENGTH + R


def buffer(name, *shape, dtype=F32):
    sizes = tuple(map(index, shape))
    return Buffer(name, sizes, row_major(sizes), dtype, CPU)


def softmax():
    """Softmax over rows: two reductions, two loops over elements."""
    x, top, total = (Load(name, at, F32) for name, at in
                     (("x", AT), ("top", index(I)), ("total", index(I))))
    e = Load("e", AT, F32)
    shifted = Op("exp", (Op("sub", (x, top), F32),), F32)
    return Kernel("softmax", (I,), (R,), (
        Loop(buffer("top", ROWS), index(I), (I,), x, (R,), "max"),
        Loop(buffer("e", ROWS, LENGTH), AT, (I, R), shifted),
        Loop(buffer("total", ROWS), index(I), (I,), e, (R,), "sum"),
        Loop(buffer("out", ROWS, LENGTH), AT, (I, R),
             Op("div", (e, total), F32)),
    ), frozenset(["top", "e", "total"]))


def test_a_kernel_is_evaluated_as_pytorch_does():
    x = torch.randn(ROWS, LENGTH)
    storage = {"x": x.flatten()}
    evaluate_kernel(softmax(), storage)
    torch.testing.assert_close(storage["out"].view(x.shape), x.softmax(1))


def test_a_printed_kernel_runs_and_means_the_same(golden):
    x, out = torch.randn(ROWS, LENGTH), torch.empty(ROWS * LENGTH)
    text = str(softmax())
    golden("softmax.py", text)
    exec(text, names := dict(NAMESPACE))
    names["softmax"](x.flatten(), out)
    torch.testing.assert_close(out.view(x.shape), x.softmax(1))


def test_a_printed_operand_is_in_brackets_where_python_needs_them():
    out, found = buffer("out", ROWS, dtype=torch.int64), torch.empty(ROWS)
    value = Op("mul", (Position(index(I) + 4, torch.int64),
                       Const(-3, torch.int64)), torch.int64)
    kernel = Kernel("scaled", (I,), (), (
        Loop(out, index(I), (I,), value),))
    exec(str(kernel), names := dict(NAMESPACE))
    names["scaled"](found)
    assert found.tolist() == [-3 * (i + 4) for i in range(ROWS)]


def test_a_kernel_knows_what_it_reads_and_writes():
    assert softmax().read == ("x",)
    assert list(softmax().written) == ["out"]
    assert (softmax().rows, softmax().row_length) == (ROWS, LENGTH)


def test_a_schedule_calls_operators_between_kernels():
    whole = (index(ROWS), index(LENGTH))
    turned = View("out", whole[::-1], (index(1), index(LENGTH)), index(0),
                  F32)
    schedule = Schedule(
        (buffer("x", ROWS, LENGTH),),
        (softmax(), Extern(torch.ops.aten.mm.default,
                           (turned, View("x", whole, row_major(whole),
                                         index(0), F32)), {},
                           (buffer("product", LENGTH, LENGTH),))),
        (View("product", (index(LENGTH),) * 2,
              (index(LENGTH), index(1)), index(0), F32), 3, None),
        {})
    x = torch.randn(ROWS, LENGTH)
    got, three, nothing = evaluate_schedule(schedule, [x])
    torch.testing.assert_close(got, x.softmax(1).T @ x)
    assert three == 3 and nothing is None
    assert "aten.mm.default(as_strided(out, (7, 5), (1, 7), 0)" in str(
        schedule)


def one_loop(value, dtype=F32, size=6, **reduction):
    """What the loop `out[i] = value` stores, for x = -3 … 2."""
    i = Variable("i", index(size))
    loop = Loop(buffer("out", size, dtype=dtype), index(i), (i,),
                value(index(i)), **reduction)
    storage = {"x": torch.arange(6.0) - 3}
    evaluate_kernel(Kernel("k", (i,), (), (loop,)), storage)
    return storage["out"]


def test_nothing_is_read_where_a_mask_is_false():
    def padded(i):
        inside = Op("lt", (Position(i, torch.int64), Const(6, torch.int64)),
                    torch.bool)
        return Load("x", i, F32, inside)
    assert one_loop(padded, size=8).tolist() == [-3, -2, -1, 0, 1, 2, 0, 0]


def test_storing_rounds_to_the_buffer():
    third = one_loop(lambda i: Op("div", (Load("x", i, F32),
                                          Const(3, F32)), F32),
                     dtype=torch.bfloat16)
    assert third.dtype == torch.bfloat16
    assert third.equal(((torch.arange(6.0) - 3) / 3).bfloat16())


def test_a_shared_node_is_visited_and_printed_once():
    node = Load("x", index(I), F32)
    for _ in range(40):  # as a tree this has 2 ** 40 nodes
        node = Op("add", (node, node), F32)
    assert sum(1 for _ in walk(node)) == 41
    loop = Loop(buffer("out", ROWS), index(I), (I,), node)
    assert len(str(loop).splitlines()) == 42


def test_rewrite_changes_nodes_and_keeps_sharing():
    load = Load("x", index(I), F32)
    twice = Op("add", (load, load), F32)
    renamed = rewrite(twice, lambda node: Load("y", node.index, F32)
                      if isinstance(node, Load) else node)
    assert renamed.operands[0] is renamed.operands[1]
    assert renamed.operands[0].buffer == "y" and load.buffer == "x"
    assert rewrite(twice, lambda node: node) is twice


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_agree_with_pytorch(reduction):
    i, r = Variable("i", index(2)), Variable("r", index(3))
    x = torch.tensor([3.0, 1.0, 2.0, 0.5, 0.5, 0.0])
    kind = {"any": torch.bool, "all": torch.bool}
    scan = reduction in SCANS
    loop = Loop(buffer("out", *(2, 3)[:1 + scan],
                       dtype=kind.get(reduction, F32)),
                index(i) * 3 + r if scan else index(i), (i,),
                Load("x", index(i) * 3 + r, F32), (r,), reduction)
    storage = {"x": x}
    evaluate_kernel(Kernel("k", (i,), (r,), (loop,)), storage)
    name = {"max": "amax", "min": "amin"}.get(reduction, reduction)
    assert storage["out"].equal(
        getattr(x.view(2, 3), name)(1).reshape(-1))


def test_every_operation_has_a_meaning():
    for name, function in OPS.items():
        assert callable(function), name
