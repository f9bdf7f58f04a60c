"""Programs: what is in the file, what `call` does."""

from __future__ import annotations

import re
import weakref

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from chapters._book.running import block, inputs
from minicompile import emit, split
from minicompile.core.errors import BackendError, Where
from minicompile.core.index import index
from minicompile.core.loops import Buffer, Kernel, Load, Loop, Op
from minicompile.core.schedule import Extern, Schedule, View
from minicompile.core.options import Options
from minicompile.emit import target
from minicompile.fusion import fuse
from tests.emit.build import CPU, buffer, variables

aten = torch.ops.aten
F32 = torch.float32


def graph_of(function, *args):
    """The functional ATen graph of a function of tensors."""
    graph = fx.Graph()
    given = tuple(graph.placeholder(f"x{k}") for k in range(len(args)))
    graph.output((graph.call_function(function, given),))
    with torch.no_grad():
        return split.record(fx.GraphModule({}, graph), args).graph


def program_of(function, *args) -> emit.Program:
    """A function of tensors as a program."""
    return emit.emit(fuse(graph_of(function, *args)))


def view(of: Buffer, shape=None, stride=None, offset=0) -> View:
    """A buffer as it is, or seen otherwise."""
    return View(of.name, of.shape if shape is None else tuple(
        map(index, shape)), of.stride if stride is None else tuple(
        map(index, stride)), index(offset), of.dtype)


def schedule(given, steps, outputs, constants=None) -> Schedule:
    """A schedule made by hand."""
    return Schedule(tuple(given), tuple(steps), tuple(outputs),
                    constants or {})


def doubled(source: Buffer, out: Buffer, name="kernel",
            where=None) -> Kernel:
    """`out = source + source`."""
    (i,) = variables("i", int(out.elements))
    value = Load(source.name, index(i), source.dtype)
    value = Op("add", (value, value), source.dtype)
    return Kernel(name, (i,), (), (Loop(
        out, index(i), (i,), value, where=where, origin="add_7"),))


def test_the_running_function(golden):
    x, w = inputs(grad=False)
    program = program_of(block, x, w)
    golden("running.py.txt", program.source)
    (result,) = program.run([x, w])
    torch.testing.assert_close(result, block(x, w))


@pytest.mark.parametrize("function, shapes", [
    (lambda x: torch.softmax(x, 0), [(300, 70)]),
    (lambda x: x.t().contiguous() + 1, [(64, 96)]),
    (lambda x: x.sum() * 2, [(500, 300)]),
    (lambda x: F.layer_norm(x, x.shape[1:]).amax(1), [(8, 4, 9)]),
    (lambda x, y: torch.cat([x, y * 2], 1).sin(), [(5, 3), (5, 4)]),
    (lambda x, y: (x @ y).relu().sum(0), [(6, 7), (7, 8)]),
    (lambda x: F.max_pool2d(x, 2) * 2, [(2, 3, 8, 8)]),
    (lambda x: x[:, 1::2].flip(1).cumsum(0) - 1, [(5, 8)]),
    (lambda x: x * 2, [(0, 4)]), (lambda x: x.sum(1), [(4, 0)]),
    (lambda x: x.exp(), [()]), (lambda x: x.mean(), [()])])
def test_programs_compute_what_eager_does(function, shapes):
    args = [torch.randn(shape) for shape in shapes]
    (result,) = program_of(function, *args).run(list(args))
    torch.testing.assert_close(result, function(*args), check_stride=True)


def test_inputs_die_at_their_last_use():
    (program, a) = program_of(
        lambda x, y: (x @ y).sin() @ y, *(torch.eye(3),) * 2), torch.eye(3)
    given = [torch.eye(3), a]
    gone = weakref.ref(given[0])
    assert len(program.run(given)) == 1 and given == []
    assert gone() is None
    assert "del " in program.source


def test_equal_kernels_are_printed_once():
    def layers(x, w):
        for _ in range(3):
            x = torch.tanh(x @ w)
        return x

    program = program_of(layers, torch.randn(4, 4), torch.randn(4, 4))
    assert len(program.kernels) == 3
    assert program.source.count('extern "C"') == 1
    other = program_of(lambda x, w: torch.tanh(x @ w).sin() @ w,
                       torch.randn(4, 4), torch.randn(4, 4))
    assert other.source.count('extern "C"') == len(other.kernels)


def test_the_same_schedule_gives_the_same_file():
    def make():
        return program_of(lambda x: x.sin().sum(0), torch.randn(9, 9))
    assert make().path == make().path


def test_outputs_can_be_views_numbers_and_nothing():
    x, y = buffer("x", 4, 6), buffer("y", 4, 6)
    made = emit.emit(schedule([x, None], [doubled(x, y)], [
        view(y), view(y, (6, 4), (1, 6)), view(y, (3,), (1,), 5), 7, None,
        view(x), 1.5, view(x, (4,), (6,), 2)]))
    base = torch.randn(40)
    given = base[3:27].view(4, 6)
    got = made.run([given, "no tensor"])
    want = given * 2
    torch.testing.assert_close(got[0], want)
    torch.testing.assert_close(got[1], want.t())
    torch.testing.assert_close(got[2], want.flatten()[5:8])
    assert got[3:5] == (7, None) and got[5] is given and got[6] == 1.5
    torch.testing.assert_close(got[7], given[:, 2])


def test_arguments_of_operators_of_every_kind():
    x = buffer("x", 4, 6)
    y, z, n = buffer("y", 4, 6, dtype=torch.float64), buffer(
        "z", 4, 6), buffer("n", 2, 6)
    c = buffer("c", 4, 6, dtype=torch.complex64)
    steps = [
        Extern(aten._to_copy.default, (view(x),),
               {"dtype": torch.float64, "device": CPU,
                "memory_format": torch.contiguous_format}, (y,)),
        Extern(aten.clamp.default, (view(x), float("-inf"), 0.25), {}, (z,)),
        Extern(aten.mul.Scalar, (view(x), complex(-0.0, float("inf"))), {},
               (c,)),
        Extern(aten.split_with_sizes.default, (view(x), [2, 2]), {},
               (n, None))]
    program = emit.emit(schedule([x], steps, map(view, (y, z, n, c))))
    given = torch.randn(4, 6)
    got = program.run([given])
    torch.testing.assert_close(got[0], given.double())
    torch.testing.assert_close(got[1], given.clamp(max=0.25))
    torch.testing.assert_close(got[2], given[:2])
    torch.testing.assert_close(got[3], given * complex(-0.0, float("inf")),
                               equal_nan=True)


def test_an_operator_that_chooses_other_strides_is_put_right():
    x, t = buffer("x", 4, 6), buffer("t", 6, 4)
    out = buffer("out", 6, 4)
    steps = [Extern(aten.t.default, (view(x),), {}, (t,)), doubled(t, out)]
    got, between = emit.emit(schedule(
        [x], steps, [view(out), view(t)])).run([given := torch.randn(4, 6)])
    torch.testing.assert_close(got, given.t() * 2)
    assert between.stride() == (4, 1)


def test_constants_come_with_the_load():
    x, y = buffer("c", 5), buffer("y", 5)
    value = torch.randn(5)
    made = emit.emit(schedule([], [doubled(x, y)], [view(y)],
                              constants={"c": value}))
    torch.testing.assert_close(made.run([])[0], value * 2)


def test_names_of_buffers_that_the_program_uses_itself():
    names = ["torch", "call", "inputs", "kernel", "lambda", "aten"]
    given = [buffer(name, 3) for name in names]
    outs = [buffer(name + "_", 3) for name in names]
    steps = [doubled(a, b, f"kernel_{k}") for k, (a, b) in enumerate(
        zip(given, outs, strict=True))]
    tensors = [torch.randn(3) for _ in names]
    got = emit.emit(schedule(given, steps, map(view, outs))).run(
        list(tensors))
    for ours, tensor in zip(got, tensors, strict=True):
        torch.testing.assert_close(ours, tensor * 2)


def test_a_kernel_that_fails_names_nodes_and_line(monkeypatch):
    form = target.Form("nonsense({0}, {1})")
    monkeypatch.setitem(target.FORMS, "add", form)
    x, y = buffer("x", 4), buffer("y", 4)
    where = Where(__file__, 1, "model")
    with pytest.raises(BackendError) as caught:
        emit.emit(schedule([x], [doubled(x, y, "kernel_3", where)],
                           [view(y)]))
    message = str(caught.value)
    assert "kernel kernel_3 does not compile" in message
    assert "add_7" in message and f"{__file__}:1" in message
    assert "nonsense" in message and message.count("\n") == 1
    kept = re.search(r"fails: (.*?\.cpp):", message).group(1)
    assert "kernel_3" in open(kept).read()


def test_a_dtype_that_cpp_does_not_have_is_a_clear_error():
    x = buffer("x", 4, dtype=torch.complex64)
    y = buffer("y", 4, dtype=torch.complex64)
    with pytest.raises(BackendError, match="complex64"):
        emit.emit(schedule([x], [doubled(x, y)], [view(y)]))


def test_what_no_text_can_name_is_given_to_the_program():
    x, y = buffer("x", 4), buffer("y", 4)
    thing, called = object(), []

    def operator(tensor, what):
        called.append(what)
        return tensor + 1,  # several, as an operator on graphs gives

    steps = [Extern(operator, (view(x), thing), {}, (y,))]
    given = torch.randn(4)
    (got,) = emit.emit(schedule([x], steps, [view(y)])).run([given])
    torch.testing.assert_close(got, given + 1)
    assert called == [thing]


def test_the_options_choose_the_printer():
    with pytest.raises(Exception, match="TRITON_INTERPRET"):
        x, y = buffer("x", 4), buffer("y", 4)
        emit.emit(schedule([x], [doubled(x, y)], [view(y)]),
                  Options(cpu_backend="triton"))


@pytest.mark.parametrize("length", [33, 300, 100_000])
def test_values_of_a_row_are_kept_for_its_second_pass(length):
    def inside(x, y):
        return F.softmax(x + F.softmax(y, -1), -1)
    x, y = torch.randn(2, 5, length)
    (got,) = program_of(inside, x, y).run([x, y])
    torch.testing.assert_close(got, inside(x, y))


def test_a_masked_load_of_what_the_kernel_has_just_stored():
    def parts(x):
        x = x.clone()
        x[:1].add_(1)
        x[1:].mul_(2)
        x[2:].exp_()
        return x + 1, x
    x = torch.randn(70)
    program = program_of(parts, x)
    assert len(program.kernels) == 1
    for got, want in zip(program.run([x]), parts(x), strict=True):
        torch.testing.assert_close(got, want)
