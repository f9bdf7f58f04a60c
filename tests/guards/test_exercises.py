"""The exercises of chapter 2, with the page's answers or the reader's."""

import itertools
import random
import types

import pytest
import torch

import minicompile
from chapters._book.running import block, halves, inputs
from minicompile.core.guard import Attribute, Guard
from minicompile.guards import build_check
from minicompile.trace import trace
from tests.book.answers import answer
from tests.guards import test_check
from tests.guards.say import STATE, X, Y, Z, tensor


def test_2_1_spare_a_question():
    spare = answer("2.1", "spare")
    kept = [STATE, tensor(X, torch.zeros(2)), Guard(Y, "equal", 3),
            Guard(Z, "type", dict), Guard(Attribute(X, "y"), "type", int)]
    wasted = [Guard(X, "type", torch.Tensor), Guard(Y, "type", int)]
    assert spare(wasted + kept + wasted) == kept


def expected(questions):
    """The mean cost of asking until one fails."""
    total, reached = 0.0, 1.0
    for cost, fails in questions:
        total += reached * cost
        reached *= 1 - fails
    return total


@pytest.mark.parametrize("seed", range(8))
def test_2_2_in_which_order(seed):
    draw = random.Random(seed)
    questions = [(draw.randint(1, 9), draw.choice((0.0, 0.1, 0.5, 0.9)))
                 for _ in range(5)]
    found = answer("2.2", "ordered")(questions)
    assert sorted(found) == sorted(questions)
    assert expected(found) == pytest.approx(min(
        map(expected, itertools.permutations(questions))))


def test_2_3_which_entry_to_try():
    telling = answer("2.3", "telling")
    checks = [build_check([
        Guard(X, "equal", flag), Guard(Y, "equal", scale),
        *([Guard(Z, "equal", scale)] if flag else [])], {})
        for flag, scale in ((True, 1), (True, 1.0), (False, 2))]
    assert telling(checks) == {Y}
    assert telling(checks[1:]) == {X, Y}


@pytest.mark.parametrize("kind", test_check.KINDS)
def test_2_4_replace_this_stage(kind):
    build = answer("2.4", "build_check")
    test_check.test_each_kind_holds_exactly_where_it_says(build, kind)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_2_4_replace_this_stage_on_tensors_and_closures():
    build = answer("2.4", "build_check")
    for change in test_check.OTHER_TENSORS:
        test_check.test_a_tensor_of_another_kind_is_noticed(build, change)
    test_check.test_same_and_different_objects(build)
    test_check.test_apart_means_no_shared_memory(build)
    test_check.test_closures_globals_and_constants_are_read_from_the_call(
        build)
    check = build([Guard(Attribute(X, "n"), "equal", 3)], {})
    assert check((types.SimpleNamespace(n=3),), None) is True
    assert check((types.SimpleNamespace(),), None) is False


def test_2_4_replace_this_stage_for_a_trace():
    x, w = given = inputs()
    made = trace(block, (*given, 2))
    check = answer("2.4", "build_check")(
        made.guards, made.constants, made.sources)
    one, other = check.function((*given, 2), block)
    assert one is x and other is w
    assert not check((*given, 3), block)
    with torch.no_grad():
        assert not check((*given, 2), block)


@pytest.mark.parametrize("seed", range(12))
def test_2_5_how_many_graphs(seed):
    draw = random.Random(seed)
    shapes = [(draw.choice((1, 2, 3, 5)), draw.choice((0, 1, 2, 3, 4)))
              for _ in range(8)]
    compiled = minicompile.compile(torch.sin, backend="eager")
    for shape in shapes:
        compiled(torch.ones(shape))
    assert compiled.stats().graphs == answer("2.5", "compiles")(shapes)


def test_2_6_what_are_we_ready_for():
    compiled = minicompile.compile(halves, backend="eager")
    for rows in (4, 6):
        compiled(*inputs(rows))
    ready = answer("2.6", "ready")(compiled, inputs, range(1, 110))
    assert ready == list(range(2, 101))


def test_2_7_replace_this_stage():
    compiled = minicompile.compile(block, backend="eager", dynamic=False)
    mine = answer("2.7", "bucketed")(compiled)
    for rows in range(1, 65):
        x, w = inputs(rows)
        torch.testing.assert_close(mine(x, w), block(x, w))
    assert compiled.stats().graphs == 7
