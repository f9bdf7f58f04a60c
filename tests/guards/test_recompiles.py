"""No more compilations than torch.compile needs, change by change."""

import random

import pytest
import torch
import torch._dynamo.testing

import minicompile
from tests.guards.world import ALTERING, UNRELATED, World

#: Changes that both see. (Hooks and a class's own functions are missing:
#: torch.compile does not look at them, and reuses what is out of date.)
CASES = ("scale", "helper's default", "closure", "x shape", "eval one",
         "weight shape", "norm's eps", "identity", "one block less",
         "autocast", "the function's code")


@pytest.fixture
def pair():
    """The program compiled by both, and how often each has compiled."""
    torch._dynamo.reset()
    world = World()
    counter = torch._dynamo.testing.CompileCounter()
    ours = minicompile.compile(world.program, backend="eager")
    theirs = torch.compile(world.program, backend=counter)

    def call():
        locals, _ = world.call()
        for each in (ours, theirs):
            each(*locals)
        return ours.stats().graphs, counter.frame_count
    yield world, call
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CASES)
def test_one_change_and_back(pair, name):
    random.seed(name)
    world, call = pair
    assert call() == (1, 1)
    undo = ALTERING[name](world)
    ours, theirs = call()
    assert ours <= theirs
    undo()
    assert call() == (ours, theirs)


def test_all_unrelated_changes_in_a_row(pair):
    random.seed(0)
    world, call = pair
    for name in UNRELATED:
        undo = UNRELATED[name](world)
        assert call()[0] == 1, name
        undo()
    assert call()[0] == 1
