"""Comparisons of symbolic numbers: each is asked where it is made.

What a program does with `n > 3` is judged by eager; that it costs one graph
for each answer, by counting.
"""

import collections
import copy
import functools
import math
import operator
from dataclasses import dataclass

import pytest
import torch
import torch._dynamo.testing
from torch.nn import functional as F

import minicompile
from tests.same import close

NUMBERS = (2, 5, 3, 7, 4)
FLOATS = torch.tensor([1.5, -2.5, 3.0])
INTS = torch.tensor([1, 2, 4])
STORED = {}


class Box:
    pass


@dataclass
class Flags:
    large: bool
    even: bool = False


Pair = collections.namedtuple("Pair", "a b")


def scaled(x, by):
    return x * by


def boxed(x, n):
    box = Box()
    box.flag = n > 3
    return x + box.flag, box.flag


def listed(x, n):
    flags = [n > 3]
    flags.append(n % 2 == 0)
    return x * flags[0] + flags[-1], flags


def stored(x, n):
    STORED["large"] = n > 3
    return x + 1


def data(x, n):
    flags = Flags(n > 3)
    return x * flags.large, flags


#: A truth as a number, an argument, a result: torch.compile asks nothing.
AS_VALUES = {
    "x +": lambda x, n: x + (n > 3), "+ x": lambda x, n: (n > 3) + x,
    "x *": lambda x, n: x * (n == 3), "!=": lambda x, n: x * (n != 3),
    "inner": lambda x, n: scaled(x, n <= 3),
    "twice": lambda x, n: x * (n > 3) + (n > 4) * x + (n > 5),
    "even": lambda x, n: x + (n % 2 == 0),
    "half": lambda x, n: x + (n / 2 > 1.7),
    "and": lambda x, n: x + ((n > 3) & (n < 6)),
    "or": lambda x, n: x + ((n > 3) | (n == 2)),
    "where": lambda x, n: torch.where(x > 0, x, n > 3),
    "full": lambda x, n: x + torch.full((3,), n > 3),
    "fill": lambda x, n: x.clone().fill_(n > 3),
    "masked": lambda x, n: x.masked_fill(x > 2, n > 3),
    "set": lambda x, n: (y := x.clone(), operator.setitem(y, 0, n > 3))[0],
    "compared": lambda x, n: x == (n > 3),
    "clamp": lambda x, n: x.clamp(n > 3),
    "float": lambda x, n: x * float(n > 3) * 1.5 + float(n == 3),
    "bool": lambda x, n: x + bool(n > 3),
    "class": lambda x, n: x * isinstance(n > 3, bool) * (type(n > 3) is bool),
    "returned": lambda x, n: (x + 1, n > 3),
    "box": boxed, "list": listed, "data": data, "stored": stored,
    "product": lambda x, n: x.reshape(1, 3) @ x.reshape(3, 1) * (n > 3),
    "size": lambda x, n: x[:, None].expand(3, n).sum(1) * (n > 3)}

#: How many more graphs there are: one for each further set of answers.
ANSWERS = {**dict.fromkeys(AS_VALUES, 1), **dict.fromkeys(
    ("and", "or", "float", "short", "chained"), 2), "list": 3, "twice": 3}

#: Here it is asked, as torch.compile asks, or says no.
ASKED = {
    "if": lambda x, n: x if n > 3 else x + 1,
    "not": lambda x, n: x + (not n > 3),
    "short": lambda x, n: x + (n > 3 and n < 6),
    "chained": lambda x, n: x + (3 < n < 6),
    "int": lambda x, n: x + int(n > 3),
    "sum": lambda x, n: x + ((n > 3) + (n > 5)),
    "slice": lambda x, n: x[:(n > 3) + 1],
    "text": lambda x, n: x + len(str(n > 3))}


def values_at(compiled, program, x, n):
    """Results, stored values and gradient, ours beside eager's."""
    sides = []
    for function in (compiled, program):
        STORED.clear()
        y = x.clone().requires_grad_(x.is_floating_point())
        made = function(y, n)
        first = made if torch.is_tensor(made) else made[0]
        if first.requires_grad:
            first.sum().backward()
        sides.append((made, dict(STORED), y.grad))
    ours, wanted = sides
    close(ours, wanted)
    assert repr(ours[1]) == repr(wanted[1])
    if type(wanted[0]) is tuple:
        assert repr(ours[0][1:]) == repr(wanted[0][1:])


@pytest.mark.parametrize("form", AS_VALUES)
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_graph_for_each_answer(form, backend):
    program = AS_VALUES[form]
    compiled = minicompile.compile(program, backend=backend, fullgraph=True)
    for n in NUMBERS:
        values_at(compiled, program, FLOATS, n)
    assert compiled.stats().graphs <= 2 + ANSWERS[form]
    assert not compiled.stats().fallbacks


@pytest.mark.parametrize("form", ["x +", "x *", "or", "where",
                                  "fill", "twice"])
@pytest.mark.parametrize("x", [INTS, INTS > 1], ids=["ints", "truths"])
def test_other_tensors(form, x):
    compiled = minicompile.compile(AS_VALUES[form], fullgraph=True)
    for n in NUMBERS:
        values_at(compiled, AS_VALUES[form], x, n)
    assert not compiled.stats().fallbacks


@pytest.mark.slow(sample=16)
@pytest.mark.parametrize("form", [*AS_VALUES, *ASKED])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("x", [FLOATS, INTS], ids=["floats", "ints"])
def test_hardly_more_compiles_than_torch_compile(form, dynamic, x):
    """Each answer that torch.compile leaves open is one graph more."""
    torch._dynamo.reset()
    program = (AS_VALUES | ASKED)[form]
    counter = torch._dynamo.testing.CompileCounter()
    theirs = torch.compile(program, backend=counter, dynamic=dynamic)
    ours = minicompile.compile(program, backend="eager", dynamic=dynamic)
    for n in NUMBERS:
        values_at(ours, program, x, n)
        theirs(x, n)
    assert ours.stats().graphs <= counter.frame_count + ANSWERS.get(form, 0)


def test_floats_compare_too():
    compiled = minicompile.compile(lambda x, p: x * (p * 0.1 > 0.05))
    x = torch.ones(3)
    for p in (0.1, 0.7, 0.4, 0.9, 0.5, 0.500001):
        close(compiled(x, p), x * (p * 0.1 > 0.05))
    assert compiled.stats().graphs <= 3


def gathered(ask):
    """A program that puts what `ask(n)` says, as text, beside a tensor."""
    return lambda x, n: (x + 1, str(ask(n)))


def halves(n):
    yield from (n > k for k in (3, 5))


def matched(n):
    match n > 3:
        case True:
            return "large"
        case bool():
            return "small"


def raised(n):
    try:
        raise ValueError(n > 3)
    except ValueError as error:
        return error.args


#: What C code, or Python by identity, makes of a truth.
IN_C = {
    "is": lambda n: (n > 3) is True, "is not": lambda n: (n > 3) is not False,
    "== 1": lambda n: (n > 3) == 1, "== 0.0": lambda n: (n > 3) == 0.0,
    "== True": lambda n: (n > 3) == True,  # noqa: E712
    "<": lambda n: (n > 3) < (n > 5), "+": lambda n: (n > 3) + 1,
    "r+": lambda n: 1 + (n > 3), "n *": lambda n: n * (n > 3),
    "n &": lambda n: (n & (n > 3), (n > 3) & n, (n > 3) & 2, 2 | (n > 3)),
    "^": lambda n: (n > 3) ^ (n < 6), "~": lambda n: ~(n > 3),
    "-": lambda n: -(n > 3), "+n": lambda n: +(n > 3),
    "&": lambda n: ((n > 3) & (n < 6), (n > 3) | True, True & (n > 3)),
    "abs": lambda n: abs(n > 3), "round": lambda n: round(n > 3),
    "sqrt": lambda n: math.sqrt(n > 3), "pow": lambda n: 2 ** (n > 3),
    "index": lambda n: ("no", "yes")[n > 3], "letter": lambda n: "ab"[n > 3],
    "slice": lambda n: "abc"[:n > 3], "range": lambda n: [*range(n > 3)],
    "repeat": lambda n: "ab" * (n > 3), "bits": lambda n: (n > 3).bit_length(),
    "real": lambda n: (n > 3).real, "text": lambda n: f"{n > 3!r:>7}",
    "format": lambda n: f"{[n > 3]} {n > 3}",
    "percent": lambda n: "%s %d" % (n > 3, n > 5),  # noqa: UP031
    "of lists": lambda n: [n > 3, [n > 5]], "of tuples": lambda n: ((n > 3,),),
    "of dicts": lambda n: {"a": n > 3, (n > 3): 1},
    "of sets": lambda n: {n > 3, n > 5, True},
    "sorted": lambda n: sorted([n > 3, n > 5, n > 1]),
    "sorted tuples": lambda n: sorted([(n > 3, 1), (n > 5, 0)]),
    "sorted by": lambda n: sorted([5, 2, 4], key=lambda k: n > k),
    "generator": lambda n: sorted(halves(n)),
    "largest": lambda n: max(halves(n)), "min": lambda n: min(n > 3, n > 5),
    "sort": lambda n: (v := [n > 3, n < 3], v.sort(), v)[-1],
    "count": lambda n: [1, 0, True].count(n > 3),
    "position": lambda n: [0, 1].index(n > 3),
    "in": lambda n: (n > 3) in (1, 2), "in list": lambda n: 1 in [n > 3],
    "tuples": lambda n: (n > 3, 1) == (1, True),
    "lists": lambda n: [n > 3] == [1], "key": lambda n: {1: "a"}.get(n > 3),
    "any": lambda n: any([n > 3, n > 5]), "all": lambda n: all(halves(n)),
    "sum": lambda n: sum([n > 3, n > 5]),
    "prod": lambda n: math.prod([n > 3, 3]),
    "reduce": lambda n: functools.reduce(operator.add, [n > 3, n > 5]),
    "filter": lambda n: [*filter(None, [n > 3, n > 5])],
    "map": lambda n: [*map(lambda k: n > k, (3, 5))],
    "zip": lambda n: [*zip([n > 3], halves(n))],
    "deque": lambda n: collections.deque([n > 3]),
    "counter": lambda n: sorted(collections.Counter([n > 3, n > 5]).items()),
    "copy": lambda n: copy.copy([n > 3]), "pair": lambda n: Pair(n > 3, n),
    "pairs": lambda n: Pair(n > 3, 1) == (1, True),
    "flags": lambda n: (Flags(n > 3) == Flags(True), Flags(n > 3).large),
    "partial": lambda n: functools.partial(max, n > 3)(0, False),
    "match": matched, "raise": raised, "hash": lambda n: hash(n > 3),
    "complex": lambda n: complex(n > 3), "int": lambda n: int(n > 3),
    "divmod": lambda n: divmod(n > 3, 2), "not": lambda n: not n > 3,
    "itself": lambda n: (t := (n > 3,)) is t}


@pytest.mark.parametrize("form", IN_C)
def test_c_code_sees_a_bool(form):
    program = gathered(IN_C[form])
    compiled = minicompile.compile(program, backend="eager", dynamic=True)
    for n in (*NUMBERS, 6):
        made, wanted = compiled(torch.ones(2), n), program(torch.ones(2), n)
        assert made[1] == wanted[1]


def switched(x, n):
    with torch.set_grad_enabled(n > 3):
        return x * 2


def autocast(x, n):
    with torch.autocast("cpu", enabled=n > 3):
        return x.reshape(1, 3) @ x.reshape(3, 1)


def broken(x, n):
    large = n > 3
    minicompile.graph_break()
    return x * large, large is True


def yielded(x, n):
    for large in halves(n):
        x = x * 2 + large
    return x


def chosen(x, n):
    return torch.cond(n > 3, lambda x: x + 1, lambda x: x - 1, (x,))


@pytest.mark.parametrize("program", [
    switched, autocast, broken, yielded, chosen,
    lambda x, n: x.sum(0, keepdim=n > 3), lambda x, n: x.sort(descending=n > 3),
    lambda x, n: F.dropout(x, 1.0, training=n > 3), lambda x, n: x[n > 3],
    lambda x, n: (x * 0.5).std(unbiased=n > 3), lambda x, n: x ** (n > 3),
    lambda x, n: x + torch.tensor([n > 3, True, False]),
    lambda x, n: x.clone().requires_grad_(n > 3) * 2,
    lambda x, n: x.repeat((n > 3) + 1), lambda x, n: x.sum(int(n > 3) - 1)])
@pytest.mark.parametrize("x", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("backend", ["eager", "fused"])
def test_where_torch_wants_a_bool(program, x, backend):
    compiled = minicompile.compile(program, backend=backend)
    for n in (*NUMBERS, 2, 6):
        sides = []
        for function in (compiled, program):
            y = x.clone().requires_grad_(x.is_floating_point())
            try:
                made = function(y, n)
            except Exception as error:
                made = type(error)
            grads = getattr(made, "requires_grad", None)
            sides.append((made, grads))
        close(*sides)
