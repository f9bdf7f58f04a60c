"""Random programs with effects: what they leave behind is what eager leaves.

SWEEP=1 takes five thousand programs, the suite a sample.
"""

import copy
import os
import re
from collections import (Counter, OrderedDict, defaultdict, deque,
                         namedtuple)
from enum import Enum

import pytest
import torch

import minicompile

from .effects import Writer, outcome

X = torch.ones(2)
COUNT = 5000 if os.environ.get("SWEEP") else 80
PARTS = 4


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_programs(part):
    seen = Counter()
    for seed in range(part, COUNT, PARTS):
        source = Writer(seed).source
        want, _ = outcome(source, compiled=False)
        got, stats = outcome(source, compiled=True)
        assert got == want, f"seed {seed}:\n{source}"
        seen.update(graphs=stats.graphs, breaks=stats.graph_breaks,
                    eager=bool(stats.fallbacks))
    assert seen["graphs"] > COUNT / PARTS
    assert seen["breaks"] > COUNT / PARTS
    assert seen["eager"] < COUNT / PARTS / 3


def check(function, *arguments, calls=2):
    """Eager and compiled, each in its own world, leave the same."""
    left = []
    for run in function, minicompile.compile(function, backend="eager"):
        world = [make() for make in arguments]
        for _ in range(calls):
            try:
                result = run(*world)
            except Exception as error:
                result = type(error), str(error)
        left.append((repr(result), repr(world)))
    assert left[0] == left[1]
    return run.stats()


class Window(deque):
    """It counts what is appended."""

    def append(self, value):
        super().append(value)
        self.seen = getattr(self, "seen", 0) + 1


def test_a_method_of_super_goes_over_a_break():
    def program(window, x):
        window.append(x)
        return len(window), window.seen

    check(program, Window, lambda: torch.ones(2))


class Told(namedtuple("Told", "first last")):
    """It tells the places that are read."""

    def __getitem__(self, place):
        places.append(place)
        return super().__getitem__(place)


places = []


def test_a_guard_reads_no_tuple_by_the_users_method():
    compiled = minicompile.compile(lambda pair, x: x * pair[1],
                                   backend="eager")
    for _ in range(3):
        places.clear()
        assert compiled(Told(2, 3), torch.ones(2)).tolist() == [3, 3]
        assert places == [1]


def test_a_tuple_keeps_what_it_has_besides():
    def program(x):
        made = Told(x, 1)
        made.total, pattern = x + 1, re.compile("a+", re.IGNORECASE)
        print(end="")
        return made, made.total * 2, pattern.match("Aab").group(), pattern

    got = minicompile.compile(program, backend="eager")(torch.ones(2))
    assert type(got[0]) is Told and len(vars(got[0])) == 1
    assert got[0].total.tolist() == [2, 2] and got[1].tolist() == [4, 4]
    assert got[2:] == ("Aa", re.compile("a+", re.IGNORECASE))


class Open(dict):
    """Its attributes are its items."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def test_attributes_that_are_items():
    def program(table, x):
        table.count = (table.count or 0) + 1
        table.last, table.old = x * table.count, x
        del table.old
        made = Open(a=1)
        made.b = table.last
        return dict(table), vars(table), dict(made), vars(made)

    stats = check(program, Open, lambda: torch.ones(2), calls=4)
    assert not stats.graph_breaks and not stats.fallbacks


def test_a_dict_that_changes_while_it_is_walked():
    def grows(table, x):
        for key in table:
            table[key + "!"] = x
        return table

    def shrinks(table, x):
        for key, value in table.items():
            x = x + value
            print(float(x))
            table.pop(key)

    def only_writes(table, x):
        for key in table:
            table[key] = x
            print(key)
        return list(table.values())

    def table():
        return {"a": 1, "b": 2}

    for function in grows, shrinks, only_writes:
        check(function, table, lambda: torch.ones(2))


def test_views_are_alive():
    def f(table, x):
        keys, values = table.keys(), table.values()
        table["new"] = x
        print(list(keys))
        table["newer"] = x + 1
        return keys, list(values), "newer" in keys

    stats = check(f, dict, lambda: torch.ones(2))
    assert not stats.fallbacks


def test_order_of_keys_is_eagers():
    def f(table, x):
        table["k"] = table.pop("k")
        table["z"] = table.pop("missing", x)
        table |= {"a": 1}
        del table["z"]
        table["z"] = 2
        return list(table)

    stats = check(f, lambda: {"k": 1, "m": 2}, lambda: torch.ones(2))
    assert stats.graph_breaks == 0 and not stats.fallbacks


def test_a_dicts_own_setitem_runs_once():
    class Noisy(dict):
        def __setitem__(self, key, value):
            log.append(key)
            super().__setitem__(key, value)

    def f(table, x):
        table["a"] = x + 1
        return len(table)

    log = []
    check(f, Noisy, lambda: torch.ones(2), calls=1)
    assert log == ["a", "a"]


def test_numbers_that_vary_are_sorted_by_their_text():
    def f(x, items):
        items.sort(key=str)
        items.reverse()
        return x + 1, list(map(str, items))

    check(f, lambda: torch.ones(2), lambda: [5, 6, 7], calls=4)


LOUD = []


@torch.compiler.allow_in_graph
def loud(x):
    LOUD.append(1)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "fused"])
def test_a_graph_that_fails_leaves_what_eager_leaves(backend):
    def looks_up(x, at, log, *rest, scale=2, **more):
        log.append("before")
        with torch.no_grad():
            y = table[at] * scale
            log.append("after")
        return y + x + len(rest) + len(more)

    table = torch.arange(4.0)
    compiled = minicompile.compile(looks_up, backend=backend)
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 9])
    logs, errors = ([], []), []
    for run, log in zip((looks_up, compiled), logs, strict=True):
        run(torch.ones(2), good, log, 1, k=2)
        with pytest.raises(IndexError) as error:
            run(torch.ones(2), bad, log, 1, scale=3, k=2)
        errors.append(str(error.value))
        assert torch.is_grad_enabled()
    assert logs[0] == logs[1] == ["before", "after", "before"]
    assert errors[0] == errors[1]

@pytest.mark.parametrize("writes", [True, False])
def test_a_graph_that_may_have_acted_is_not_run_again(writes):
    def acts(x, at):
        x = x.add_(1) if writes else loud(x)
        return torch.arange(4.0)[at] + x

    compiled = minicompile.compile(acts, backend="eager")
    x, at = torch.ones(2), torch.tensor([1, 2])
    compiled(x, at)
    LOUD.clear()
    with pytest.raises(IndexError):
        compiled(x, at + 4)
    assert torch.equal(x, torch.full((2,), 3.0 if writes else 1.0))
    assert len(LOUD) == (not writes)


def test_a_flag_that_says_what_holds_is_no_write():
    def masked(x):
        mask = torch.eye(2)
        mask.requires_grad = False
        return x @ mask

    compiled = minicompile.compile(masked, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), masked(X))


def counting(function):
    def wrapper(x):
        wrapper.calls += 1
        wrapper.last = x
        return function(x) * wrapper.calls

    wrapper.calls = 0
    return wrapper


def test_a_function_of_the_programs_has_attributes():
    """Its `__defaults__` are no such: to set them breaks the graph."""
    eager, mine = counting(torch.sin), counting(torch.sin)
    compiled = minicompile.compile(mine, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), eager(X))
    assert mine.calls == 3 and mine.last is X


def test_attributes_that_go():
    class Box:
        def __repr__(self):
            return repr(vars(self))

    def f(box, x):
        box.a, box.b = 1, x
        del box.a
        box.a = 2
        del box.b
        return hasattr(box, "b")

    stats = check(f, Box, lambda: torch.ones(2))
    assert stats.graph_breaks == 0 and not stats.fallbacks


def first_then_second(x, table):
    table["first"] = 1
    table["second"] = 2
    return x + 1


def the_same_again(x, table):
    table["first"] = 1
    return x + 1


def there_for_a_moment(x, table):
    table["first"] = 1
    del table["first"]
    return x + 1


def read_if_there(x, table):
    return x + (table["first"] if "first" in table else 5)


@pytest.mark.parametrize("function", [
    first_then_second, the_same_again, there_for_a_moment, read_if_there])
@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda items: (
    defaultdict(int, items))])
@pytest.mark.parametrize("first", [{"first": 1}, {"second": 0}])
def test_a_trace_fits_a_dict_with_other_keys(function, kind, first):
    """What it writes, in which order, and that guards add nothing."""
    compiled = minicompile.compile(function, backend="eager")
    for items in (first, {}, {"first": 1}, {"second": 0}, {"first": 3}, {}):
        ours, theirs = kind(items), kind(items)
        want = function(torch.ones(2), theirs)
        assert compiled(torch.ones(2), ours).equal(want)
        assert [*ours.items()] == [*theirs.items()]


def sorted_into(x, y):
    return torch.sort(x, out=(y, torch.zeros(3, dtype=torch.long)))


@pytest.mark.parametrize("function, breaks", [
    (lambda x, y: (torch.add(x, 1, out=y), y is torch.neg(x, out=y)), 0),
    (lambda x, y: torch.maximum(x, y, out=y) + x, 0),
    (lambda x, y: torch.amax(torch.stack([x, y]), 0, out=y), 0),
    (sorted_into, 0),
    (lambda x, y: torch.cat([x, y], out=torch.empty(6)) * 2, 0),
    (lambda x, y: torch.mv(torch.eye(3), x, out=x), 1),  # read, then 0
    (lambda x, y: torch.cat([x[:1], y[1:]], out=y), 1),  # eager raises
    (lambda x, y: torch.add(x[:2], 1, out=y[1:]) * y.sum(), 1),
    (lambda x, y: torch.add(x, y, out=torch.empty(0)), 1),
    (lambda x, y: torch.add(x, y, out=y.double()), 1)])
@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_an_out_that_fits_is_traced(function, breaks):
    stats = check(function, lambda: torch.tensor([3.0, -1.0, 2.0]),
                  lambda: torch.tensor([1.0, 5.0, 0.5]))
    assert stats.graph_breaks == breaks


def test_spectral_norm_is_one_graph():
    torch.manual_seed(0)
    model = torch.nn.utils.parametrizations.spectral_norm(
        torch.nn.Linear(4, 3))
    check(lambda model, x: (model(x), model.parametrizations.weight[0]._u),
          lambda: copy.deepcopy(model), lambda: torch.ones(2, 4))
    compiled = minicompile.compile(model, fullgraph=True)
    compiled(torch.ones(2, 4)).sum().backward()
    assert compiled.stats().graphs == 1


class Slotted:
    __slots__ = ("a",)


def written_then_read(x, owner):
    owner.a = x * 2
    return owner.a + 1


def test_a_slot_is_read_as_it_was_written():
    owner = Slotted()
    compiled = minicompile.compile(written_then_read, fullgraph=True,
                                   backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2), owner).equal(torch.full((2,), 3.0))
        assert owner.a.equal(torch.full((2,), 2.0))


class Half(Slotted):
    """It has a slot, and attributes of its own."""

    def __repr__(self):
        return repr(vars(self))


def slot_and_attributes(x, owner):
    owner.a += 1
    owner.more = owner.a
    return x * owner.a, sorted(vars(owner))


def test_a_slot_is_no_item_of_the_attributes():
    def half():
        owner = Half()
        owner.a = 2
        return owner
    check(slot_and_attributes, lambda: torch.ones(2), half)


def changed_both_ways(x, owner, table):
    table["n"] += 1
    owner.m = owner.n
    table["m"] += 1
    return x * table["m"] * owner.m + len(table)


def changed_the_other_way(x, owner, table):
    return changed_both_ways(x, owner, table) * len(vars(owner))


@pytest.mark.parametrize("f", [changed_both_ways, changed_the_other_way])
def test_the_dict_of_an_object_is_its_attributes(f):
    compiled, seen = minicompile.compile(f, backend="eager"), []
    for run in f, compiled:
        owner, apart = Half(), {"n": 5, "m": 2}
        owner.n = 1
        for table in [owner.__dict__] * 2 + [apart] * 2:
            seen.append([run(X, owner, table)[0].item(), repr(owner),
                         repr(apart)])
    assert seen[:4] == seen[4:]


class Tagged(tuple):
    pass


class Kinds(frozenset):
    pass


class Level(Enum):
    LOW = 1


class Hidden:
    """Its attributes are not what its `__dict__` holds."""

    def __init__(self):
        self.n = 1

    n = property(lambda self: self.__dict__["n"] * 2,
                 lambda self, n: self.__dict__.update(n=n))


class Doubled:
    asked = []

    def __init__(self):
        self.n = 1

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        if name != "n":
            return value
        Doubled.asked.append(value)
        return value * 2


def counted(x, owner):
    owner.n += 1
    return x * owner.n


@pytest.mark.parametrize("make", [
    lambda: Tagged((1, 2)), Tagged, lambda: Kinds((1, 2)),
    lambda: Level.LOW, lambda: staticmethod(check), Hidden, Doubled])
def test_attributes_are_those_of_the_very_object(make):
    owner, counts = make(), []
    for run in counted, minicompile.compile(counted, backend="eager"):
        owner.n = 1
        counts.append([run(torch.ones(2), owner)[0].item()
                       for _ in range(4)])
        if make is Doubled:
            counts[-1] += Doubled.asked
            Doubled.asked.clear()
    assert counts[0] == counts[1]


def test_a_name_that_is_no_text():
    def f(x, table):
        table[1] = table.get(1, 0) + 1
        return x * table[1] + ((2, 3) in table)

    def names():
        return vars(Half())
    check(lambda x, owner: f(x, owner.__dict__), lambda: torch.ones(2),
          Half, calls=3)
    check(f, lambda: torch.ones(2), names, calls=3)


class Closing:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("closed")


def closed_at_the_end(x, log):
    kept = Closing(log)
    return x + len(kept.log)


def closed_before(x, log):
    kept = Closing(log)
    del kept
    log.append("after")
    return x + 1


def closed_in_a_call(x, log):
    closed_at_the_end(x, log)
    log.append("after")
    return x + 1


@pytest.mark.parametrize("function", [closed_at_the_end, closed_before,
                                      closed_in_a_call])
def test_an_object_ends_when_eagers_does(function):
    compiled = minicompile.compile(function, backend="eager")
    x, ours, theirs = torch.ones(2), [], []
    with pytest.warns(UserWarning, match="__del__"):
        for _ in range(2):
            assert torch.equal(compiled(x, ours), function(x, theirs))
    assert ours == theirs and "closed" in ours


def test_an_input_may_get_an_attribute_of_its_own():
    """As an optimizer keeps the sum of gradients beside a parameter."""
    def function(p, x):
        seen = getattr(p, "count", 0)
        p.summed, p.count = x * 2 + p, seen + 1
        del p.count
        p.count = seen + 1
        return p.summed * 3

    compiled = minicompile.compile(function, fullgraph=True)
    ours, theirs = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    for call in range(4):
        x = torch.full((3,), float(call))
        found, wanted = compiled(ours, x), function(theirs, x)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(ours.summed, theirs.summed)
        assert ours.count == theirs.count == call + 1
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert compiled.stats().graphs <= 3
