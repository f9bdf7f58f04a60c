"""Python that a trace follows: one small function each."""

# ruff: noqa: UP003, UP031, UP032, B006

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
import torch.nn.functional as F

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_follows(function, follow):
    torch.manual_seed(1)
    follow(function, torch.randn(4, 3))


SCALE = 3
TABLE = {"relu": torch.relu, "tanh": torch.tanh, 3: 4}
NAMES = ["relu", "tanh"]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Mode(enum.IntEnum):
    A = 1
    B = 2


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: object
    right: object = 2

    def total(self):
        return self.left + self.right


class Base:
    factor = 2

    def __init__(self, k):
        self.k = k

    def apply(self, x):
        return x * self.k

    @property
    def double(self):
        return self.k * 2

    @classmethod
    def make(cls, k):
        return cls(k)

    @staticmethod
    def shift(x):
        return x + 1

    def __call__(self, x):
        return self.apply(x) + self.factor

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index * self.k

    def __add__(self, other):
        return Base(self.k + other)

    def __eq__(self, other):
        return self.k == other.k

    def __iter__(self):
        return iter([1, 2, self.k])

    def __contains__(self, key):
        return key == self.k


class Derived(Base):
    def __init__(self, k, more=1):
        super().__init__(k)
        self.more = more

    def apply(self, x):
        return super().apply(x) - self.more

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)


THING = Derived(4)


@program
def arithmetic(x):
    y = -x + 2 * x - x / 3
    y = y ** 2 % 5 // 2
    return y @ y.T, ~(x > 0), 7 - x, 2 ** x


@program
def inplace_operators(x):
    y = x.clone()
    y += 1
    y *= 2
    y -= x
    y /= 4
    return y


@program
def comparisons(x):
    return x > 0, x <= 1, x == x, x != 0, (x > 0) & (x < 1) | (x == 0)


@program
def shapes(x):
    rows, columns = x.shape
    if rows == x.size(0) and x.dim() == 2 and len(x) == 4:
        return x.reshape(columns, rows) * x.numel() + x.shape[-1]
    return x


@program
def indexing(x):
    return x[0], x[:, 1:], x[..., None], x[-1, 0], x[1:3], x[[0, 2]]


@program
def set_item(x):
    y = torch.zeros(4, 3)
    y[0] = x[1]
    y[:, 1] = 5.0
    y[x > 0] = -1
    return y


@program
def unpacking(x):
    a, *b = [x, x + 1, x + 2]
    (c, d), e = (b, 3)
    *f, g = x.unbind(0)
    return a + c + d * e, f, g


@program
def iterate_tensor(x):
    total = 0
    for row in x:
        total = total + row.sum()
    return total


@program
def loops(x):
    for i in range(3):
        if i == 1:
            continue
        x = x + i
    else:
        x = x * 2
    n = 0
    while n < 3:
        n += 1
        if n == 2:
            break
    return x + n


@program
def comprehensions(x):
    a = [x * i for i in range(3) if i != 1]
    b = {str(i): x + i for i in range(2)}
    c = tuple(v for v in b.values())
    d = {i for i in (1, 2, 2)}
    k = 5
    e = [x * k for _ in range(2)]
    f = [[i * j for j in range(2)] for i in range(2)]
    return a, b, c, d, e, f


@program
def dicts(x):
    d = {"a": x, "b": 2}
    d["c"] = d["a"] * d.get("b") + d.get("z", 1)
    d.update(e=1)
    del d["b"]
    both = {**d, "f": 2} | {"g": 1}
    return both, list(d), list(d.items()), "a" in d, d.pop("a"), len(d)


@program
def lists(x):
    a = [1, x]
    a.append(2)
    a.extend((3, 4))
    a.insert(0, "first")
    a[1:2] = [9, 9]
    b = a.pop()
    c = a + [b] * 2
    return a, c, c[::-1], [1, 3].index(3), sorted([3, 1, 2]), [1] < [2]


@program
def other_containers(x):
    d = deque([1, 2], maxlen=2)
    d.append(x)
    e = OrderedDict(a=1)
    e["b"] = x
    f = defaultdict(list)
    f["k"].append(x)
    s = {1, 2} | {3}
    return d, e, f["k"], s, frozenset([1]), Point(x, 2)


class Sum:
    def __add__(self, other):
        return "left"

    def __radd__(self, other):
        return "right"

    def __iadd__(self, other):
        return NotImplemented

    def __lt__(self, other):
        return type(self).__name__

    def __abs__(self):
        return "abs"


class Own(Sum):
    def __radd__(self, other):
        return "a subclass's right"


class Same(Sum):
    pass


@program
def a_subclass_is_asked_first(x):
    one = Sum()
    one += Own()
    return (x + 1, one, Sum() + Own(), Sum() + Same(), 1 + Sum(),
            Sum() < Own(), abs(Sum()))


class Money:
    def __init__(self, factor):
        self.factor = factor

    def __rmul__(self, other):
        return other.mul(self.factor)

    def __gt__(self, other):
        return other.lt(self.factor)


MONEY = Money(3)


@program
def a_tensor_leaves_it_to_the_object(x):
    y = x.clone()
    y *= MONEY
    return x * MONEY, y * Money(2), x < MONEY


class Whole(int):
    def __radd__(self, other):
        return "right"

    def __gt__(self, other):
        return "greater"


WHOLE = Whole(4)


@program
def a_number_is_asked_before_a_subclass_of_another(x):
    grown = 1.5
    grown += WHOLE
    return (x + 1, 1.5 + WHOLE, 1 + WHOLE, True + WHOLE, grown, 2.5 < WHOLE,
            2 < WHOLE)


@program
def walks_backwards(x):
    return [row * 2 for row in reversed(x)], list(zip(x, "ab"))


@program
def operators_as_functions(x):
    table, items = {1: 2, 3: 4}, [1, 2]
    operator.delitem(table, 1)
    operator.setitem(table, 5, x)
    return (table, operator.invert(x.int()), operator.pos(x),
            operator.abs(x), abs(x), operator.invert(4), abs(-2),
            operator.contains(items, 2), operator.is_not(table, items),
            operator.not_(items), operator.index(4), slice(x, 2).start)


@program
def named_tuple(x):
    p = Point(x, y=3)
    q = p._replace(y=4)
    return p.x * q.y, p, q[1]


@program
def strings(x):
    name = "relu"
    text = f"{name!r:>8}|{3.14159:.2f}|{SCALE}"
    parts = "a,b".split(",") + ["%d-%s" % (1, "q"), "{}".format(2)]
    if name.startswith("re") and "lu" in name:
        return getattr(x, name)(), text, parts, ",".join(parts).upper()
    return x


@program
def keyword_arguments(x):
    def f(a, b=2, *rest, c, d=4, **others):
        return a * b + c * d + sum(rest) + others.get("e", 0)
    args, more = (1, 2, 3), {"c": x, "e": 5}
    return f(*args, **more), f(x, c=1), f(1, x, c=2, d=3)


@program
def positional_only(x):
    def f(a, /, b, *, c=1):
        return a - b * c
    return f(x, 2), f(x, b=3, c=2)


@program
def closures(x):
    count = 0

    def add(y):
        nonlocal count
        count += 1
        return y + count + SCALE
    z = add(add(x))
    return z, count, (lambda q: q * count)(x)


@program
def recursion(x):
    def power(n):
        return x if n == 0 else power(n - 1) * 2
    return power(4)


@program
def default_values(x):
    def f(y, items=[1, 2], scale=SCALE):
        return y * scale + items[0]
    return f(x)


@program
def global_tables(x):
    for name in NAMES:
        x = TABLE[name](x)
    return x, TABLE.get("none"), 3 in TABLE, len(TABLE)


@program
def ternary_and_boolean(x):
    y = x if x.ndim == 2 else None
    z = y is not None and 3
    return z or 4, not z, y if z else x, (1 < z < 5) and x


@program
def builtins_(x):
    return (abs(-2), min(3, 1), max([1, 2]), sum([x, x]), any([0, 1]),
            all([1, 1]), round(2.567, 1), divmod(7, 2), pow(2, 3),
            list(zip([1, 2], "ab")), list(enumerate("ab", 1)),
            list(map(lambda v: v * 2, [1, 2])),
            list(filter(None, [0, 1])), list(reversed([1, 2])),
            sorted("cab", key=lambda c: -ord(c)), isinstance(x, object),
            int("3"), float(2), str(3), bool([]), chr(97), hex(3),
            callable(x.sum), list(range(5, 0, -2)), tuple([1]),
            slice(1, 2), abs(x), list(x.shape), iter([1]).__next__())


@program
def map_over_tensors(x):
    def double(t):
        return t * 2
    a, b = map(double, (x, x + 1))
    return a, b, max([x.sum(0), x.sum(1)], key=lambda t: t.numel())


@program
def functional(x):
    add = functools.partial(torch.add, alpha=2)
    twice = functools.reduce(lambda a, b: a + b, [x, x, 1])
    return add(x, x), twice, operator.mul(x, 2), operator.getitem([1, 2], 1)


@program
def itertools_and_math(x):
    pairs = list(itertools.product([1, 2], [3]))
    runs = list(itertools.accumulate([1, 2, 3]))
    chained = list(itertools.chain([1], (2,)))
    return x * math.sqrt(4) + math.pi, pairs, runs, chained, math.prod((2,))


@program
def type_questions(x):
    return (isinstance(x, torch.Tensor), isinstance(3, (int, str)),
            type(x) is torch.Tensor, type(3) is int, x.dtype,
            x.dtype == torch.float32, x.device, x.is_floating_point(),
            torch.is_tensor(x), issubclass(bool, int), hasattr(x, "shape"),
            getattr(x, "nothing", 5),
            x.requires_grad, x.is_cuda, x.layout, x.T.is_contiguous())


@program
def classes(x):
    thing = Derived(3)
    other = Derived.make(2)
    return (thing(x), thing.double, Base.shift(x), other.apply(x),
            len(thing), thing[2], (thing + 1).k, thing == Derived(3),
            list(thing), 3 in thing, thing.auto_magic, Base.factor,
            isinstance(thing, Base), hasattr(thing, "nope"))


@program
def outside_object(x):
    return (THING(x), THING.double, THING.k, len(THING), THING.auto_x,
            THING[3], THING.make(5).apply(x), type(THING).__name__)


@program
def returns_an_object(x):
    pair = Pair(x, 4)
    pair.extra = [x + 1]
    return pair.total(), Pair(1).right


@program
def dataclasses_(x):
    pair = Pair(left=x)
    changed = dataclasses.replace(pair, right=x * 3)
    return pair.total() + changed.right, pair.right


@program
def enums(x):
    color = Color.RED
    if color is Color.RED and color.value == 1 and Mode.B > Mode.A:
        return x + color.value, Color(2).name, Mode.A + 1
    return x


@program
def generators(x):
    def rows(t, n):
        for i in range(n):
            got = yield t[i]
            assert got is None
        return n

    def outer(t):
        n = yield from rows(t, 2)
        yield t * n
    parts = list(outer(x))
    total = sum(r.sum() for r in rows(x, 3))
    first, *_ = rows(x, 2)
    return parts, total, first, next(rows(x, 1)), dict(zip("ab", rows(x, 2)))


@program
def exceptions(x):
    def look(d, key):
        try:
            return d[key]
        except KeyError as error:
            return len(error.args)
        except (TypeError, ValueError):
            return -1
        finally:
            d["seen"] = 1
    d = {"a": x}
    y = look(d, "a") + look(d, "b")
    try:
        raise ValueError("no")
    except ValueError as error:
        text = str(error)
    else:
        text = "else"
    try:
        try:
            raise KeyError("inner")
        finally:
            y = y + 1
    except LookupError:
        y = y * 2
    return y, text, d["seen"]


@program
def exception_in_callee(x):
    def fail(n):
        if n:
            raise RuntimeError(f"bad {n}")
        return x
    try:
        return fail(1)
    except RuntimeError as e:
        return fail(0) * len(e.args)


class Scope:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return 5

    def __exit__(self, kind, error, trace):
        self.log.append(kind is None)
        return True


@program
def user_context_managers(x):
    log = []
    with Scope(log) as five, Scope(log):
        x = x * five
    with Scope(log):
        raise ValueError
    return x, log


@contextlib.contextmanager
def doubled(values):
    values.append(2)
    try:
        yield values[0]
    finally:
        values.pop()


@program
def contextlib_manager(x):
    values = [3]
    with doubled(values) as v:
        x = x * v + len(values)
    return x, values


@program
def gradient_modes(x):
    w = x.clone().requires_grad_() if False else x
    with torch.no_grad():
        a = w * 2
        on = torch.is_grad_enabled()
        with torch.enable_grad():
            b = w + 1
        with torch.set_grad_enabled(False):
            c = w - 1
    return a, b, c, on, torch.is_grad_enabled()


@program
def assertions(x):
    assert x.shape[0] == 4, "rows"
    assert isinstance(x, torch.Tensor)
    return x


@program
def torch_functions(x):
    a = torch.cat([x, x], dim=1).softmax(-1)
    b = F.layer_norm(a, (6,))
    values, indices = x.max(dim=0)
    top = torch.topk(x, 2)
    c, d = torch.split(x, [1, 2], dim=1)
    return (a, b, values, indices, top.values, c @ d.mT[:1], torch.where(
        x > 0, x, torch.zeros_like(x)), x.to(torch.float64), x.float(),
        torch.arange(3, device=x.device) + torch.ones(3, dtype=x.dtype),
        torch.einsum("ij,kj->ik", x, x), x.view(-1).tolist.__name__)


@program
def same_object_returned_twice(x):
    y = [x + 1]
    return y, y, x, x


@program
def list_methods_with_tensors(x):
    parts = []
    for _ in range(3):
        parts.append(x)
        x = x * 2
    return torch.stack(parts), parts[1] is parts[1]


@program
def star_expressions(x):
    a = [*range(2), x]
    b = (*a, 3)
    c = {*a[:2]}
    print_ = {"k": 1, **{"m": x}}
    return a, b, c, print_


@program
def matched(x):
    def kind(v):
        match v:
            case 0:
                return "zero"
            case [a, b]:
                return a + b
            case {"k": value}:
                return value
            case Point(x=px):
                return px
            case str():
                return "text"
            case _:
                return "other"
    return kind(0), kind([1, 2]), kind("s"), kind(2.5), x


@program
def local_class(x):
    total = collections.Counter("abca")
    return x + total["a"]


@program
def walrus_and_chains(x):
    if (n := x.shape[0]) > 2:
        a = b = x * n
    return a, b, 1 < n <= 4 != 5


@program
def functions_as_values(x):
    table = {"f": torch.sin, "g": lambda t: t + 1}
    fs = [table[k] for k in ("f", "g")]
    for f in fs:
        x = f(x)
    return x, table["f"]


@program
def returns_a_closure(x):
    k = 3

    def inner(y):
        return y * k
    return inner(x)


@program
def sizes(x):
    s = x.shape
    return (s + (1,), s[:-1], s.numel(), torch.Size([1, 2]), tuple(s),
            s == (4, 3), (*s, 5), x.new_zeros(s), list(s[::-1]))


@program
def dtype_values(x):
    info = torch.finfo(x.dtype)
    return x + info.eps, info.max, torch.float32.is_floating_point


@program
def nested_functions(x):
    def outer(a):
        def middle(b):
            def inner(c):
                return a + b + c
            return inner
        return middle
    return outer(x)(2)(3)


@program
def tensor_attributes(x):
    return x.T, x.mT, x.real, x.data, x.grad, x.itemsize


@program
def chained_methods(x):
    return x.unsqueeze(0).expand(2, -1, -1).transpose(1, 2).contiguous()


@program
def add_in_place_to_view(x):
    y = x.clone()
    y[0].add_(5)
    y.view(-1)[3:].mul_(2)
    return y


@program
def mutates_its_argument(x):
    x.add_(1)
    x[0] = 7
    return x


@program
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.autocast("cpu", enabled=False):
            z = x @ x.T
    return y, z, x @ x.T


@torch.no_grad()
def without_gradients(x):
    return x * 2, torch.is_grad_enabled()


@program
def decorated(x):
    return without_gradients(x), torch.is_grad_enabled()


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1
    return wrapper


@logged
def tripled(x):
    return x * 3


@program
def wrapped(x):
    return tripled(x), tripled.__name__


CONFIG = {"a": 1, "b": {"c": 2}, "layers": [1, 2]}


@program
def dicts_keep_their_identity(x):
    kept = []
    kept.append(CONFIG)
    again = dict(inner=CONFIG["b"])
    kept[0]["b"]["c"] = 5
    values = [3, 1, 2]
    values.sort(reverse=True)
    kept_value = again["inner"]["c"]
    kept[0]["b"]["c"] = 2
    return x + kept_value, kept[0] is CONFIG, values, CONFIG == dict(
        CONFIG) if False else len(CONFIG)


@pytest.mark.parametrize("args, kwargs", [
    ((), {}), ((1, 2, 3, 4), {}), ((1, 2), {"a": 1}), ((1,), {"q": 1}),
    ((1,), {"c": 1}), ((1, 2), {"d": 5}), ((1,), {"b": 3, "d": 4})])
def test_wrong_arguments_are_pythons_error(follow, args, kwargs):
    def callee(a, b=2, /, *, d, **rest):
        return a, b, d, rest

    def other(a, c=1, *rest, d=3):
        return a, c, rest, d

    def f(x):
        found = []
        for function in (callee, other):
            try:
                found.append(function(*args, **kwargs))
            except TypeError as error:
                found.append(str(error))
        return x + 1, found

    follow(f, torch.ones(2))
