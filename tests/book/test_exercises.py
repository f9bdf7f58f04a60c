"""Exercises of chapters 0 and 8: `ANSWERS=mine.py pytest … -k 0_1`."""

import time

import torch
from torch import fx

import minicompile
from chapters._book.running import block, inputs
from minicompile.fusion.lowerings import RULES
from minicompile.split import recorder
from tests.book.answers import answer

MIB = 2**20


def test_0_1_a_compiler_that_knows_its_arguments():
    safe_compile = answer("0.1", "safe_compile")
    calls = []

    def function(x, w, scale):
        calls.append(scale)
        return block(x, w, scale)

    compiled = safe_compile(function)
    for rows, scale in [(4, 2), (4, 3), (4, 2), (5, 2), (4, 2.0), (5, 2)]:
        x, w = inputs(rows, grad=False)
        torch.testing.assert_close(compiled(x, w, scale),
                                   block(x, w, scale))
    assert len(calls) == 4, "one recording for each kind of call"


def test_0_2_bytes_moved_one_operator_at_a_time():
    bytes_moved = answer("0.2", "bytes_moved")
    graph = fx.Graph()
    meta = torch.empty(4096, 1024, device="meta")
    h = graph.placeholder("h")
    h.meta["val"] = meta
    last = h
    for function in (torch.relu, torch.exp, torch.neg):
        last = graph.call_function(function, (last,))
        last.meta["val"] = meta
    both = graph.call_function(torch.add, (last, h))
    both.meta["val"] = meta
    graph.output((both,))
    assert bytes_moved(graph) == (3 * 32 + 48) * MIB


def test_0_3_a_backend_of_your_own():
    Counting = answer("0.3", "Counting")
    backend = Counting()
    compiled = minicompile.compile(block, backend=backend)
    x, w = inputs()
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), block(x, w))
    assert backend.counts["matmul"] == 1
    assert backend.counts["layer_norm"] == 1
    assert sum(backend.counts.values()) == 4


def test_8_1_a_fair_watch(monkeypatch):
    compare = answer("8.1", "compare")
    order, now = [], [0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def call(name, first, later):
        def run():
            now[0] += later if name in order else first
            order.append(name)
        return run

    found = compare({"a": call("a", 50, 4), "b": call("b", 50, 12)}, 5)
    assert found == {"a": 4, "b": 12}
    assert order[-4:] in (["a", "b"] * 2, ["b", "a"] * 2)


def test_8_2_who_made_this_kernel():
    kernel_of = answer("8.2", "kernel_of")
    report = minicompile.explain(block)(*inputs())
    forward, backward = report.kernels
    assert kernel_of(report, "erf") == forward.name
    assert kernel_of(report, "mul_12") == backward.name
    assert kernel_of(report, "mm") is None


def test_8_3_which_stage_is_it(monkeypatch):
    guilty = answer("8.3", "guilty")
    args = inputs()
    assert guilty(block, *args) is None
    with monkeypatch.context() as changed:
        changed.setitem(RULES, "erf", RULES["tanh"])
        assert guilty(block, *args) == "fused"
    formulas = {torch.ops.aten.gelu.default: lambda x, **_: x + 1}
    monkeypatch.setattr(recorder, "decomposition_of", lambda op, right=(
        recorder.decomposition_of): formulas.get(op) or right(op))
    assert guilty(block, *args) == "split"
