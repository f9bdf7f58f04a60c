"""Random changes between calls: every one that matters is noticed.

The graph traced before a change may be reused after it only if it gives
what eager gives then; a change that no answer depends on leaves it valid.
"""

import functools
import random

import pytest
import torch

from minicompile.guards import build_check
from minicompile.trace import trace
from tests.guards.say import explain
from tests.guards.world import ALTERING, UNRELATED, World


class Reusable:
    """A trace with its check: what a compiler would keep."""

    def __init__(self, call):
        locals, function = call
        self.trace = trace(function, locals)
        self.check = build_check(self.trace.guards, self.trace.constants,
                                 self.trace.sources)
        self.names = dict(self.trace.constants)
        exec(self.trace.finish, self.names)

    def run(self, call):
        inputs = self.check.function(*call)
        return self.names["finish"](*call, self.trace.graph(*inputs))


def outcome(run):
    """What a call gives: values and metadata, or the exception's type."""
    try:
        result = run()
    except Exception as error:
        return type(error)
    return (result.dtype, result.shape, result.stride(),
            result.requires_grad, result.detach().tolist())


def eager(world):
    locals, function = world.call()
    return outcome(lambda: function(*locals))


@functools.cache
def world_with(questions):
    """A world and its trace, the check asking in one way or the other."""
    world = World()
    return world, Reusable(world.call())


@pytest.fixture
def made(questions):
    """The world is made once; every test undoes what it changes."""
    return world_with(questions)


def test_the_world_is_reusable_as_it_is(made):
    world, kept = made
    assert kept.check(*world.call())
    assert outcome(lambda: kept.run(world.call())) == eager(world)


@pytest.mark.slow(sample=70)
@pytest.mark.parametrize("name", ALTERING)
def test_each_altering_change_is_noticed_and_named(made, name):
    random.seed(name)
    world, kept = made
    before = eager(world)
    for _ in range(3):
        undo = ALTERING[name](world)
        try:
            assert not kept.check(*world.call()), name
            assert explain(kept.check, *world.call())
        finally:
            undo()
        assert kept.check(*world.call()), explain(kept.check, *world.call())
    assert eager(world) == before


@pytest.mark.parametrize("name", UNRELATED)
def test_each_unrelated_change_goes_unnoticed(made, name):
    random.seed(name)
    world, kept = made
    undo = UNRELATED[name](world)
    try:
        assert not explain(kept.check, *world.call())
        assert kept.check(*world.call())
        assert outcome(lambda: kept.run(world.call())) == eager(world)
    finally:
        undo()


@pytest.mark.parametrize("seed", range(10))
def test_random_changes(made, seed):
    """100 rounds of up to four changes, against what eager gives."""
    random.seed(seed)
    world, kept = made
    changes = {**ALTERING, **UNRELATED}
    for number in range(100):
        names = random.sample(list(changes), random.randint(1, 4))
        undo = []
        try:
            for name in names:
                try:
                    undo.append(changes[name](world))
                except Exception:
                    continue  # this change needs what another took away
            holds = kept.check(*world.call())
            assert holds or set(names) & set(ALTERING), names
            if number % 10 == 0:
                assert holds != bool(explain(kept.check, *world.call()))
            if holds:
                got = outcome(lambda: kept.run(world.call()))
                assert got == eager(world), names
        finally:
            for each in reversed(undo):
                each()
        assert kept.check(*world.call()), names
    assert torch.is_grad_enabled()
