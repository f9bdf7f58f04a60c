"""The exercises of chapter 1: the page's solutions, or a reader's."""

import pytest
import torch

import minicompile
from chapters._book import breaking, regions
from minicompile.core.errors import Unsupported
from minicompile.trace import frame, rules, trace
from tests.book.answers import answer


def two(x, scale):
    y = x @ x.t()
    return torch.relu(y) * scale


def test_1_1_a_row_for_an_opcode(monkeypatch):
    def turned(x, n):
        return -x * -n

    monkeypatch.delitem(frame.OPCODES, "UNARY_NEGATIVE")
    x = torch.arange(3.0)
    with pytest.raises(Unsupported):
        trace(turned, (x, 2))
    monkeypatch.setitem(frame.OPCODES, "UNARY_NEGATIVE",
                        answer("1.1", "row"))
    traced = trace(turned, (x, 2))
    assert torch.equal(traced.graph(x)[0], turned(x, 2))
    calls = [node.target for node in traced.graph.graph.nodes
             if node.op.startswith("call")]
    assert len(calls) == 2, "a minus for the tensor, none for the number"


def test_1_2_predict():
    from chapters._book.running import series
    operators, found = answer("1.2", "operators"), answer("1.2", "relied_on")
    traced = trace(series, (torch.ones(3), 4))
    assert operators == [
        node.name.split("_")[0] for node in traced.graph.graph.nodes
        if node.op.startswith("call")]
    assert found == {
        str(guard.source) for guard in traced.guards if guard.source
        and guard.kind != "lacks" and "__code__" not in str(guard.source)}


def test_1_3_who_looked():
    from chapters._book.running import block, inputs
    lines = answer("1.3", "blame")(trace(block, (*inputs(), 2)))
    first = block.__code__.co_firstlineno
    assert [line - first for line in lines] == [3]
    assert [g.kind for g in lines[first + 3]] == ["is"]


def test_1_4_your_own_trace():
    mine = answer("1.4", "trace")
    x = torch.randn(3, 3)
    ours, theirs = mine(two, (x, 2)), trace(two, (x, 2))
    assert torch.equal(ours.graph(x)[0], two(x, 2))
    assert [str(s) for s in ours.sources] == ["x"]
    wanted = {g.key() for g in theirs.guards if g.kind in (
        "tensor", "equal")}
    assert wanted <= {g.key() for g in ours.guards}


def test_1_5_where_does_it_break():
    places = answer("1.5", "places")
    compiled = minicompile.compile(breaking.in_a_with, backend="eager")
    compiled(torch.ones(3))
    found = places(compiled)
    assert found['print("turn", torch.is_grad_enabled())'] == 2
    assert found["for _ in range(3):"] == 1 and len(found) == 2


def test_1_6_stop_anywhere():
    begin_at = answer("1.6", "begin_at")
    first = breaking.third.__code__.co_firstlineno
    rest = begin_at(breaking.third, first + 3)
    assert rest(None, 21) == 42


def gradient(function, x):
    return torch.autograd.grad(function(x).sum(), x)[0]


def test_1_7_without_a_backward_of_ones_own():
    straight = answer("1.7", "straight")

    def mine(x):
        return straight(x.tanh() * 2, 4).sum()

    x = torch.linspace(-1, 1, 9, requires_grad=True)
    assert torch.allclose(mine(x), regions.quantised(x), atol=1e-6)
    assert torch.equal(gradient(mine, x), gradient(regions.quantised, x))
    assert not list(trace(mine, (x,)).graph.children())


def test_1_8_both_then_choose():
    either = answer("1.8", "either")

    def chosen(choose):
        return minicompile.compile(lambda x: choose(
            x.sum() > 0, torch.sqrt, torch.abs, (x,)), fullgraph=True)

    mine, theirs = chosen(either), chosen(torch.cond)
    for start in (1.0, -1.0):
        x = torch.full((3,), start, requires_grad=True)
        assert torch.equal(mine(x), theirs(x))
    x = torch.zeros(3, requires_grad=True)
    assert gradient(mine, x).isnan().all()
    assert torch.equal(gradient(theirs, x), torch.zeros(3))


def test_1_9_replace_this_stage(monkeypatch):
    monkeypatch.setattr(rules, "RULES", dict(rules.RULES))
    x = torch.linspace(-1, 1, 9, requires_grad=True)
    answer("1.9", "follow")()
    traced = trace(regions.quantised, (x,))
    assert not list(traced.graph.children())
    value, = traced.graph(x)
    assert torch.equal(value, regions.quantised(x))
    assert not torch.autograd.grad(value, x)[0].any()
    assert gradient(regions.quantised, x).any()
