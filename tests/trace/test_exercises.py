"""The exercises of chapter 1: the page's solutions, or a reader's."""

import torch

import minicompile
from chapters._book import breaking
from minicompile.core.errors import Unsupported
from minicompile.trace import rules, trace
from tests.book.answers import answer


def two(x, scale):
    y = x @ x.t()
    return torch.relu(y) * scale


def loud(x):
    print("loud")
    return x + 1


def test_1_1_how_long_is_a_function():
    opcodes = answer("1.1", "opcodes")

    def f(x):
        def inner(y):
            return y * x
        return inner(x)

    seen = opcodes(f)
    assert seen["RETURN_VALUE"] == 2 and seen["BINARY_OP"] == 1
    assert seen["MAKE_FUNCTION"] == 1


def test_1_2_a_rule_for_print(monkeypatch, capsys):
    monkeypatch.setattr(rules, "RULES", dict(rules.RULES))
    try:
        trace(loud, (torch.ones(2),))
        raise AssertionError("print was followed without a rule")
    except Unsupported as refusal:
        assert refusal.kind == "builtin"
    answer("1.2", "quiet")()
    assert len(trace(loud, (torch.ones(2),)).graph.graph.nodes) == 3
    assert capsys.readouterr().out == ""


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
