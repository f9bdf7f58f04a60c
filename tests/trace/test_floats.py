"""Floats that vary: what Python computes of them, to the last bit."""

import collections
import math
import random
import string  # noqa: F401
import struct
import types  # noqa: F401

import pytest
import torch
from torch.optim import lr_scheduler

import minicompile

#: Expressions of floats s and t; n is a size, i an int that varies.
EXPRESSIONS = """s - s
s * 0
0 * s
s * -0.0
s + 0
s + 0.0
-s
+s
abs(s)
s - t + t
(s * 0.1) * 3
s / t * t
s / s
1 / s
s // 1
-0.0 // 1 + s
s // t
s % t
s % 1
-s % 3
s ** 2
s ** 0
s ** 0.5
2 ** s
s ** -1
s ** t
(-2.0) ** s
-2.0 ** s
s * s - s * s
max(s, 0.25)
max(s, 0)
max(0.0, -s)
min(s, t)
min(s, t, 1)
math.copysign(1, -s)
math.copysign(s, t)
math.copysign(0.0, s)
math.sqrt(abs(s))
math.sqrt(s)
math.exp(s)
math.log2(s)
math.log(abs(s) + 1, 3)
math.sin(s) * 0
math.floor(s)
math.ceil(s)
math.trunc(s)
math.fmod(s, t)
math.hypot(s, t)
math.cos(math.pi * n / 50) * s
s * (n * 0.1 * 3)
n * 0.1 + 0.2 + 0.3 - s
math.log(n) + s
math.gcd(n, s)
math.ldexp(s, 3)
math.fsum([s, t, -s])
math.prod([s, 0])
sum([s, t, -s])
round(s)
round(s, 1)
round(s, ndigits=1)
int(s)
int(s * 100) * 2
float(s)
float(int(s))
bool(s)
divmod(s, 0.75)
complex(s, -s)
s == 0
s < t
(s < t) + s
s != s
not s
s > 10 ** 30
s == 2 ** 53 + 1
s if s > t else t
s and t
s or -0.0
t if s == t else s
s is s
s in (0.0, 0.5)
[s, t].index(s)
sorted([s, t, 0.0])
math.isnan(s)
math.isfinite(s - t)
s.is_integer()
(s * 4).hex()
str(s)
s * n
s / n - s
n / 2 * s
s * i
i * s - i * s
i ** s
True * s
s - True
pow(s, 2)
pow(s, 3) * 0
(lambda z: z - z)(s * 3)
s.real - s.imag
s.__neg__()
s.__add__(1)
struct.pack("d", s)
list(map(abs, [s, -t]))
[a * 0 for a in (s, t)]
dict(a=s)["a"] * 0""".splitlines()

#: What s is in one call after another, with t.
USUAL = ((0.5, 1.5), (0.7, -0.3), (0.9, 2.5))
ODD = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, math.inf, -math.inf,
       math.nan, 2.5, 3.5, 2.0**53, 0.1, 1e30)


def bits(value):
    """A value in which no two floats look alike."""
    if isinstance(value, float):
        return float, "nan" if value != value else struct.pack("d", value)
    if isinstance(value, complex):
        return complex, bits(value.real), bits(value.imag)
    if isinstance(value, (tuple, list)):
        return [type(value), *map(bits, value)]
    if isinstance(value, torch.Tensor):
        return bits(value.tolist())
    return type(value), value


def outcome(function, *args):
    """What a call gives, or the class of its exception."""
    try:
        return bits(function(*args))
    except Exception as error:
        return type(error)


@pytest.mark.slow(sample=60)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_as_python_computes(text):
    expression = eval(f"lambda s, t, n, i: {text}", globals())

    def program(x, s, t, i):
        value = expression(s, t, x.shape[0], i)
        return value, x * value if type(value) in (int, float) else x

    random.seed(text)
    x = torch.tensor([1.5, -2.5, 0.0], dtype=torch.float64)
    odd = [(random.choice((s, 0.5)), random.choice((0.75, -0.0, s)))
           for s in random.sample(ODD, 6)]
    compiled = minicompile.compile(program, backend="eager", options={
        "recompile_limit": 50, "accumulated_recompile_limit": 50})
    for i, (s, t) in enumerate([*USUAL, *odd, *((s, 2.0) for s in ODD)]):
        args = x, s, t, (i + 2) % 5
        assert outcome(compiled, *args) == outcome(program, *args), (s, t)


@pytest.mark.parametrize("text", [
    "s * 0.1 - s", "s - s", "-s / 3", "1 - s ** 2 * 0.3", "abs(-s)",
    "max(s, 0.25)", "round(s, 2)", "float(s) * n", "math.exp(s)",
    "math.hypot(s, 2)", "math.cos(math.pi * n / 50) * s", "s ** 2 // 0.3",
    "s % 1"])
def test_one_graph_for_all(text):
    expression = eval(f"lambda s, n: {text}", globals())
    compiled = minicompile.compile(
        lambda x, s: x * expression(s, x.shape[0]), backend="eager",
        fullgraph=True)
    x = torch.ones(2)
    for s in (0.5, 0.7, 1.9, 2.3, 3.1, 0.3):
        assert bits(compiled(x, s)) == bits(x * expression(s, 2))
    assert compiled.stats().graphs <= 2


@pytest.mark.parametrize("text", [
    "n * 0.1 * 3 * n", "int(n * 0.29 * 100)", "float(n) // 0.001",
    "n * 0.0 * (3 - n)", "-n * 0.7 % 0.1", "max(n * 0.5, n)",
    "round(n / 3 * 0.9, 2)", "math.log(n + 1)", "math.gcd(n, 6)",
    "math.cos(n / 50 * math.pi)", "1 - 0.999 ** n"])
def test_ints_among_floats(text):
    function = eval(f"lambda x, n: (x * ({text}), {text})", globals())
    compiled = minicompile.compile(function, backend="eager",
                                   fullgraph=True)
    x = torch.ones(2, dtype=torch.float64)
    for n in (4, 3, 7, 29, 100, 57, 58, 10**6 + 1):
        assert bits(compiled(x, n)) == bits(function(x, n))
    assert compiled.stats().graphs <= 3  # n > 3 is asked


@pytest.mark.parametrize("text", [
    "divmod(s ** 2, 0.3)[1]", "math.fsum([s, s])"])
def test_other_functions_are_given_a_constant(text):
    function = eval(f"lambda x, s: x * ({text})", globals())
    compiled = minicompile.compile(function, backend="eager")
    x = torch.ones(2)
    for s in (0.5, 0.7, 1.9):
        assert bits(compiled(x, s)) == bits(function(x, s))
    stats = compiled.stats()
    assert stats.graphs == 3 and not stats.graph_breaks


def test_containers_take_numbers_that_are_no_floats():
    def program(x, s):
        kept, table = [2**60], {}
        kept.append(2**60 + 1)
        table[2**61] = kept.index(2**60 + 1)
        return x * s, kept, table

    compiled = minicompile.compile(program, backend="eager", fullgraph=True)
    for s in (0.5, 0.7, 0.9):
        assert compiled(torch.ones(2), s)[1:] == ([2**60, 2**60 + 1],
                                                  {2**61: 1})


def test_an_int_of_a_float_may_be_too_large():
    def program(x, s):
        return x.repeat(math.floor(s) % 3 + 1) * 2

    compiled = minicompile.compile(program)
    for s in (0.5, 1.5, 4.5, 1e20, -1e300, 2.5):
        x = torch.randn(3)
        assert bits(compiled(x, s)) == bits(program(x, s))


def test_text_does_not_explode():
    def program(x, s):
        for _ in range(40):
            s = s * (1 - s) * 3
        return x * s

    compiled = minicompile.compile(program, backend="eager")
    x = torch.ones(2, dtype=torch.float64)
    for s in (0.5, 0.7, 0.6, 0.3):
        assert bits(compiled(x, s)) == bits(program(x, s))


Pair = collections.namedtuple("Pair", "a b")

#: What C code prints of containers, and of an exception.
TEXTS = """[s]
{"lr": s}
Pair(s, (n, [s]))
collections.deque([s])
collections.OrderedDict(a=s)
collections.defaultdict(int, a=s)
{1: s}.items()
{1: s}.values()
types.MappingProxyType({"a": s})
[x.shape[0] / 4]
ValueError("big", s, n)
[KeyError(s * 10)]
string.Template("$a").substitute(a=s)
"%(a)s" % {"a": s}
"{a}".format_map({"a": s})
"{a[0]}".format(a=[s])""".splitlines()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("text", TEXTS)
def test_text_is_pythons(text, dynamic):
    made = eval(f"lambda x, s, n: {text}", globals())

    def program(x, s):
        made_now = made(x, s, x.shape[0])
        return x * s, str(made_now), repr(made_now), f"{made_now}"

    compiled = minicompile.compile(program, backend="eager",
                                   dynamic=dynamic)
    for size, s in (2, 1.5), (3, 2.5), (4, -0.0), (5, 1e22):
        x = torch.ones(size)
        assert compiled(x, s)[1:] == program(x, s)[1:]


@pytest.mark.parametrize("first", ["int(s % 1)", "str(s)",
                                   "torch.tensor(s)"])
def test_a_constant_keeps_its_sign(first):
    program = eval(f"lambda x, s: (x, {first}, s // 1)", globals())
    compiled = minicompile.compile(program, backend="eager")
    x = torch.ones(2)
    for s in (0.5, 0.7, -0.0, 0.0):
        assert bits(compiled(x, s)[2]) == bits(program(x, s)[2])


@pytest.mark.parametrize("schedule", [
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 50),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 50)])
def test_a_schedule_is_no_constant(schedule):
    def made():
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        scheduler = schedule(optimizer)

        def step():
            weight.grad = torch.full_like(weight, 0.5)
            optimizer.step()
            scheduler.step()
            return weight * 2, scheduler.get_last_lr()
        return step

    eager, compiled = made(), minicompile.compile(made(), backend="eager")
    for _ in range(12):
        assert bits(compiled()) == bits(eager())
    assert compiled.stats().graphs <= 4
