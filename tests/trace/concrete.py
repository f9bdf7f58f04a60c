"""Pure functions and inputs: what Python itself answers is known."""

import ast
import base64
import bisect
import calendar
import cmath
import collections
import colorsys
import contextlib
import copy
import dataclasses
import difflib
import enum
import fnmatch
import functools
import graphlib
import heapq
import html
import inspect
import ipaddress
import itertools
import json
import keyword
import math
import ntpath
import numbers
import operator
import posixpath
import pprint
import quopri
import re
import reprlib
import shlex
import statistics
import string
import textwrap
import urllib.parse
import uuid
from fractions import Fraction

import _pydecimal as decimal
import torch
import torch._prims_common as prims
from torch.nn.modules import utils
from torch.utils import _pytree as pytree

D = decimal.Decimal
F = Fraction
WORDS = ("pear", "apple", "fig", "plum", "kiwi", "apple")
NUMBERS = (3, 1, 4, 1, 5, 9, 2, 6)
TEXT = "It was the best of times, it was the worst of times; \u00e9t\u00e9."
TREE = {"a": [1, (2, 3)], "b": {"c": None, "d": [4]}}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0


Pair = collections.namedtuple("Pair", "left right", defaults=(7,))


class Memo(dict):
    def __missing__(self, key):
        self[key] = key * 2
        return self[key]


class Money:
    def __init__(self, cents):
        self.cents = cents

    def __add__(self, other):
        return Money(self.cents + other.cents)

    __radd__ = __add__

    def __lt__(self, other):
        return self.cents < other.cents

    def __eq__(self, other):
        return self.cents == other.cents

    def __hash__(self):
        return hash(self.cents)

    def __repr__(self):
        return f"Money({self.cents})"


def made(function):
    """`function` on a fresh list of numbers: the list, afterwards."""
    def run(*args):
        values = list(NUMBERS)
        result = function(values, *args)
        return result, values
    return run


def every(make):
    """What an iterator yields, as a list."""
    return lambda *args, **kwargs: list(make(*args, **kwargs))


def calls(function, *inputs):
    """One case for each input tuple."""
    return [(function, i if type(i) is tuple else (i,)) for i in inputs]


def text(*parts):
    """`value.name(*arguments)` of strings, by name."""
    return [(getattr(value, name), args) for value, name, *args in parts]


@functools.lru_cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.singledispatch
def kind(value):
    return "object"


@kind.register
def _(value: int):
    return "int"


@contextlib.contextmanager
def logged(log):
    log.append("in")
    try:
        yield log
    finally:
        log.append("out")


def with_log():
    with logged([]) as log:
        log.append("body")
    return log


def suppressed():
    with contextlib.suppress(KeyError):
        {}["x"]
    return "on"


def stack():
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(logged(log))
    return log


def raises(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        pass


def primes(n):
    sieve = bytearray([1]) * (n + 1)
    for i in range(2, int(n ** 0.5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, n + 1, i)))
    return [i for i in range(2, n + 1) if sieve[i]]


def permutations(items):
    if len(items) < 2:
        yield tuple(items)
        return
    for i, item in enumerate(items):
        for rest in permutations(items[:i] + items[i + 1:]):
            yield (item, *rest)


def queens(n, row=0, columns=()):
    if row == n:
        return 1
    return sum(queens(n, row + 1, (*columns, c)) for c in range(n)
               if all(c != d and abs(c - d) != row - r
                      for r, d in enumerate(columns)))


def classes():
    class Base:
        kinds = []

        def __init_subclass__(cls, **kwargs):
            Base.kinds.append(cls.__name__)

    class Child(Base):
        def __getattr__(self, name):
            return name.upper()
    return Base.kinds, Child().shout


def matched(value):
    match value:
        case [x, *rest]:
            return x, rest
        case {"k": v, **more}:
            return v, more
        case Pair(left=a) | Point(x=a):
            return a
        case int() | float() as number if number > 0:
            return number
    return None


def table():
    counts = collections.defaultdict(list)
    for word in WORDS:
        counts[len(word)].append(word)
    return dict(counts)


def deque():
    d = collections.deque(NUMBERS, 4)
    d.rotate(1)
    d.appendleft(0)
    return list(d), d.pop(), d.maxlen


def ordered():
    d = collections.OrderedDict(zip("abc", NUMBERS))
    d.move_to_end("a")
    return list(d.items()), d.popitem()


def counted():
    c = collections.Counter(WORDS)
    c.update(["fig"])
    return c.most_common(2), sorted(c.elements()), c["none"]


CASES = [
    *calls(bisect.bisect_left, ([1, 2, 4], 2), ([1, 2, 4], 3)),
    *calls(bisect.bisect, ([1, 2, 4], 2), ([], 2)),
    *calls(made(bisect.insort), 5, 0),
    *calls(made(heapq.heapify), ()), *calls(made(heapq.heappop), ()),
    *calls(made(heapq.heappushpop), 5), *calls(made(heapq.heappush), 5),
    *calls(heapq.nsmallest, (3, NUMBERS), (1, NUMBERS), (0, NUMBERS)),
    *calls(heapq.nlargest, (3, NUMBERS), (20, NUMBERS)),
    (every(heapq.merge), ([1, 4], [2, 3])),
    *calls(calendar.isleap, 2000, 1900, 2024),
    *calls(calendar.leapdays, (1900, 2000)),
    *calls(calendar.monthrange, (2024, 2), (2023, 12)),
    *calls(calendar.weekday, (2024, 2, 29)),
    *calls(cmath.sqrt, -1, 2j), *calls(cmath.phase, 1j),
    *calls(cmath.polar, 1 + 1j), *calls(cmath.exp, 1j),
    *calls(colorsys.rgb_to_hsv, (.2, .4, .4), (0., 0., 0.)),
    *calls(colorsys.hsv_to_rgb, (.5, .5, .4), (0., 0., 1.)),
    *calls(colorsys.rgb_to_hls, (.2, .4, .4)),
    *calls(colorsys.hls_to_rgb, (.5, .3, .3)),
    *calls(colorsys.rgb_to_yiq, (.2, .4, .4)),
    *calls(colorsys.yiq_to_rgb, (.2, .4, .4)),
    *calls(copy.copy, [1, [2]], ((1, 2),), {"a": [1]}),
    *calls(copy.deepcopy, [1, [2]], TREE, ((1, [2]),), "a"),
    *calls(difflib.get_close_matches, ("appel", WORDS), ("zzz", WORDS)),
    (every(difflib.ndiff), (["a\n", "b\n"], ["a\n", "c\n"])),
    (every(difflib.unified_diff), (["a", "b"], ["a", "c"])),
    (lambda a, b: difflib.SequenceMatcher(None, a, b).ratio(),
     ("abcd", "bcde")),
    *calls(fnmatch.fnmatch, ("a.py", "*.py"), ("a.py", "*.txt")),
    *calls(fnmatch.filter, (WORDS, "*p*")),
    *calls(fnmatch.translate, "*.[ch]"),
    (lambda a, b: (a + b, a * b, a / b, a - b, a ** 2, a < b, -a),
     (F(1, 2), F(3, 4))),
    *calls(F, (6, 4), "3/7", 0.5), *calls(F.limit_denominator,
                                        (F(355, 113), 10)),
    *calls(round, F(7, 2), 2.567, (2.567, 1)),
    *calls(functools.reduce, (operator.add, NUMBERS),
           (operator.mul, NUMBERS, 2)),
    (lambda: sorted(WORDS, key=functools.cmp_to_key(
        lambda a, b: len(a) - len(b))), ()),
    (functools.partial(pow, 2), (5,)), (functools.partial(
        int, base=2), ("101",)),
    *calls(fibonacci, 10), *calls(kind, 3, "a"),
    (lambda graph: list(graphlib.TopologicalSorter(graph).static_order()),
     ({"d": {"b", "c"}, "b": {"a"}, "c": {"b"}},)),
    *calls(html.escape, "<a href='x'>&", ("<'", False)),
    *calls(html.unescape, "&lt;&amp;&#65;&eacute;"),
    *calls(inspect.cleandoc, "a\n    b\n      c\n"),
    *calls(ipaddress.ip_address, "10.0.0.1"),
    (lambda a: str(ipaddress.ip_address(a)), ("10.0.0.1",)),
    (lambda a: ipaddress.ip_network(a).num_addresses, ("10.0.0.0/28",)),
    (lambda a: ipaddress.ip_address(a).is_private, ("10.0.0.1",)),
    (every(itertools.accumulate), (NUMBERS,)),
    (every(itertools.accumulate), (NUMBERS, max)),
    (every(itertools.chain), ("ab", "cd")),
    (every(itertools.combinations), (NUMBERS[:4], 2)),
    (every(itertools.combinations_with_replacement), ("abc", 2)),
    (every(itertools.compress), ("abcd", (1, 0, 1, 1))),
    (every(itertools.dropwhile), (lambda x: x < 4, NUMBERS)),
    (every(itertools.filterfalse), (lambda x: x % 2, NUMBERS)),
    (lambda: [(k, list(g)) for k, g in itertools.groupby(
        sorted(WORDS), key=len)], ()),
    (every(itertools.islice), (NUMBERS, 1, 6, 2)),
    (every(itertools.pairwise), (NUMBERS,)),
    (every(itertools.permutations), ("abc", 2)),
    (every(itertools.product), ("ab", (1, 2))),
    (every(itertools.repeat), (3, 2)),
    (every(itertools.starmap), (pow, ((2, 5), (3, 2)))),
    (every(itertools.takewhile), (lambda x: x < 5, NUMBERS)),
    (every(itertools.zip_longest), ("ab", "c")),
    (lambda: [list(i) for i in itertools.tee(iter(NUMBERS))], ()),
    (lambda: list(itertools.islice(itertools.count(2, 3), 3)), ()),
    (lambda: list(itertools.islice(itertools.cycle("ab"), 5)), ()),
    *calls(json.dumps, TREE, [1.5, None, "a\n"], "\u00e9"),
    (functools.partial(json.dumps, indent=2, sort_keys=True), (TREE,)),
    *calls(json.loads, '{"a": [1, 2.5, null]}', "3", '"x"'),
    *calls(keyword.iskeyword, "if", "iff"),
    *[(getattr(math, name), (value,)) for name, value in (
        ("sqrt", 2), ("exp", 1), ("log", 3), ("log2", 8), ("log10", 5),
        ("sin", 1), ("cos", 1), ("tan", 1), ("asin", .5), ("acos", .5),
        ("atan", .5), ("sinh", 1), ("cosh", 1), ("tanh", 1), ("erf", 1),
        ("gamma", 4.5), ("lgamma", 4.5), ("floor", 2.5), ("ceil", 2.5),
        ("trunc", -2.5), ("fabs", -2), ("factorial", 6), ("isqrt", 17),
        ("isnan", 1.), ("isinf", math.inf), ("degrees", 1),
        ("radians", 90), ("frexp", 3.), ("modf", 3.5), ("prod", NUMBERS),
        ("fsum", (.1,) * 10), ("gcd", 12), ("expm1", .1), ("log1p", .1))],
    *calls(math.gcd, (12, 18)), *calls(math.lcm, (4, 6)),
    *calls(math.comb, (5, 2)), *calls(math.perm, (5, 2)),
    *calls(math.hypot, (3, 4)), *calls(math.copysign, (1., -0.)),
    *calls(math.isclose, (1, 1 + 1e-10), (1, 2)),
    *calls(math.dist, ((0, 0), (3, 4))), *calls(math.atan2, (1, 2)),
    *calls(math.pow, (2, .5)), *calls(math.fmod, (7, 3)),
    *calls(math.ldexp, (.5, 3)), *calls(math.remainder, (7, 4)),
    *[(getattr(path, name), (value,)) for path in (posixpath, ntpath)
      for name in ("basename", "dirname", "split", "splitext",
                   "normpath", "isabs", "splitdrive")
      for value in ("/usr/lib/../x.tar.gz",)],
    *calls(posixpath.join, ("a", "b", "/c", "d"), ("a", "")),
    *calls(posixpath.commonpath, (("/a/b", "/a/c"),)),
    *calls(posixpath.commonprefix, (("/abc", "/abd"),)),
    *calls(isinstance, (3, numbers.Number), ("a", numbers.Number)),
    *[(getattr(operator, name), args) for name, args in (
        ("add", (1, 2)), ("concat", ("a", "b")), ("contains", ("abc", "b")),
        ("countOf", (WORDS, "apple")), ("indexOf", (WORDS, "fig")),
        ("truth", ([],)), ("not_", ([],)), ("index", (True,)),
        ("is_", (None, None)), ("floordiv", (7, 2)), ("mod", (7, 4)),
        ("lshift", (1, 4)), ("xor", (5, 3)), ("invert", (5,)),
        ("abs", (-3,)), ("matmul", (3, 4)), ("getitem", (WORDS, 1)),
        ("length_hint", (WORDS,)), ("eq", (1, 1.0)), ("lt", (1, 2)))
      if name != "matmul"],
    (lambda: operator.itemgetter(1, 3)(WORDS), ()),
    (lambda: operator.attrgetter("left", "right")(Pair(1)), ()),
    (lambda: operator.methodcaller("upper")("a"), ()),
    *calls(pprint.pformat, TREE, list(range(40))),
    *calls(quopri.encodestring, b"a=b\xff"),
    *calls(re.escape, "a.b*c"),
    *calls(re.sub, (r"(\w+) (\w+)", r"\2 \1", TEXT)),
    *calls(re.findall, (r"\bw\w+", TEXT)), *calls(re.split, (r"[,;]", TEXT)),
    (lambda: re.match(r"(\w+)\s(?P<x>\w+)", TEXT).groupdict(), ()),
    (lambda: re.sub(r"\d", lambda m: m[0] * 2, "a1b2"), ()),
    *calls(reprlib.repr, list(range(20)), "x" * 60),
    *calls(shlex.split, "a 'b c' d\\ e"), *calls(shlex.quote, "a b"),
    *calls(shlex.join, (["a b", "c"],)),
    *calls(statistics.mean, (NUMBERS,), ((1.5, 2.5),)),
    *calls(statistics.median, (NUMBERS,)),
    *calls(statistics.median_low, (NUMBERS,)),
    *calls(statistics.mode, (WORDS,)),
    *calls(statistics.multimode, (NUMBERS,)),
    *calls(statistics.variance, (NUMBERS,)),
    *calls(statistics.pstdev, (NUMBERS,)),
    *calls(statistics.stdev, (NUMBERS,)),
    *calls(statistics.fmean, (NUMBERS,)),
    *calls(statistics.geometric_mean, (NUMBERS,)),
    *calls(statistics.harmonic_mean, (NUMBERS,)),
    *calls(statistics.quantiles, (NUMBERS,)),
    *calls(statistics.correlation, ((1, 2, 3), (2, 4, 7))),
    *calls(statistics.linear_regression, ((1, 2, 3), (2, 4, 7))),
    *calls(string.capwords, TEXT, ("a-b", "-")),
    (lambda: string.Template("$a and ${b}").substitute(a=1, b="x"), ()),
    (lambda: string.Formatter().format("{0:>5} {x!r}", 1, x="q"), ()),
    *calls(textwrap.wrap, (TEXT, 20)), *calls(textwrap.fill, (TEXT, 20)),
    *calls(textwrap.dedent, "  a\n   b\n"),
    *calls(textwrap.indent, ("a\nb\n", "> ")),
    *calls(textwrap.shorten, (TEXT, 20)),
    *calls(urllib.parse.quote, "a b/\u00e9"),
    *calls(urllib.parse.unquote, "a%20b%C3%A9"),
    *calls(urllib.parse.urlencode, {"a": 1, "b": "x y"}),
    *calls(urllib.parse.parse_qs, "a=1&b=2&a=3"),
    *calls(urllib.parse.urlsplit, "http://u@h:80/p?q=1#f"),
    *calls(urllib.parse.urljoin, ("http://h/a/b", "../c")),
    (lambda: str(uuid.UUID("12345678123456781234567812345678")), ()),
    *calls(ast.literal_eval, "[1, (2, 'a'), {'b': None}]"),
    *calls(base64.b64encode, b"hello"), *calls(base64.b64decode, b"aGVsbG8="),
    *calls(base64.b32encode, b"hello"), *calls(base64.b16encode, b"hello"),
    *calls(base64.b85encode, b"hello"), *calls(base64.a85encode, b"hello"),
    *calls(D, "1.10"), (lambda a, b: a + b, (D("1.1"), D("2.25"))),
    (lambda: str(D("1.1") * D("3")), ()), (lambda: str(D(2).sqrt()), ()),
    (lambda: str(D("10").quantize(D("0.01"))), ()),
    (lambda: D("1.5") > D("1.25"), ()), (lambda: int(D("7.9")), ()),
    # Built in
    *calls(abs, -3, 2j, True), *calls(divmod, (7, 2), (-7, 2), (7., 2)),
    *calls(pow, (2, 10), (2, 10, 7)), *calls(bin, 5), *calls(hex, 255),
    *calls(oct, 8), *calls(chr, 97), *calls(ord, "a"), *calls(ascii, "\u00e9"),
    *calls(repr, "a'b", 1.5, [1, "a"]), *calls(str, 1.5, (b"a", "ascii")),
    *calls(int, "12", ("ff", 16), 3.7), *calls(float, "1.5", "nan"),
    *calls(complex, (1, 2)), *calls(bool, [], 0.0, "a"),
    *calls(tuple, [1, 2]), *calls(list, "abc"), *calls(set, [1, 1]),
    *calls(frozenset, [1, 1]), *calls(dict, [("a", 1)]),
    *calls(bytes, [1, 2]), *calls(range, (1, 9, 3)), *calls(slice, (1, 2)),
    *calls(sorted, (NUMBERS,), (WORDS,)), *calls(max, NUMBERS),
    *calls(min, (WORDS,)), *calls(sum, (NUMBERS,), (NUMBERS, 2.5)),
    *calls(any, ([0, 1],)), *calls(all, ([0, 1],)), *calls(len, (WORDS,)),
    (every(zip), (NUMBERS, WORDS)), (every(map), (str, NUMBERS)),
    (every(filter), (None, (0, 1, 2))), (every(enumerate), (WORDS, 3)),
    (every(reversed), (NUMBERS,)), *calls(callable, len, 3),
    *calls(format, (3.14159, ".2f"), (255, "#x")), *calls(type, 1, "a"),
    *calls(hash, 3), *calls(issubclass, (bool, int)),
    *text(("a,b,c", "split", ","), ("a b", "partition", " "),
          ("abc", "replace", "b", "x"), ("abc", "find", "c"),
          ("  a ", "strip"), ("aXb", "swapcase"), ("ab", "center", 6, "*"),
          ("a\tb", "expandtabs", 4), ("abc", "startswith", ("x", "a")),
          ("7", "zfill", 3), (",", "join", WORDS), ("\u00e9", "encode"),
          ("{:>4}|{}", "format", 1, "x"), ("a\nb", "splitlines"),
          ("abc", "translate", {97: "x"}), ("ABC", "casefold"),
          ("title me", "title"), ("abc", "isalpha"), ("12", "isdigit"),
          ("aXbX", "rsplit", "X", 1), ("prefix", "removeprefix", "pre"),
          (b"ab", "hex"), (b"\xc3\xa9", "decode"), (5, "bit_length"),
          (5, "to_bytes", 2, "big"), (.75, "as_integer_ratio"),
          (2.5, "is_integer"), (.1, "hex"), (NUMBERS, "index", 4),
          (NUMBERS, "count", 1), (range(9), "index", 4)),
    # The language
    *calls(primes, 30), (every(permutations), ("abc",)),
    *calls(queens, 4), (classes, ()), (with_log, ()), (suppressed, ()),
    (stack, ()), (table, ()), (deque, ()), (ordered, ()), (counted, ()),
    *calls(matched, (([1, 2, 3],)), ({"k": 1, "z": 2},), 3, -1,
           (Pair(5),), (Point(6),)),
    *calls(raises, (int, "x"), (len, 3), ([].pop,), (divmod, 1, 0),
           (operator.getitem, {}, "k"), (next, iter(()))),
    (lambda: Color(2).name, ()), (lambda: Color["RED"].value, ()),
    (lambda: [c.name for c in Color], ()), (lambda: Color.RED, ()),
    (lambda: (Flags.A | Flags.B).value, ()), (lambda: Flags.A in Flags(3), ()),
    (lambda: dataclasses.asdict(Point(1, tags=[2])), ()),
    (lambda: dataclasses.astuple(Point(1)), ()),
    (lambda: dataclasses.replace(Point(1), y=5).y, ()),
    (lambda: repr(Point(1)), ()), (lambda: Point(1) == Point(1), ()),
    (lambda: Version(1) < Version(1, 2), ()),
    (lambda: sorted([Version(2), Version(1, 3)])[0].minor, ()),
    (lambda: hash(Version(1)) == hash(Version(1)), ()),
    (lambda: [f.name for f in dataclasses.fields(Point)], ()),
    (lambda: Pair(1)._replace(right=3), ()), (lambda: Pair(1)._asdict(), ()),
    (lambda: Pair._fields, ()), (lambda: Pair(1) + (2,), ()),
    (lambda: Memo(a=1)["b"], ()), (lambda: sum([Money(1), Money(2)],
                                              Money(0)).cents, ()),
    (lambda: max(Money(1), Money(2)).cents, ()),
    (lambda: str(Money(3)), ()), (lambda: f"{Money(3)!r:>10}", ()),
    (lambda: {Money(1): 2}[Money(1)], ()),
    (lambda: len({Money(1), Money(1)}), ()),
    (lambda: Money(1) in [Money(2), Money(1)], ()),
    (lambda: dict(collections.ChainMap({"a": 1}, {"b": 2})), ()),
    (lambda: collections.UserList([3, 1])[0], ()),
    # torch
    *calls(torch.broadcast_shapes, ((2, 1), (3,)), ((1,), (4, 5))),
    *calls(torch.promote_types, (torch.float16, torch.int32)),
    *calls(torch.can_cast, (torch.float32, torch.int32)),
    (lambda: torch.finfo(torch.float16).max, ()),
    (lambda: torch.iinfo(torch.int8).min, ()),
    (lambda: torch.Size((2, 3)).numel(), ()),
    (lambda: torch.Size((2, 3)) + (4,), ()),
    (lambda: torch.device("cuda", 1).index, ()),
    (lambda: torch.float32.is_floating_point, ()),
    (lambda: str(torch.float32), ()), (lambda: torch.float32.itemsize, ()),
    *calls(prims.canonicalize_dim, (4, -1), (4, 2)),
    *calls(prims.canonicalize_dims, (4, (-1, 0))),
    *calls(prims.make_contiguous_strides_for, ((2, 3, 4),)),
    *calls(prims.make_channels_last_strides_for, ((2, 3, 4, 5),)),
    *calls(prims.infer_size, ((2, -1, 3), 24)),
    *calls(prims.is_same_shape, ((2, 3), (2, 3))),
    *calls(prims.dtype_to_type, torch.float64),
    *calls(prims.is_integer_dtype, torch.int8),
    *calls(prims.corresponding_real_dtype, torch.complex64),
    *calls(prims.get_higher_dtype, (torch.float16, torch.float32)),
    *calls(prims.reduction_dims, ((2, 3, 4), (0, -1))),
    *calls(prims.compute_required_storage_length, ((2, 3), (3, 1), 0)),
    *calls(prims.validate_shape, ((2, 3),)),
    *calls(prims.apply_perm, ((5, 6, 7), (2, 0, 1))),
    *calls(prims.invert_perm, ((2, 0, 1),)),
    *calls(prims.is_valid_permutation, (3, (2, 0, 1))),
    *calls(utils._pair, 3, ((1, 2),)), *calls(utils._ntuple(3), 2),
    *calls(utils._reverse_repeat_tuple, ((1, 2), 2)),
    *calls(utils.consume_prefix_in_state_dict_if_present,
           ({"m.a": 1}, "m.")),
    *calls(pytree.tree_leaves, TREE), *calls(
        pytree.tree_map, (lambda x: (x, x), TREE)),
    (lambda: pytree.tree_flatten(TREE)[0], ()),
    (lambda: pytree.tree_unflatten([1, 2], pytree.tree_structure([0, 0])),
     ()),
    *calls(torch.nn.functional._canonical_mask, (
        None, "m", None, "n", torch.float32)),
    *calls(torch.nn.init.calculate_gain, "relu", ("leaky_relu", .2)),
    *calls(torch._utils._get_all_device_indices, ()),
    *calls(torch.nn.parameter.is_lazy, 3),
    *calls(torch.is_tensor, 3), *calls(torch.is_storage, 3),
    *calls(torch.typename, 3), *calls(torch.overrides.has_torch_function,
                                     ((1, 2),)),
]
