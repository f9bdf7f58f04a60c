"""Facts a trace relied on: when one changes, the graph is not reused."""

import types
from dataclasses import dataclass

import pytest
import torch

import minicompile
from minicompile.core.errors import Unsupported
from minicompile.trace import native, trace

from tests.same import close

from .conftest import entry


def check(function, *calls, graphs=2):
    """Each call gives what eager gives; so many graphs were made."""
    compiled = minicompile.compile(function, backend="eager",
                                   fullgraph=True)
    for args in calls:
        want = function(*args)
        got = compiled(*args)
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(want))
    assert compiled.stats().graphs == graphs
    return compiled


class Plain:
    pass


@dataclass(frozen=True)
class Name:
    text: str


X = torch.ones(3)


def test_membership_of_an_object_in_a_set():
    def f(x, a, b):
        seen = {a}
        return x * 2 if b in seen else x

    a = Plain()
    check(f, (X, a, Plain()), (X, a, a), (X, Plain(), Plain()), graphs=3)


def test_an_object_as_a_key_of_a_dict_from_outside():
    def f(x, table, key):
        return x * table.get(key, 0)

    a, b = Plain(), Plain()
    check(f, (X, {a: 2, b: 3}, a), (X, {a: 2, b: 3}, b))


def test_a_class_as_a_key():
    def f(x, table, key):
        return x * table[key]

    table = {int: 2, torch.float32: 3}
    check(f, (X, table, int), (X, table, torch.float32),
          (X, {int: 4}, int), graphs=3)


def test_objects_in_a_list():
    def f(x, a, b):
        return x * 2 if b in [a] else x

    a = Plain()
    check(f, (X, a, Plain()), (X, a, a))


@pytest.mark.parametrize("look", [
    lambda a: {a: 1}, lambda a: {a}, lambda a: {}.get(a),
    lambda a: set([a]), lambda a: dict.fromkeys([a]),
    lambda a: a in {1: 2}, lambda a: {k: 1 for k in [a]}])
def test_a_users_hash_is_not_run_unseen(look):
    def f(x, a):
        look(a)
        return x

    with pytest.raises(Unsupported) as error:
        trace(entry, (f, (X, Name("a")), {}))
    assert error.value.kind == "builtin"


@pytest.mark.parametrize("show", [
    repr, str, "{}".format, lambda a: f"{a}", lambda a: "%s" % (a,)])  # noqa: UP031
def test_what_is_printed_was_read(show):
    def f(x, a):
        return x, show([a])

    for outside in ({"k": 1}, Plain(), Name("a")):
        with pytest.raises(Unsupported) as error:
            trace(entry, (f, (X, outside), {}))
        assert error.value.kind == "builtin"


def test_replaced_defaults():
    def scaled(x, a=1, b=2):
        return x * a + b

    def f(x):
        return scaled(x)

    compiled = check(f, (X,), graphs=1)
    for defaults in ((1, 3), (torch.ones(3), 4, 1)):
        scaled.__defaults__ = defaults
        assert torch.equal(compiled(X), f(X))
    assert compiled.stats().graphs == 3


def test_a_class_gets_an_attribute():
    class Box:
        pass

    def f(x, box):
        return x * 2 if hasattr(box, "flag") else x

    compiled = check(f, (X, Box()), graphs=1)
    Box.flag = True
    assert torch.equal(compiled(X, Box()), X * 2)


def test_a_class_gets_a_property():
    class Box:
        pass

    def f(x, box):
        return x * box.size

    box = Box()
    box.size = 2
    compiled = check(f, (X, box), graphs=1)
    Box.size = property(lambda self: 5)
    assert torch.equal(compiled(X, box), X * 5)


def test_storage_offset():
    def f(x):
        return x * x.storage_offset() + x[1:].storage_offset()

    base = torch.arange(8.)
    check(f, (base[:4],), (base[2:6],), (base[2:6].clone(),))


def test_our_own_failure_is_not_the_programs(monkeypatch):
    def broken(*args):
        raise KeyError("a bug of ours")

    def f(x):
        try:
            return sorted([x, x + 1], key=lambda t: abs(1))[0]
        except KeyError:
            return x * 0

    monkeypatch.setattr(native, "run", broken)
    with pytest.raises(Unsupported) as error:
        trace(f, (X,))
    assert error.value.kind == "internal"


def test_a_cached_function_keeps_its_cache():
    import functools

    @functools.lru_cache
    def scale(n):
        seen.append(n)
        return n * 2

    seen = []
    check(lambda x: x * scale(3), (X,), (X,), graphs=1)
    assert seen == [3]

    @functools.lru_cache
    def table(n):
        return torch.arange(n)

    with pytest.raises(Unsupported):
        trace(entry, (lambda x: x + table(3), (X,), {}))
    assert type(table(3)) is torch.Tensor


def test_a_name_that_is_no_identifier():
    function = types.FunctionType((lambda x, k=[2]: x * k[0]).__code__,
                                  globals(), "85 things", ([3],))
    check(lambda x: function(x), (X,), graphs=1)


def test_closures_that_share_a_cell_are_not_those_that_do_not():
    def pair():
        n = 0

        def up():
            nonlocal n
            n += 1
        return up, lambda: n

    def fn(up, get, x):
        up()
        return get() * x

    compiled = minicompile.compile(fn, backend="eager")
    for pick in (lambda: pair(), lambda: (pair()[0], pair()[1])):
        close(compiled(*pick(), torch.ones(2)), fn(*pick(), torch.ones(2)))
    assert compiled.stats().graphs == 2
