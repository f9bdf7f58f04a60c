"""explain() counts what was made, and its page stands alone."""

import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minicompile
from minicompile import explain
from minicompile.replay.cuda import graphs as stage
from minicompile.report.views.stages import folded, moved
from tests.replay.fake import FakeDevice


def bend(x, w):
    return torch.relu(F.layer_norm(x @ w, (w.shape[1],))) * 2


def talk(x):
    print("hello")
    return x + 1


def inputs():
    return (torch.randn(4, 8, requires_grad=True),
            torch.randn(8, 16, requires_grad=True))


def test_a_report_counts_what_there_is():
    report = explain(bend)(*inputs())
    assert report.name == "bend"
    assert len(report.graphs) == 1 and not report.graph_breaks
    assert {g.kind for g in report.guards} >= {"tensor", "state"}
    assert [e for e in report.externs if "mm" in e] == ["aten.mm.default"] * 3
    assert len(report.kernels) == 2
    #: h, its mean and its deviation: 64 + 4 + 4 floats.
    assert report.saved_bytes == (64 + 4 + 4) * 4
    forward = report.kernels[0]
    assert forward.reads == ("mm",) and forward.name in forward.source
    assert "relu" in forward.ops and forward.writes


def test_elements_moved_can_be_counted_by_hand():
    report = explain(lambda x: x.cos() + 1)(torch.randn(10))
    assert sum(moved(schedule) for entry in report.entries
               for schedule in entry.lowered.schedules.values()) == 20
    assert [kernel.reads for kernel in report.kernels] == [("primals_1",)]


def test_the_text_names_every_stage():
    text = str(explain(bend)(*inputs()))
    assert text.splitlines()[0] == (
        "bend: 1 graph, 0 graph breaks, 0 recompiles")
    stages = [line.split()[0] for line in text.splitlines()[2:]]
    assert stages == ["trace", "guards", "split", "fusion", "emit",
                      "replay", "budget"]
    assert max(map(len, text.splitlines())) <= 100


def test_replay_is_reported_as_it_is(monkeypatch):
    """Nothing is recorded on a CPU, nor in a first call."""
    def replay(function, x):
        report = explain(function, mode="reduce-overhead")(x)
        return next(line for line in str(report).splitlines()
                    if line.startswith("  replay"))

    x = torch.randn(4, 8)
    assert "off: not all tensors are on a CUDA device" in replay(bend_one, x)
    obstacle = stage.obstacle
    monkeypatch.setattr(stage, "TAPES", [stage.tape_of])
    monkeypatch.setattr(stage, "obstacle", lambda schedule: obstacle(
        SimpleNamespace(buffers={}, externs=schedule.externs)))
    assert "off: the graph chooses" in replay(choice, x)
    monkeypatch.setattr(stage, "Cuda", lambda index: FakeDevice())
    assert re.search("4 steps to record .* first call: 1$",
                     replay(four_products, x))


def bend_one(x):
    return F.layer_norm(x @ x.T @ x, (8,)) * 2


def four_products(x):
    return x @ x.T @ x @ x.T @ x


def choice(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def test_a_graph_break_says_where_and_what_to_do(capsys):
    report = explain(talk)(torch.zeros(2))
    assert capsys.readouterr().out == "hello\n"
    assert len(report.graphs) == 1
    [found] = report.graph_breaks
    assert "print" in found.reason and found.source == 'print("hello")'
    assert found.file == __file__
    assert found.line == talk.__code__.co_firstlineno + 1
    assert found.hint in str(report)


def test_recompiles_are_reported_with_their_reasons():
    compiled = minicompile.compile(bend)
    x, w = inputs()
    compiled(x, w)
    report = explain(compiled)(torch.randn(6, 8, requires_grad=True), w)
    assert len(report.graphs) == 2
    assert any("size of dimension 0 of `x` was 4, is 6" in reason
               for reason in report.recompiles)
    assert report.dynamic == (
        "bend: dimension 0 of `x` was 4, is 6: dynamic from now on",)
    assert report.dynamic[0] in str(report)


@pytest.mark.parametrize("backend", ["eager", "split"])
def test_a_shallower_backend_has_fewer_stages(backend):
    report = explain(bend, backend=backend)(*inputs())
    assert report.kernels == () and len(report.graphs) == 1
    assert str(report) == repr(report)  # a prompt prints it


def test_a_call_without_operators_has_no_backend():
    report = explain(lambda x: (x, 3))(torch.ones(2))
    assert [view.name for view in report.stages[0]] == ["trace", "guards"]
    assert "another backend" not in str(report) and report.page


def test_modules_and_inference():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with torch.no_grad():
        report = explain(model)(torch.zeros(2, 4))
    assert report.saved_bytes == 0
    assert "no gradient wanted" in str(report)


def test_a_module_with_a_cache_of_its_own():
    model = nn.Linear(4, 4)
    model.cache = {}
    compiled = minicompile.compile(model)
    compiled(torch.zeros(2, 4))
    for each in model, compiled:
        assert len(explain(each)(torch.zeros(2, 4)).graphs) == 1
    assert len(compiled._compiled.cache.entries) == 1


def test_the_page_needs_nothing_else(tmp_path):
    path = explain(bend)(*inputs()).save(tmp_path / "page.html")
    page = path.read_text()
    assert not re.search(r'(src|href|url)\s*[=(]|https?://', page)
    assert page.count("<details>") == 7
    assert "&lt;" in page or "&quot;" in page
    assert "aten.mm.default" in page


def test_guards_are_listed():
    report = explain(bend)(*inputs())
    (stages,) = report.stages
    table = stages[1].full.splitlines()
    assert report.guards
    assert all(f"# {guard}" in table for guard in report.guards)
    assert any("x: tensor" in line for line in table)


def test_a_report_says_why_kernels_stay_apart(monkeypatch, caplog):
    def chain(x):
        y = x.sin()
        return y @ y + y, x.cos().sum(1).softmax(0), y.flip(0).sum(0)
    monkeypatch.setenv("MINICOMPILE_LOGS", "perf_hints")
    with caplog.at_level("INFO", logger="minicompile"):
        report = explain(chain)(torch.randn(8, 8))
    full = next(each for each in report.stages[0]
                if each.name == "fusion").full
    for why in ("reads sin_0 of kernel_0_sin_cos_sum: between them runs mm",
                "8 rows of 8 do not fit 1 of 8",
                "other places than they are stored"):
        assert why in full and why in caplog.text


def test_inputs_are_of_the_entries_that_hold_in_the_call(capsys):
    compiled = minicompile.compile(talk, dynamic=False)
    compiled(torch.zeros(2))
    report = explain(compiled)(torch.zeros(3))
    assert {id(each) in report.inputs for each in report.entries} == {
        False, True}
    assert capsys.readouterr().out == "hello\n" * 2
    compiled(torch.zeros(2))
    assert compiled.cache.watch is None


@pytest.mark.parametrize("line", [
    f"({'a + ' * 20}b) % 4 + {'a * ' * 20}b",
    f"int({'a + ' * 20}b)", f"abs(({'a + ' * 20}b) % 4 - {'a + ' * 20}b)"])
def test_a_long_line_is_broken_only_inside_of_a_bracket(line):
    source = f"def f(a, b):\n    x = {line}\n    return x"
    names = {}
    exec(folded(source), names)
    assert names["f"](3, 5) == eval(line, {"a": 3, "b": 5})
