"""Who owns memory, how long it is needed, and in which order steps run."""

import random
from unittest import mock

import pytest
import torch
from torch import fx
from torch.nn import functional as F

import minicompile
from minicompile import emit, fusion
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.core.schedule import Extern, View
from minicompile.fusion import fuse
from minicompile.fusion.passes import memory
from tests.fusion.graphs import (
    assert_right,
    assert_sound,
    aten,
    fake_inputs,
    halves,
    made_by,
)
from tests.judge import judged, near


def peak(schedule, dying=()):
    """Most elements alive at a time, of inputs those that are dying."""
    live = {b.name: int(b.elements) for b in schedule.inputs
            if b and b.name in dying}
    most = sum(live.values())
    for step, freed in zip(schedule.steps, schedule.last_use, strict=True):
        buffers = step.outputs if isinstance(step, Extern) else (
            step.written.values())
        live |= {b.name: int(b.elements) for b in buffers
                 if b and not b.into}
        most = max(most, sum(live.values()))
        for name in freed:
            live.pop(name, None)
    return most


@pytest.mark.parametrize("function", [
    lambda x: (x, x + 1), lambda x: (x.clone(), x.clone() * 2),
    lambda x: (x + 1, (x + 1).clone(), (x + 1).clone()[0]),
    lambda x: (x.contiguous() * 1).t(), lambda x: torch.cat([x]),
    lambda x: (x + 0, x * 1, x.sum(1, keepdim=True)),
    lambda x: F.pad(x, (0, 0)), lambda x: x[:1].sum(0),
    lambda x: (x[0, 0].sin(), x[0, 0].sin().max(0)[0])])
def test_results_have_memory_of_their_own(function):
    x = torch.randn(4, 6)
    schedule = assert_right(aten(function, x), (x,))
    owned = [view.buffer for view in schedule.outputs
             if isinstance(view, View) and view.buffer != "primals_1"]
    assert len(owned) == len(set(owned))


def test_a_result_that_is_a_view_of_an_input_is_copied():
    from torch.fx.experimental.proxy_tensor import make_fx
    x = torch.randn(4, 6)
    for function in (lambda x: x.t(), lambda x: x[1:], lambda x: x.clone(),
                     lambda x: x.as_strided((2, 2), (1, 1), 3)):
        graph = make_fx(function, tracing_mode="fake")(x)
        schedule = fuse(graph)
        found, = evaluate_schedule(schedule, [x])
        assert torch.equal(found, function(x))
        assert found.untyped_storage().data_ptr() != (
            x.untyped_storage().data_ptr())


def test_memory_under_a_view_that_an_operator_makes_stays():
    def function(x):
        y = x.exp()
        pairs = y.as_strided((3, 2), (2, 1))  # a call, on y's memory
        return torch.sort(pairs, 1)[0], y.sum()
    x = torch.randn(6)
    schedule = assert_right(aten(function, x), (x,))
    names = [str(getattr(s, "target", "kernel")) for s in schedule.steps]
    freed = schedule.last_use[names.index("aten.sort.default")]
    assert {"exp_0", "as_strided"} <= set(freed)


def test_a_gradient_runs_as_soon_as_it_frees_memory():
    def mlp(x, *weights):
        for w in weights:
            x = torch.tanh(x @ w)
        return x.sum()
    shapes = [(512, 32)] + [(32, 32)] * 8
    backward = halves(mlp, *fake_inputs(*shapes, grad=True))["backward"]
    schedule = fuse(backward)
    assert_sound(schedule)
    assert peak(schedule) < 6 * 512 * 32
    order = [name for step in schedule.steps for name in made_by(step)]
    products = [name for name in order if name.startswith("mm")]
    assert len(products) == 16  # two for each weight, side by side
    last = int(schedule.outputs[-1].buffer in order[:8])
    assert last == 1


def test_a_gradient_runs_early_if_it_is_the_last_to_need_an_activation(
        monkeypatch):
    def mlp(x, *weights):
        for w, bias in zip(weights[::2], weights[1::2]):
            x = torch.tanh(torch.addmm(bias, x, w))
        return x.sum()
    layer = [(32, 32), (32,)]
    backward = halves(mlp, *fake_inputs(
        (512, 32), *layer * 8, grad=True))["backward"]
    dying = {b.name for b in fuse(backward).inputs
             if int(b.elements) == 512 * 32}
    assert len(dying) == 9  # the saved values, x among them
    start = 9 * 512 * 32
    schedule = fuse(backward, dying)
    assert_sound(schedule)
    assert peak(schedule, dying) <= start + 2 * 512 * 32
    monkeypatch.setattr(fusion, "ORDERING", fusion.ORDERING[:1])
    assert peak(fuse(backward, dying), dying) > start + 5 * 512 * 32


def test_random_operators_keep_their_order():
    def function(x):
        late = torch.rand(100) * x.sum()
        early = torch.rand(4)
        unused = torch.rand(3)
        return early, late, torch.rand(2) + unused.shape[0]
    x = torch.randn(50)
    schedule = fuse(aten(function, x))
    drawn = [step.outputs[0] and int(step.outputs[0].elements)
             for step in schedule.externs]
    assert [n or 3 for n in drawn] == [100, 4, 3, 2]


def test_what_nobody_needs_is_not_computed():
    def function(x):
        values, places = x.max(1)
        x.exp().sum()
        return values, torch.sort(x, 1)[0]
    x = torch.randn(4, 6)
    schedule = assert_right(aten(function, x), (x,))
    text = str(schedule)
    assert "argmax" not in text and "exp" not in text
    call, = schedule.externs
    assert call.outputs[1] is None


def test_inputs_that_nobody_reads_are_none():
    x, y = torch.randn(3), torch.randn(4)
    schedule = assert_right(aten(lambda x, y: x + 1, x, y), (x, y))
    assert schedule.inputs[1] is None


def test_constants_of_the_graph_are_kept_by_name():
    root = torch.nn.Module()
    root.table = torch.arange(12.).view(3, 4).t()
    root.scalar = torch.tensor(2.0)
    graph, x = fx.Graph(), torch.randn(4, 3)
    nodes = [graph.placeholder("x"), graph.get_attr("table"),
             graph.get_attr("scalar")]
    nodes.append(graph.call_function(
        torch.ops.aten.mul.Tensor, (nodes[0], nodes[1])))
    nodes.append(graph.call_function(
        torch.ops.aten.add.Tensor, (nodes[3], nodes[2])))
    for node, held in zip(nodes, [x, root.table, root.scalar, x, x]):
        node.meta["val"] = held
    graph.output((nodes[-1],))
    schedule = assert_right(fx.GraphModule(root, graph), (x,))
    assert list(schedule.constants) == ["table", "scalar"]
    assert len(schedule.kernels) == 1


def test_every_origin_is_a_node_and_has_the_users_line():
    def function(x, w):
        return F.gelu(F.layer_norm(x @ w, (8,))) * 2
    graph = aten(function, torch.randn(4, 8), torch.randn(8, 8))
    nodes = {node.name for node in graph.graph.nodes}
    for kernel in fuse(graph).kernels:
        for loop in kernel.loops:
            assert set(loop.origin.split()) <= nodes and loop.origin


@pytest.mark.parametrize(("function", "over"), [
    (lambda x, w: (x @ w).exp(), ["mm"]),
    (lambda x, w: ((x @ w).exp() @ w).sin(), ["mm", "mm_1"]),
    (lambda x, w: (x @ w) + (x.t() @ w), ["mm"]),
    (lambda x, w: (x @ w).exp() @ (x @ w), []),  # read later
    (lambda x, w: [y := x @ w, y.exp()], []),  # a result
    (lambda x, w: x.exp(), []),  # an input
    (lambda x, w: (x @ w).t().exp().contiguous(), []),  # other strides
    (lambda x, w: (x @ w).flip(0).exp(), []),  # at another place
    (lambda x, w: (x @ w).softmax(1), ["mm"]),  # in its last pass
    (lambda x, w: F.layer_norm(x @ w, (6,)).sin() @ w, ["mm"]),
    (lambda x, w: (x @ w).softmax(0), ["mm"]),
    (lambda x, w: [y := x @ w, y.softmax(1) + y.cos()][1], ["mm"]),
    (lambda x, w: [y := x @ w, y.softmax(1), y.sum(0)][1:], []),
    (lambda x, w: (x @ w)[:3].exp(), []),
    (lambda x, w: [y := (x @ w).exp(), y @ w + y.sum()][1],
     ["mm", "mm_1"]),
    (lambda x, w: torch.embedding(x @ w, torch.tensor([1, 2])).exp(), []),
    (lambda x, w: torch.addmm(x, x, w) * 2 + torch.mm(x, w), ["addmm"])])
def test_results_are_stored_over_dead_values(function, over):
    x, w = torch.randn(2, 6, 6)
    schedule = assert_right(aten(function, x, w), (x, w))
    assert [buffer.into for step in schedule.kernels
            for buffer in step.written.values() if buffer.into] == over
    compiled = minicompile.compile(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), function(x, w))


def test_a_written_input_is_no_dead_value():
    def function(x, w):
        x.mul_(2)
        return x + x @ w  # the last to read x, in another kernel

    x, w = torch.randn(6, 6), torch.randn(6, 6)
    held, compiled = x.clone(), minicompile.compile(function)
    made = compiled(x, w)
    assert not compiled.stats().fallbacks
    torch.testing.assert_close(made, function(held, w))
    torch.testing.assert_close(x, held)


PARTS = [
    lambda y: y.cos(), lambda y: y - y.mean(1, keepdim=True),
    lambda y: y.softmax(1), lambda y: y.sum(1), lambda y: y.sum(0),
    lambda y: y.sin() * y.sin().amax(1, keepdim=True), lambda y: y.cumsum(1),
    lambda y: F.layer_norm(y, y.shape[1:]), lambda y: y.t().contiguous(),
    lambda y: F.gelu(y), lambda y: y.exp().flip(1)]


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("seed", range(8))
def test_a_value_that_is_stored_over_was_read_before(seed, rows):
    """Kernels of several passes, whose last loop may run in the first."""
    chosen = random.Random(seed).sample(PARTS, 3)

    def function(x, w):
        y = x @ w
        return [part(y) for part in chosen]

    x, w = torch.randn(rows, 24), torch.randn(24, 24)
    for types in ({"cpu"}, ()):
        with mock.patch.object(memory, "REUSING", types):
            found = emit.emit(fuse(aten(function, x, w))).run([x, w])
        judged(near, found, tuple(function(x, w)), function, x, w)


@pytest.mark.parametrize("change", [
    lambda y: torch.cat([torch.zeros(2, 1, 16), y[:, 1:]], 1),
    lambda y: torch.cat([y[:, :2], torch.ones(2, 3, 16)], 1).cos(),
    lambda y: F.pad(y[:, 1:], (0, 0, 1, 0)),
    lambda y: torch.slice_scatter(torch.ones_like(y), y[:, 1:], 1, 1)])
@pytest.mark.parametrize("reduced", [
    lambda y: (y - y.mean(-1, keepdim=True)).tanh(),
    lambda y: y.softmax(-1), lambda y: F.layer_norm(y, (16,))])
def test_a_store_waits_for_the_last_pass_that_reads_what_is_there(
        change, reduced):
    """Also where it needs none of them: between two seams of a
    concatenation, say, the value is a constant."""
    def function(x, w):
        y = reduced((x @ w).view(2, 5, 16))
        return y, change(y)

    x, w = torch.randn(10, 30), torch.randn(30, 16)
    schedule = assert_right(aten(function, x, w), (x, w))
    assert "mm" in {buffer.into for kernel in schedule.kernels
                    for buffer in kernel.written.values()}
    judged(near, emit.emit(schedule).run([x, w]), function(x, w), function,
           x, w)
