"""Containers of every class: as results, across a break, as arguments."""

import dataclasses
import functools
import time
import timeit
from collections import (ChainMap, Counter, OrderedDict, UserDict, defaultdict,
                         deque, namedtuple)
from types import MappingProxyType

import pytest
import torch

import minicompile
from minicompile.trace import trace
from tests.same import assert_same

Pair = namedtuple("Pair", "a b")
Nothing = namedtuple("Nothing", "")


@dataclasses.dataclass
class Box:
    a: object = None


class Row(list):
    pass


class Table(dict):
    pass


class Point(tuple):
    pass


class Bag(set):
    pass


#: Results, empty ones and others.
RESULTS = [
    lambda x: (), lambda x: (x + 1,), lambda x: x.sum().shape,
    lambda x: (x + 1).shape, lambda x: torch.Size([]),
    lambda x: Nothing(), lambda x: Pair(x + 1, ()), lambda x: [],
    lambda x: [x + 1, []], lambda x: {},
    lambda x: {"a": x + 1, (1, 2): [], (): ()}, lambda x: set(),
    lambda x: dict(values=[(1, x + 1)], tracer=2, kind=3),
    lambda x: OrderedDict(values=[(1, x + 1)], mapping=2),
    lambda x: {1, 2, 3}, lambda x: {(), (1, (2,))}, lambda x: frozenset(),
    lambda x: frozenset({x.shape, 3}), lambda x: deque(),
    lambda x: deque([x + 1, 2], maxlen=3), lambda x: deque(maxlen=0),
    lambda x: OrderedDict(), lambda x: OrderedDict(a=x + 1),
    lambda x: defaultdict(list), lambda x: defaultdict(None, a=[x + 1]),
    lambda x: Counter(), lambda x: Counter("abca"), lambda x: ChainMap({}),
    lambda x: Box(), lambda x: Box((x + 1, Box(()))), lambda x: slice(None),
    lambda x: slice(1, x.shape[0]), lambda x: range(0),
    lambda x: range(1, x.shape[0]), lambda x: x.max(0),
    lambda x: torch.sort(x), lambda x: Row(), lambda x: Row([x + 1]),
    lambda x: Table(), lambda x: Table(a=x + 1), lambda x: Point(),
    lambda x: Point((x + 1,)), lambda x: Bag(), lambda x: Bag({1, 2}),
    lambda x: ((), [()], {"a": torch.Size([])}, {()}, Pair((), Nothing()))]


@pytest.mark.parametrize("make", RESULTS)
def test_results(make):
    def broken(x):
        made = make(x)
        torch._dynamo.graph_break()
        return made, x * 2

    def kept(x, box):
        box.a = make(x)
        return x * 2

    x, ours, theirs = torch.arange(6.).reshape(2, 3), Box(), Box()
    for function in (make, broken):
        compiled = minicompile.compile(function, backend="eager")
        same(compiled(x), function(x))
        same(compiled(x), function(x))
    minicompile.compile(kept, backend="eager", fullgraph=True)(x, ours)
    kept(x, theirs)
    same(ours, theirs)


def same(got, want):
    """Both are of one class and hold the same, in one order."""
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert torch.equal(got, want)
    elif isinstance(want, dict):
        same([*got.items()], [*want.items()])
        assert getattr(got, "default_factory", 0) is getattr(
            want, "default_factory", 0)
    elif isinstance(want, (tuple, list, set, frozenset, deque)):
        assert len(got) == len(want)
        assert getattr(got, "maxlen", 0) == getattr(want, "maxlen", 0)
        for ours, theirs in zip(got, want):
            same(ours, theirs)
    elif hasattr(want, "__dict__"):
        same(vars(got), vars(want))
    else:
        assert got == want


@pytest.mark.parametrize("make", [
    lambda x: torch.distributions.Independent(
        torch.distributions.Normal(x, x), 1),
    lambda x: torch.distributions.TransformedDistribution(
        torch.distributions.Normal(x, x),
        [torch.distributions.ExpTransform()]),
    lambda x: torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(x),
        torch.distributions.Normal(x, x))])
def test_distributions(make):
    assert_same(lambda x: make(x).log_prob(x), torch.rand(3) + 0.5,
                backend="eager", backward=False)


@functools.total_ordering
class Rank:
    """Compared by methods of its own."""

    def __init__(self, place, name):
        self.place, self.name = place, name

    def __eq__(self, other):
        return self.place == other.place

    def __lt__(self, other):
        return self.place < other.place


RANKS = [Rank(3, "c"), Rank(1, "a"), Rank(2, "b"), Rank(1, "z")]


@pytest.mark.parametrize("choose", [
    lambda: max(RANKS[0], RANKS[1]).name, lambda: min(RANKS).name,
    lambda: [each.name for each in sorted(RANKS, reverse=True)],
    lambda: max([1, 2, 3], key=lambda k: RANKS[k]),
    lambda: min(Rank(k, str(k)) for k in (3, 1, 2)).name,
    lambda: torch.distributions.kl_divergence(
        torch.distributions.Normal(torch.ones(3), torch.ones(3)),
        torch.distributions.Normal(torch.zeros(3), torch.ones(3))).sum()])
def test_objects_are_compared_by_their_own_methods(choose):
    torch.distributions.kl._KL_MEMOIZE.clear()
    run = minicompile.compile(lambda x: (x + 1, choose()), fullgraph=True,
                              backend="eager")
    same(run(torch.ones(2)), (torch.ones(2) + 1, choose()))
    RANKS[0].place -= 3
    same(run(torch.ones(2)), (torch.ones(2) + 1, choose()))
    RANKS[0].place += 3


def test_an_error_of_a_comparison_is_the_programs():
    def function(x):
        try:
            return x, max(Rank(1, "a"), Rank("b", "b"))
        except TypeError as error:
            return x + 1, str(error)
    run = minicompile.compile(function, fullgraph=True, backend="eager")
    same(run(torch.ones(2)), function(torch.ones(2)))


def shrunk(kind):
    """A set whose order is not that of a set made of its elements."""
    whole = set(range(100))
    whole -= {*range(100)} - {64, 1}
    return kind(whole)


def ordered(x, s):
    """A result that depends on elements, their types and their order."""
    for each in s:
        x = torch.where(x > len(str(each)), x, -1.0 - x) * 2
    return x, [*s], [*map(type, s)], len(s), 1 in s, s


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple, deque,
                                  dict.fromkeys])
def test_order_and_types_of_elements(kind):
    compiled = minicompile.compile(ordered, backend="eager", options={
        "recompile_limit": 20})
    x = torch.ones(2)
    values = [[8, 0], [0, 8], [1], [True], [1.0], [(2, 3), 1], [None, int],
              [torch.float32, "a", 0.0], [], [-0.0], ["ab", "b"]]
    for value in (*values, *values):
        made = kind(value)
        got = compiled(x, made)
        same(got, ordered(x, made))
        assert got[-1] is made
    stats = compiled.stats()
    assert stats.graphs >= 10 and not stats.fallbacks
    before = stats.graphs
    for value in values:
        compiled(x, kind(value))
    assert compiled.stats().graphs == before


@pytest.mark.parametrize("kind", [set, lambda s: frozenset(s)])
def test_a_set_that_shrank(kind):
    compiled = minicompile.compile(ordered, backend="eager", fullgraph=True)
    x, made = torch.ones(2), shrunk(set)
    assert [*made] == [1, 64] or [*made] == [64, 1]
    for each in (made, {64, 1}, {1, 64}, made):
        each = kind(each) if kind is not set else each
        same(compiled(x, each), ordered(x, each))


def test_a_large_set_keeps_its_order():
    compiled = minicompile.compile(ordered, backend="eager", fullgraph=True)
    x, made = torch.ones(2), {f"name {n}" for n in range(30)}
    same(compiled(x, made), ordered(x, made))
    with pytest.raises(minicompile.errors.Unsupported, match="set.pop|set"):
        minicompile.compile(lambda x, s: x * len(s.pop()),
                            backend="eager", fullgraph=True)(x, made)


def test_a_set_is_written_back_in_place():
    def grow(x, s):
        s.add(8)
        s.discard(1)
        return x + len(s)

    compiled = minicompile.compile(grow, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for values in ([0, 1], [1, 0], [16, 1, 0], [8]):
        ours, theirs = set(values), set(values)
        same((compiled(x, ours), ours), (grow(x, theirs), theirs))


def test_the_length_that_a_deque_may_have():
    def push(x, q):
        q.append(1)
        return x + len(q)

    compiled = minicompile.compile(push, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for most in (3, None, 2, 3):
        ours, theirs = deque([1, 2], most), deque([1, 2], most)
        same((compiled(x, ours), ours), (push(x, theirs), theirs))
    assert compiled.stats().graphs == 3


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("values", [
    range(400), [0.5 * n for n in range(400)], ["ab" * n for n in range(99)],
    [None, True, 1.5, "a"] * 40, [-0.0, float("nan")] * 40])
def test_a_long_list_is_one_guard(kind, values):
    def program(x, values):
        return x * len(str(values[3])), values[5], len(values), values[-1:]

    calls, x = [kind(values) for _ in range(3)], torch.ones(2)
    made = trace(program, (x, calls[0]))
    assert len(made.guards) < 10
    compiled = minicompile.compile(program, backend="eager", options={
        "recompile_limit": 50})
    for given in (*calls, calls[0]):
        assert str(compiled(x, given)) == str(program(x, given))
    assert compiled.stats().graphs == 1
    for other in (0.0, True, 1, "b", None, -0.0):
        changed = [*values]
        changed[5] = other
        given = kind(changed)
        assert str(compiled(x, given)) == str(program(x, given))
    assert not compiled.stats().fallbacks


def test_numbers_of_a_long_list_may_vary():
    compiled = minicompile.compile(lambda x, ns: x * ns[40] + ns[2],
                                   backend="eager", fullgraph=True)
    x = torch.ones(2)
    for n in range(3, 9):
        ns = [*range(10, 90)]
        ns[40] = n
        same(compiled(x, ns), x * n + 12)
    assert compiled.stats().graphs == 2


def test_a_long_list_costs_little():
    """Much less than a loop over it in Python."""
    compiled = minicompile.compile(lambda x, ns: x * ns[3], backend="eager")

    def fastest(call):
        return min(timeit.repeat(call, number=50, repeat=60,
                                 timer=time.thread_time))

    x, seconds = torch.ones(2), []
    for count in (10, 5000):
        ns = [0.5] * count
        ns[3] = 2.0
        compiled(x, ns)
        seconds.append(fastest(lambda given=ns: compiled(x, given)))
    loop = fastest(lambda: [type(n) is float and n == 0.5 for n in ns])
    assert seconds[1] - seconds[0] < loop / 3


class Settings:
    """Compared in Python, like a configuration of transformers."""

    scale = 3

    def __eq__(self, other):
        return type(other) is Settings

    __hash__ = None


def with_settings(x, **named):
    if "a" in named and "b" not in named:
        x = x + 1
    more = dict(named, z=1)
    more.setdefault("q", more.get("a"))
    first = more.pop("a")
    more.update(a=first)
    for name, value in more.items():
        if name == "a":
            x = x * value.scale
    ordered = OrderedDict(a=first)
    kinds = defaultdict(list, a=first)
    if "a" in ordered and "a" in kinds and "a" in more.keys():
        x = x - 1
    return x + len(sorted(more))


def test_a_dict_whose_values_are_compared_in_python():
    settings = Settings()
    compiled = minicompile.compile(
        lambda x: with_settings(x, a=settings), fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(compiled(x), with_settings(x, a=settings))


class Coin:
    """Equal by what it is worth, as its own Python says."""

    def __init__(self, worth):
        self.worth = worth

    def __eq__(self, other):
        return isinstance(other, Coin) and self.worth == other.worth

    def __hash__(self):
        return hash(("coin", self.worth))


def test_members_and_hashes_ask_their_classes():
    def function(x, coins):
        mine = Coin(2)
        return (x * (mine in coins), hash(mine) == hash(coins[1]),
                Coin(5) in deque(coins),
                hash((1, "a")) == hash((1, "a")))

    x, coins = torch.ones(2), [Coin(1), Coin(2)]
    compiled = minicompile.compile(function)
    for worth in (2, 2, 7):
        coins[1].worth = worth
        for ours, theirs in zip(compiled(x, coins), function(x, coins)):
            assert torch.equal(torch.as_tensor(ours), torch.as_tensor(theirs))
    assert not compiled.stats().graph_breaks


class Ranked(Coin):
    """Ordered, too; it writes down what it is asked."""

    asked = []

    def __eq__(self, other):
        self.asked.append((self.worth, getattr(other, "worth", other)))
        return super().__eq__(other)

    def __lt__(self, other):
        self.asked.append("less")
        return self.worth < other.worth

    __hash__ = Coin.__hash__


ONE, TWO, NAN = Ranked(1), Ranked(2), float("nan")


@pytest.mark.parametrize("ask", [
    lambda: (ONE, TWO) == (ONE, Ranked(2)),
    lambda: (ONE, TWO) != (Ranked(1), Ranked(2)),
    lambda: [ONE, Ranked(2), ONE] == [Ranked(1), TWO],
    lambda: (ONE, TWO) < (Ranked(1), Ranked(3)),
    lambda: (ONE,) < (Ranked(1), TWO), lambda: (ONE, TWO) > (ONE,),
    lambda: ("a", None, ONE) <= ("b", 3, TWO),
    lambda: ((ONE, [TWO]), 1) == ((Ranked(1), [Ranked(2)]), 1),
    lambda: Pair(ONE, 2) == (Ranked(1), 2),
    lambda: (Ranked(1), 2) != Pair(ONE, 2),
    lambda: (ONE,) == [ONE], lambda: tuple.__lt__((ONE,), [ONE]),
    lambda: (ONE, NAN) == (Ranked(1), NAN),
    lambda: (ONE, torch.float32, len) == (ONE, torch.float32, len),
    lambda: (None, ONE) < (None, 3)])
def test_sequences_are_compared_element_by_element(ask):
    def outcome(function):
        Ranked.asked.clear()
        try:
            return function(torch.ones(2))[1], [*Ranked.asked]
        except Exception as error:
            return type(error), str(error), [*Ranked.asked]

    def function(x):
        return x + 1, ask()

    compiled = minicompile.compile(function, fullgraph=True)
    assert outcome(compiled) == outcome(function)


def test_what_a_comparison_of_sequences_saw_is_guarded():
    ours, theirs = [Coin(1)], [Coin(1)]

    def function(x):
        return x + 1 if ours == theirs else x - 1

    compiled, x = minicompile.compile(function, fullgraph=True), torch.ones(2)
    for change in (list, lambda: theirs.append(Coin(2)),
                   lambda: ours.append(Coin(2)),
                   lambda: setattr(theirs[1], "worth", 5),
                   lambda: theirs.__setitem__(1, ours[1]), ours.clear):
        change()
        assert torch.equal(compiled(x), function(x))


class Lying:
    def __init__(self, v):
        self.v = v

    def __getattribute__(self, name):
        return 42 if name == "v" else object.__getattribute__(self, name)


class Hidden:
    v = property(lambda self: 7)

    def __init__(self, v):
        self.__dict__["v"] = v


class Slots:
    __slots__ = ("v", "empty")

    def __init__(self, v):
        self.v = v

    def __getattr__(self, name):
        return 5


@pytest.mark.parametrize("kind", [Lying, Hidden, Slots])
def test_an_object_is_made_again_without_asking_its_class(kind):
    made = minicompile.compile(lambda x: kind(x + 1), fullgraph=True,
                               backend="eager")(torch.ones(2))
    assert type(made) is kind
    held = {"v": made.v} if kind is Slots else object.__getattribute__(
        made, "__dict__")
    assert list(held) == ["v"] and held["v"].tolist() == [2, 2]
    assert kind is not Slots or made.empty == 5


def united(x, a, b):
    return x + 1, a | b, b | a, a | {"z": x}


KINDS = {"dict": dict, "ordered": OrderedDict,
         "default": lambda given: defaultdict(list, given)}


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_union_of_dicts_is_of_pythons_class(one, other):
    given = torch.ones(2), KINDS[one]({"a": 1}), KINDS[other]({"b": 2})
    compiled = minicompile.compile(united, backend="eager")
    assert repr(compiled(*given)) == repr(united(*given))


class Keyed:
    """A mapping by what an instance has; its elements never end."""

    def __init__(self, *names):
        self.keys = lambda: names

    def __getitem__(self, name):
        return f"{name}!"


@pytest.mark.parametrize("made", [
    lambda: MappingProxyType({"ab": 1, "cd": 2}), lambda: Keyed("ab"),
    lambda: UserDict(ab=1), lambda: {"ab": 1}, lambda: [("a", 1)]])
def test_what_has_keys_is_read_as_a_mapping(made):
    def program(x):
        given, old, more = made(), {"old": x}, OrderedDict(old=1)
        old.update(given, last=2)
        more |= given
        return (dict(given), old, more, defaultdict(list, given, one=1),
                OrderedDict(given))

    x = torch.ones(2)
    want = program(x)
    got = minicompile.compile(program, backend="eager")(x)
    assert str(got) == str(want) and [*map(type, got)] == [*map(type, want)]


def test_what_c_says_of_a_stand_in_the_program_never_reads():
    """A number that varies has no hash of its own, and a tensor a class."""
    def program(x, n):
        try:
            found = {1: n}.items() | {(1, 2)}
        except TypeError as error:
            found = str(error)
        try:
            x()
        except TypeError as error:
            return x * n, found, str(error)

    compiled, x = minicompile.compile(program, backend="eager"), torch.ones(2)
    for n in (3, 4, 5):
        assert str(compiled(x, n)) == str(program(x, n))
