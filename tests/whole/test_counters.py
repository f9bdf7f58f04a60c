"""A number that the program itself counts up: compiled twice, not always.

The first call takes it for a constant. The second finds it changed where
an earlier trace wrote to it, so it becomes a symbol.
"""

import pytest
import torch
from torch import nn

import minicompile

COUNT, TABLE, ITEMS = 0, {"calls": 0}, [0, 5]


class Kept:
    calls = 0


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.linear = 0, nn.Linear(3, 3)

    def forward(self, x):
        self.steps += 1
        return self.linear(x) * self.scale()

    def scale(self):
        return 1


class Scaled(Counting):
    def scale(self):
        return self.steps


class Sometimes(Counting):
    def scale(self):
        return 2 if self.steps % 5 == 0 else 1


class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = 0, torch.zeros(3)

    def forward(self, x):
        steps, total = self.state
        self.state = steps + 1, total + x
        return self.state[1] / self.state[0]


def counted_globally(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def in_a_dict(x):
    TABLE["calls"] += 2
    return x + TABLE["calls"]


def in_a_list(x):
    ITEMS[0] += 1
    return x * ITEMS[0] + ITEMS[1]


def on_a_class(x):
    Kept.calls += 1
    return x * Kept.calls


def in_a_cell():
    count = 0

    def program(x):
        nonlocal count
        count -= 1
        return x * count
    return program


PROGRAMS = {
    "attribute": Counting, "used": Scaled, "in a tuple": Averaging,
    **{each.__name__: lambda each=each: each for each in (
        counted_globally, in_a_dict, in_a_list, on_a_class)},
    "cell": in_a_cell}


def results(make, compile):
    """14 calls of a program that starts to count anew."""
    global COUNT
    torch.manual_seed(0)
    COUNT = TABLE["calls"] = ITEMS[0] = Kept.calls = 0
    program = compile(make())
    return program, [program(torch.arange(3.0)) for _ in range(14)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_counter_compiles_twice(name):
    _, expected = results(PROGRAMS[name], lambda program: program)
    compiled, got = results(PROGRAMS[name], minicompile.compile)
    for one, two in zip(expected, got):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    assert compiled.stats().graphs <= 2
    for cache in compiled.cache.family():
        assert len(cache.entries) <= 2
    assert "recompile limit" not in compiled.stats().fallbacks


def test_a_branch_on_a_counter_compiles_once_more():
    _, expected = results(Sometimes, lambda program: program)
    compiled, got = results(Sometimes, minicompile.compile)
    for one, two in zip(expected, got):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    assert compiled.stats().recompiles == 2


def test_a_number_that_nobody_counts_stays_a_constant():
    """What a module was made with is worth a graph of its own."""
    module = Scaled()
    module.width = 2
    compiled = minicompile.compile(lambda x: x * module.width)
    for width in (2, 3, 4):
        module.width = width
        assert compiled(torch.ones(2)).tolist() == [width] * 2
    assert compiled.stats().graphs == 3
    assert compiled.stats().dynamic == []
