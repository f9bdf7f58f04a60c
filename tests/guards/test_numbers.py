"""Ints, floats, bools and strings: no more compiles than torch.compile's.

A value is read from every place that a program can read one from, and
takes one value after another.
"""

import math

import pytest
import torch
import torch._dynamo.testing
from torch import nn

import minicompile
from tests.same import close

GLOBAL = 0
TABLE = {"n": 0}


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        return use(x, self.n)


class Thing:
    def __init__(self, n):
        self.n = n


def use(x, n):
    """Something for each kind of value."""
    if isinstance(n, str):
        return x + len(n)
    return x * n


def of_argument():
    return lambda x, n: use(x, n), lambda n: (n,)


def of_default():
    def program(x, *, n=0):
        return use(x, n)
    return program, lambda n: program.__kwdefaults__.update(n=n)


def of_module():
    layer = Layer(0)
    return layer, lambda n: setattr(layer, "n", n)


def of_attribute():
    thing = Thing(0)

    def program(x, thing):
        return use(x, thing.n)
    return program, lambda n: (setattr(thing, "n", n), (thing,))[1]


def of_closed_attribute():
    thing = Thing(0)

    def program(x):
        return use(x, thing.n)
    return program, lambda n: setattr(thing, "n", n)


def of_global():
    def program(x):
        return use(x, GLOBAL)
    return program, lambda n: globals().update(GLOBAL=n)


def of_table():
    def program(x):
        return use(x, TABLE["n"])
    return program, lambda n: TABLE.update(n=n)


def of_closure():
    number = 0

    def program(x):
        return use(x, number)

    def turn(n):
        nonlocal number
        number = n
    return program, turn


def of_list():
    return lambda x, ns: use(x, ns[1]), lambda n: ([1, n],)


def of_tuple():
    return lambda x, ns: use(x, ns[1]), lambda n: ((1, n),)


def of_dict():
    return lambda x, ns: use(x, ns["n"]), lambda n: ({"n": n},)


PLACES = {f.__name__: f for f in (
    of_argument, of_default, of_module, of_attribute, of_closed_attribute,
    of_global, of_table, of_closure, of_list, of_tuple, of_dict)}

VALUES = {
    "ints": (3, 4, 5, 6), "ints with 0 and 1": (3, 0, 1, 4, 1, 0, 7),
    "from 0": (0, 1, 2, 3, 4), "negative": (3, -1, 2, -5),
    "one int": (2, 2, 2), "floats": (0.5, 0.7, 0.9, 1.1),
    "floats with 0": (0.5, 0.0, 0.7, 0.0, 0.9),
    "from 0.0": (0.0, 0.5, 0.7, 0.9), "from 1.0": (1.0, 0.5, 0.7, 0.9),
    "signs of 0": (0.5, 0.0, -0.0, 0.3),
    "odd floats": (0.5, math.inf, 0.7, math.nan, 0.9),
    "bools": (True, False, True, False), "strings": ("a", "bb", "a", "bb"),
    "int and float": (2, 0.5, 3, 0.7, 4), "float and bool": (
        0.5, True, 0.7, False), "none": (2, 3, True, 4)}


#: Here torch.compile reuses a graph that is wrong for some of the values.
WRONG_THERE = {("signs of 0", False), ("odd floats", True)}


def compiles(make, values, compile):
    """How often a program is compiled; eager judges each call."""
    program, turn = make()
    compiled = compile(program)
    for n in values:
        x = torch.randn(3)
        more = turn(n) or ()
        close(compiled(x, *more), program(x, *more))


@pytest.mark.slow(sample=40)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_no_more_compiles_than_torch_compile(place, values, dynamic):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    made = []

    def ours(program):
        made.append(minicompile.compile(program, backend="eager",
                                        dynamic=dynamic))
        return made[0]
    compiles(PLACES[place], VALUES[values], ours)
    compiles(PLACES[place], VALUES[values], lambda program: torch.compile(
        program, backend=counter, dynamic=dynamic))
    assert made[0].stats().graphs <= counter.frame_count + (
        (values, dynamic) in WRONG_THERE)


@pytest.mark.parametrize("program, values", [
    (lambda x, n: x * n, (0.0, -0.0)),
    (lambda x, n: x + (1 if n != n else n - n), (0.5, math.inf))])
def test_where_ours_compiles_once_more_it_is_right(program, values):
    """torch.compile takes -0.0 for 0.0, and n - n for 0 if n is inf."""
    compiled = minicompile.compile(program, backend="eager", dynamic=(
        math.inf in values))
    for n in values:
        x = torch.ones(2)
        made, want = compiled(x, n), program(x, n)
        assert repr(made) == repr(want)
