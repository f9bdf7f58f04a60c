"""Functions cut at every instruction still give what Python gives.

No tensor and no compiler: each function is traced up to an instruction,
CPython performs that one, and the continuations, made of bytecode, run
the rest. What a version of Python does differently shows here first.
"""

# ruff: noqa: B018, B904, E731, UP028

import collections
import contextlib

import pytest

from .stepwise import every_cut

FUNCTIONS = []


def cut(*arguments):
    """Register a function with the arguments of its calls."""
    def register(function):
        FUNCTIONS.extend((function, each) for each in arguments)
        return function
    return register


def outcome(function, *args):
    """The result, or the type and text of the exception."""
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error), str(error)


@cut((3, 2))
def plain(a, b):
    c = a + b
    d = c * 2
    return c, d, [a, b, {"k": d}], f"{a}-{b:>5}"


@cut((3, 2), (0, 9))
def loops(n, m):
    total, seen = 0, []
    for i in range(n):
        for j, k in zip(range(m), [5, 6, 7]):
            if i == j:
                continue
            total += i * j + k
            seen.append((i, j))
        else:
            total += 10
    while total > 10:
        total -= 7
    return total, seen


@cut((3, 2), (5, 0))
def tries(a, b):
    seen = []
    try:
        seen.append(1)
        try:
            seen.append(a // b)
        except ZeroDivisionError as error:
            seen.append(str(error))
            raise ValueError("x")
        finally:
            seen.append("finally")
    except ValueError as error:
        seen.append(type(error).__name__)
    try:
        {}["k"]
    except (KeyError, TypeError):
        seen.append("missing")
    return seen


@cut((3, 2))
def closures(a, b):
    n = 0

    def inc(k=1):
        nonlocal n
        n += k
        return n

    inc()
    inc(b)
    z = [inc(i) for i in range(3)]
    return n, z, (lambda q: q + n)(a)


def outer(x, *args, k=3, **more):
    y = x + k
    if args:
        y += sum(args)
    return inner(y) + len(more)


def inner(x):
    try:
        return 10 // (x - 5)
    except ZeroDivisionError:
        return -1


@cut((3, 2))
def calls(a, b):
    return [outer(a), outer(b, 1, 2, k=4), outer(a, z=1), max(a, b),
            sorted([3, 1, 2], key=lambda v: -v)]


class Base:
    def __init__(self, v):
        self.v = v

    def method(self, q):
        return self.v + q

    @property
    def double(self):
        return self.v * 2


class Derived(Base):
    K = 3

    def __init__(self, v):
        super().__init__(v)
        self.w = v + 1

    def method(self, q):
        return super().method(q) * __class__.K


@cut((3, 2))
def objects(a, b):
    o = Derived(a)
    o.v += b
    return (o.method(b), o.double, o.w, [x.v for x in (Base(1), Base(2))],
            {k: v for k, v in zip("ab", (a, b))})


class Manager:
    left = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.left = kind
        return False


@cut((3, 2), (5, 0))
def managers(a, b):
    manager = Manager()
    try:
        with manager as d:
            x = a // b
            d.q = x
    except ZeroDivisionError:
        x = -5
    with contextlib.suppress(KeyError):
        {}[x]
    return x, manager.left


@cut((3, 2))
def unpacking(a, b):
    x, *y = [a, b, 3]
    z = [*y, a]
    p = {**{"a": 1}, "b": b}
    del x
    if a and b or z:
        y.append(1)
    return (y, z, p, a < b < 3, not a, z[1:2], z[-1],
            (lambda *a, **k: (a, k))(*z, **p))


@cut((2, 1))
def generators(a, b):
    def first(n):
        for i in range(n):
            yield i
        return 5

    def second(n):
        r = yield from first(n)
        yield r

    return (list(first(a)), sum(x for x in first(b)), list(second(2)),
            [y for y in map(lambda v: v + 1, first(3))])


@cut((1,))
def unbound(a):
    if a > 100:
        q = 1
    del a
    try:
        return q
    except UnboundLocalError:
        return "unbound"


@cut((3, 2))
def collected(a, b):
    d = collections.OrderedDict()
    d["x"] = a
    for _, v in d.items():
        b += v
    it = iter([1, 2, 3])
    next(it)
    return b, d, list(it), [*enumerate("abc", 2)], list(reversed([1, 2]))


@cut(((1, 2),), ({"a": 3},), (7,), ("no",))
def matching(value):
    match value:
        case (a, b):
            return a + b
        case {"a": a}:
            return a
        case int() as n if n > 5:
            return n
        case _:
            return "nothing"


@cut((4,))
def raising(a):
    names = {"b": 1}
    return names[a]


@pytest.mark.parametrize("function, args", FUNCTIONS,
                         ids=[f.__name__ for f, _ in FUNCTIONS])
def test_every_cut(function, args):
    want, cuts = outcome(function, *args), 0
    for moment, run in every_cut(function, lambda: args):
        assert outcome(run) == want, moment
        cuts += 1
    assert cuts
