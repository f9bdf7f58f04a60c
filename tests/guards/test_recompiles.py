"""No more compilations than torch.compile needs, change by change."""

import math
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


class Stale:
    """A backend that counts, and sees when a graph gets other inputs."""

    def __init__(self):
        self.graphs, self.reused = 0, False

    def __call__(self, graph, example_inputs):
        self.graphs += 1
        known = [x.shape for x in example_inputs
                 if isinstance(x, torch.Tensor)]

        def run(*inputs):
            shapes = [x.shape for x in inputs if isinstance(x, torch.Tensor)]
            self.reused |= any(
                type(size) is int and size != is_now
                for shape, new in zip(known, shapes)
                for size, is_now in zip(shape, new))
            return graph(*inputs)
        return run


@pytest.fixture
def pair(monkeypatch):
    """The program compiled by both, and how often each has compiled.

    It reads no containers or switches: torch.compile breaks there.

    Where torch.compile reuses a graph that is out of date (2.11 does so when
    a function's default or a weight's shape changes), that is infinite.
    """
    torch._dynamo.reset()
    monkeypatch.setattr("tests.guards.world.contained", lambda h: h)
    world, counter = World(), Stale()
    ours = minicompile.compile(world.program, backend="eager")
    theirs = torch.compile(world.program, backend=counter)

    def call():
        locals, _ = world.call()
        want = world.program(*locals)
        torch.testing.assert_close(ours(*locals), want)
        right = torch.equal(theirs(*locals), want) and not counter.reused
        return ours.stats().graphs, counter.graphs if right else math.inf
    yield world, call
    torch._dynamo.reset()


@pytest.mark.slow(sample=3)
@pytest.mark.parametrize("name", CASES)
def test_one_change_and_back(pair, name):
    random.seed(name)
    world, call = pair
    assert call() == (1, 1)
    undo = ALTERING[name](world)
    ours, theirs = call()
    assert ours <= theirs
    undo()
    assert call()[0] == ours


def test_all_unrelated_changes_in_a_row(pair):
    random.seed(0)
    world, call = pair
    for name in UNRELATED:
        undo = UNRELATED[name](world)
        assert call()[0] == 1, name
        undo()
    assert call()[0] == 1


def test_a_new_closure_of_the_same_code_is_the_same_program():
    def apply(function, x):
        return function(x)

    counter = torch._dynamo.testing.CompileCounter()
    ours = minicompile.compile(apply, backend="eager")
    theirs = torch.compile(apply, backend=counter)
    for _ in range(4):
        for each in (ours, theirs):
            each(lambda x: x * 2, torch.ones(2))
    assert counter.frame_count <= 4
    assert ours.stats().graphs <= counter.frame_count


def made(number, key=None):
    def inner(x):
        return x + number
    return inner


def either(a, b, x):
    return a(x) * (2 if a is b else 3)


def named(a, b, x):
    return a(x), {a: 1}.get(b, 0), f"{a}" == str(b), sorted(
        [3, 1], key=lambda n: -n)


def kept(a, b, x):
    return [a, b], a(x)


@pytest.mark.parametrize("program", [either, named, kept])
def test_functions_known_by_code_are_still_told_apart(program):
    compiled = minicompile.compile(program, backend="eager")
    x = torch.ones(1)
    one, two, three = made(1), made(2), made(1)
    for a, b in ((one, two), (one, one), (two, one), (two, two),
                 (three, one), (three, three), (made(5), made(6))):
        assert compiled(a, b, x) == program(a, b, x)


def test_a_function_of_the_same_code_with_other_globals():
    import types
    scope = {"K": 1}
    exec("def outer():\n def inner(x): return x + K\n return inner", scope)
    inner = scope["outer"]()
    other = types.FunctionType(inner.__code__, {"K": 5})
    other.__qualname__ = inner.__qualname__
    compiled = minicompile.compile(lambda f, x: f(x), backend="eager")
    for function in (inner, other, inner):
        x = torch.zeros(1)
        assert compiled(function, x) == function(x)


def test_a_closure_s_defaults_and_marks_are_read():
    def maker(by):
        def inner(x, by=by, *, plus=0):
            return x * by + plus
        return inner
    compiled = minicompile.compile(lambda f, x: f(x), backend="eager")
    x = torch.ones(1)
    for by in (2, 3, 3, 2):
        assert compiled(maker(by), x).item() == by
    special = maker(2)
    special.__kwdefaults__ = {"plus": 4}
    assert compiled(special, x).item() == 6
    assert compiled(minicompile.disable(maker(2)), x).item() == 2


class Scaled:
    def __init__(self, by):
        self.by = by

    def times(self, x):
        return x * self.by

    def plus(self, x):
        return x + self.by


def test_a_bound_method_is_known_by_its_function_and_its_object():
    compiled = minicompile.compile(lambda f, x: f(x), backend="eager",
                                   dynamic=False)
    thing, x = Scaled(2), torch.ones(1)
    for _ in range(12):  # each `thing.times` is an object of its own
        assert compiled(thing.times, x).item() == 2
    assert compiled.stats().graphs == 1
    assert compiled(thing.plus, x).item() == 3
    assert compiled(Scaled(5).times, x).item() == 5
    assert compiled.stats().graphs == 3
