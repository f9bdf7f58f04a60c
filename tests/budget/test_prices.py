"""The tables of prices: machines by name, and what users know better."""

from __future__ import annotations

import warnings
from operator import mul

import pytest
import torch
from torch import fx

import minicompile
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.__main__ import main
from minicompile.core.machines import cost
from minicompile.core.machines import calibration
from tests.budget.test_choose import RUNS, grad, joint_of, working

WORK = torch.ops.budget.work


@pytest.fixture(autouse=True)
def as_before(monkeypatch, tmp_path):
    """The tables are put back, and nothing is kept in the user's cache."""
    before = [(table, dict(table)) for table in (
        cost.MACHINES, cost.OP_KINDS, min_cut.RECOMPUTABLE)]
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path))
    RUNS.clear()
    minicompile.reset()
    yield
    for table, rows in before:
        table.clear()
        table.update(rows)


def test_the_name_of_a_device_goes_before_its_type(monkeypatch):
    node = next(node for node in joint_of(torch.sin, [grad(8)]).early
                if node.name == "sin")
    assert cost.machine_of(node) is cost.MACHINES["cpu"]
    fast = cost.MACHINES["NVIDIA B200"]
    monkeypatch.setattr(cost, "name_of", lambda device: "an abacus")
    before = cost.one_pass(node)
    cost.MACHINES["an abacus"] = fast
    assert cost.machine_of(node) is fast and cost.one_pass(node) < before


def test_the_sheets_give_what_was_measured_of_an_h200():
    made = cost.rated(*map(mul, (4.8, 989, 67, 34), calibration.REACHED))
    measured = cost.MACHINES["cuda"]
    assert made.bandwidth == pytest.approx(measured.bandwidth, rel=0.02)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert made.arithmetic[dtype] == pytest.approx(
            measured.arithmetic[dtype], rel=0.02)


@pytest.mark.slow
def test_the_command_measures_and_keeps(capsys, tmp_path):
    main(["--calibrate"])
    assert "cpu: " in capsys.readouterr().out
    found = cost.MACHINES["cpu"]
    assert 1e8 < found.bandwidth < 1e13 and 1e-8 < found.launch < 1e-3
    row, = calibration.kept_rows().values()
    assert cost.rated(*row) == found and len(row) == 5


@pytest.mark.parametrize("text", [
    "", "{", "[]", "3", '{"cpu": 3}', '{"cpu": {}}', '{"cpu": {"launch": 1}}',
    '{"cpu": [-1, 1, 1, 1, 1]}', '{"cpu": [1, 1, 1, 1, Infinity]}',
    '{"cpu": [1, 1, 1]}', '{"cpu": [1, 1, 1, "sin", 1]}', '{"cpu": "abacus"}',
    '{"a": [1, 1, 1, 1, 1], "b": [NaN, 1, 1, 1, 1]}'])
def test_a_damaged_file_is_not_taken(text, tmp_path):
    (tmp_path / "machines.json").write_text(text)
    assert calibration.kept_rows() == {}


def run_within(share):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        minicompile.compile(working, options={
            "activation_memory_budget": share})(grad(64, 64)).backward()
    return len(RUNS), [str(each.message) for each in caught]


def test_a_registered_cost_lets_an_operator_run_again():
    times, told = run_within(0.0)
    assert times == 1
    line, = [text for text in told if "register_cost" in text]
    minicompile.reset()
    exec(line[line.index("minicompile.register_cost"):])
    assert cost.kind(fx_node()) == "copying"
    RUNS.clear()
    assert run_within(0.0) == (2, [])


def fx_node() -> fx.Node:
    return next(node for node in joint_of(working, [grad(4)]).early
                if "work" in node.name)


def test_the_table_of_what_may_run_again_is_the_users():
    min_cut.RECOMPUTABLE[WORK.default] = True
    assert run_within(0.0)[0] == 2
    minicompile.register_cost(WORK)
    min_cut.RECOMPUTABLE[WORK.default] = False
    minicompile.reset()
    RUNS.clear()
    assert run_within(0.0)[0] == 1


def test_an_operator_of_pytorchs_may_be_forbidden_too():
    def function(x):
        return (x * 2).sin().exp().sum()

    joint = joint_of(function, [grad(64, 64)])
    assert min_cut.cut(joint, byte_price=1.0).bytes == 0
    min_cut.RECOMPUTABLE[torch.ops.aten.sin.default] = False
    plan = min_cut.cut(joint, byte_price=1.0)
    again = split.partition(joint, plan.saved).backward.graph.nodes
    assert plan.bytes and "sin" not in [node.name for node in again
                                        if node.op == "call_function"]

