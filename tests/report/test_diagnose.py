"""diagnose() finds no fault in what is right, and each that is planted."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minicompile
from minicompile import dispatch, fusion, split
from minicompile.core.index import Index
from minicompile.emit.target import FORMS
from minicompile.fusion.lowerings import RULES, elementwise
from minicompile.report.debugging import diagnose
from minicompile.split import recorder

aten = torch.ops.aten


def bend(x, w):
    h = x @ w
    y = F.layer_norm(h, (w.shape[1],))
    return torch.relu(y).softmax(-1) * 2


def inputs():
    return (torch.randn(4, 8, requires_grad=True),
            torch.randn(8, 16, requires_grad=True))


def stages(found):
    return [name for name, *_ in found.rungs]


def test_nothing_differs_where_nothing_is_wrong():
    found = minicompile.diagnose(bend)(*inputs())
    assert stages(found) == ["trace", "split", "fusion", "emit", "runtime"]
    assert found.stage == "" and repr(found).endswith("no stage differs")
    assert all(error <= allowed < 1e-4 for _, error, allowed in found.rungs)


def broken(x):
    y = x.sin()
    minicompile.graph_break()
    y += 1
    return y.cos(), F.dropout(y), y.sum().item()


def test_graphs_between_breaks_writes_draws_and_what_is_compiled_already():
    x = torch.randn(30, requires_grad=True)
    found = minicompile.diagnose(minicompile.compile(broken))(x)
    assert stages(found).count("emit") >= 2 and found.stage == ""


def test_draws_are_the_same_in_float64_so_that_what_follows_is_judged():
    def drawn(x):
        return F.dropout(x.sin()).cos() + torch.rand_like(x) * x
    found = minicompile.diagnose(drawn)(torch.randn(30, requires_grad=True))
    assert found.stage == ""
    assert all(allowed < 1e-4 for _, _, allowed in found.rungs)


def test_a_fault_behind_a_draw_is_found(monkeypatch):
    monkeypatch.setitem(RULES, "cos", elementwise("sin"))
    found = minicompile.diagnose(
        lambda x: (torch.rand_like(x) * x).cos())(torch.randn(30))
    assert (found.stage, found.node) == ("fusion", "cos")


def written(x):
    x.add_(1)
    return x * 2, x[0], torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def test_a_written_argument_and_graphs_in_a_graph():
    x = torch.ones(3)
    assert minicompile.diagnose(written)(x).stage == ""
    assert x.tolist() == [1, 1, 1]


def test_complex_results_and_a_choice_of_graphs_with_gradients():
    def chosen(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), x * 1j
    found = minicompile.diagnose(chosen)(torch.ones(3, requires_grad=True))
    assert found.stage == "" and len(found.rungs) == 5


@pytest.mark.gpu
def test_a_graph_on_two_devices():
    def both(x, y):
        return (x.sin().sum() + 1).cpu() * y.cos(), y.cuda() * x[0, 0]
    found = minicompile.diagnose(both)(
        torch.ones(4, 4, device="cuda"), torch.ones(3, requires_grad=True))
    assert found.stage == "" and len(found.rungs) == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_module_in_other_precisions(dtype):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU())
    mean = model.to(dtype)[1].running_mean.clone()
    found = minicompile.diagnose(minicompile.compile(model))(
        torch.randn(4, 8, dtype=dtype))
    assert found.stage == "" and model[1].running_mean.equal(mean)


class Scaled:
    def __init__(self):
        self.scale = torch.ones(3, requires_grad=True)

    def scaled(self, x):
        return x * self.scale

    __call__ = scaled


@pytest.mark.parametrize("compiled", [False, True])
def test_objects_their_methods_and_weights_of_no_module(compiled):
    scaled = Scaled()
    for each in scaled, scaled.scaled, lambda x: scaled(x):
        if compiled:
            each = minicompile.compile(each)
        found = minicompile.diagnose(each)(torch.ones(3))
        assert found.stage == "" and len(found.rungs) == 5


def named(found):
    """The stage, the node, and which line of bend it is."""
    return (found.stage, found.node, found.where
            and found.where.line - bend.__code__.co_firstlineno)


def retargeted(graph, old, new):
    """The same graph, a call of `old` being one of `new`."""
    for node in graph.graph.nodes:
        if node.target is old:
            node.target = new
    graph.recompile()
    return graph


def another_call(made):
    retargeted(made.graph, torch.relu, torch.sigmoid)
    return made


def another_result(made):
    return replace(made, finish=made.finish.replace(
        "outputs[0]", "outputs[0] * 2"))


def another_half(pair):
    retargeted(pair.forward, aten.relu.default, aten.sigmoid.default)
    return pair


@pytest.mark.parametrize("module, stage, spoil, found", [
    (dispatch, "trace", another_call, ("trace", "relu", 3)),
    (dispatch, "trace", another_result, ("trace", "", None)),
    (split, "partition", another_half, ("split", "relu", 3))])
def test_what_a_stage_makes_is_wrong(
        monkeypatch, module, stage, spoil, found):
    right = getattr(module, stage)
    monkeypatch.setattr(module, stage, lambda *args, **kwargs: spoil(
        right(*args, **kwargs)))
    assert named(minicompile.diagnose(bend)(*inputs())) == found


@pytest.mark.parametrize("op, wrong", [
    (aten._softmax, lambda x, dim, half: (x * 2).exp()),
    (aten._softmax_backward_data, lambda grad, y, dim, dtype: grad * y)],
    ids=["forward", "backward"])
def test_a_decomposition_that_is_wrong(monkeypatch, op, wrong):
    monkeypatch.setitem(recorder.DECOMPOSITIONS, op.default, wrong)
    recorder.decomposition_of.cache_clear()
    found = minicompile.diagnose(bend)(*inputs())
    recorder.decomposition_of.cache_clear()
    assert named(found) == ("split", "softmax", 3)


@pytest.mark.parametrize("name, wrong, node, line", [
    ("relu", elementwise("neg"), "relu", 3),
    ("exp", elementwise("exp2"), "softmax", 3),
    ("rsqrt", elementwise("sqrt"), "layer_norm", 2)])
def test_a_rule_that_is_wrong(monkeypatch, name, wrong, node, line):
    monkeypatch.setitem(RULES, name, wrong)
    assert named(minicompile.diagnose(bend)(*inputs())) == (
        "fusion", node, line)


def test_a_rule_that_is_wrong_for_sizes_that_vary(monkeypatch):
    def times(context, a, b):
        return elementwise("add" if isinstance(b, Index) else "mul")(
            context, a, b)

    def scaled(x):
        return x * x.shape[0] - 1
    monkeypatch.setitem(RULES, "mul", times)
    x = torch.randn(5, 3, requires_grad=True)
    assert minicompile.diagnose(scaled)(x).stage == ""
    found = minicompile.diagnose(scaled, dynamic=True)(x)
    assert (found.stage, found.node) == ("fusion", "mul")


@pytest.mark.parametrize("name, node, line", [
    ("relu", "relu", 3), ("rsqrt", "layer_norm", 2), ("le", "relu", 3)])
def test_a_form_that_is_wrong(monkeypatch, name, node, line):
    """The last is in the backward alone."""
    form = FORMS[name]
    monkeypatch.setitem(FORMS, name, replace(form, cpp="{0} > 0.5"))
    found = minicompile.diagnose(bend)(*inputs())
    assert named(found) == ("emit", node, line)
    assert f"emit differs at {node}" in str(found)
    assert "softmax" in str(found) or name == "rsqrt"


@pytest.mark.parametrize("wrong", ["1 / {0}", "{0} / {0}", "{0}"])
def test_numbers_that_are_not_finite_are_compared(monkeypatch, wrong):
    monkeypatch.setitem(FORMS, "log", replace(FORMS["log"], cpp=wrong))
    found = minicompile.diagnose(lambda x: x.log())(torch.zeros(3))
    assert (found.stage, found.node) == ("emit", "log")


def test_a_fault_that_is_seen_only_in_the_whole(monkeypatch):
    """Here in what counts the calls that are not run so."""
    made = split.make_runtime

    def wrong(*parts, **named):
        run = made(*parts, **named)
        return run if "notes" not in named else (
            lambda inputs: tuple(2 * each for each in run(inputs)))
    monkeypatch.setattr(split, "make_runtime", wrong)
    assert named(minicompile.diagnose(bend)(*inputs())) == (
        "runtime", "", None)


def test_a_fault_that_kept_values_hide(monkeypatch):
    """A graph is fused wrongly if it has one result."""
    def wrong(graph, *rest):
        if len(graph.graph.output_node().args[0]) > 1:
            return fuse(graph, *rest)
        calls = aten.sigmoid.default, aten.tanh.default
        made = fuse(retargeted(graph, *calls), *rest)
        retargeted(graph, *calls[::-1])
        return made
    fuse = fusion.fuse
    monkeypatch.setattr(fusion, "fuse", wrong)

    def chain(x):
        return torch.sigmoid(x.sin()).cos()
    found = minicompile.diagnose(chain)(torch.randn(8))
    assert (found.stage, found.node) == ("fusion", "sigmoid")


def test_a_fault_in_the_middle_of_a_long_graph(monkeypatch):
    """A part of the graph is compiled for each step of a bisection."""
    def chain(x):
        for _ in range(20):
            x = x.sin() + 1
        x, _ = (x.erf() * 2).split(4)
        for _ in range(20):
            x = x.cos() + 1
        return x.cumsum(0)
    climbs, climb = [], diagnose.climb
    monkeypatch.setattr(diagnose, "climb", lambda *given: climbs.append(
        1) or climb(*given))
    monkeypatch.setitem(FORMS, "erf", replace(FORMS["erf"], cpp="{0}"))
    found = minicompile.diagnose(chain)(torch.randn(8, requires_grad=True))
    assert (found.stage, found.node) == ("emit", "erf")
    assert len(climbs) < 10


def test_a_debug_folder_has_each_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    minicompile.compile(bend, options={"trace.enabled": True})(*inputs())
    [folder] = tmp_path.glob("minicompile_debug/*")
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert sorted(texts) == [
        "0_trace_graph.py", "1_split_halves.py", "1_split_joint.py",
        "1_split_saved.py", "2_fusion_backward.py",
        "2_fusion_backward_apart.py", "2_fusion_forward.py",
        "2_fusion_forward_apart.py", "2_fusion_kernel.py",
        "3_emit_backward.py", "3_emit_forward.py", "3_emit_kernel.py",
        "5_budget_again.py", "page.html", "seconds.txt"]
    assert [line.split()[0] for line in texts["seconds.txt"].splitlines()
            ] == ["trace", "split", "fusion", "emit"]
    assert "softmax" in texts["0_trace_graph.py"]
    assert "def joint(" in texts["1_split_joint.py"]
    assert '"k:backward:0"' in texts["page.html"]
    assert 'extern "C"' in texts["3_emit_backward.py"]
    minicompile.compile(bend)(*inputs())
    assert len([*tmp_path.glob("minicompile_debug/*")]) == 1
