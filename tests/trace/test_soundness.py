"""Facts a trace relied on: when one changes, the graph is not reused."""

import abc
import builtins
import collections
import copy
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import types
import typing
from dataclasses import dataclass

import pytest
import torch

import minicompile
from minicompile.core.errors import Unsupported
from minicompile.trace import rules, trace

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
        return x * 2 if b in seen else x + 1

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
        return x * 2 if b in [a] else x + 1

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


def test_defaults_that_come_later():
    def scaled(x, factor):
        return x * factor

    compiled = check(scaled, (X, 2), graphs=1)
    scaled.__defaults__ = (5,)
    assert torch.equal(compiled(X), X * 5)


def test_a_name_that_the_program_puts_among_the_builtins(monkeypatch):
    names = {}
    exec("def f(x): return x * factor", names)
    monkeypatch.setattr(builtins, "factor", 2, raising=False)
    compiled = check(names["f"], (X,), graphs=1)
    monkeypatch.setattr(builtins, "factor", 3)
    assert torch.equal(compiled(X), X * 3)


def test_a_class_gets_an_attribute():
    class Box:
        pass

    def f(x, box):
        return x * 2 if hasattr(box, "flag") else x + 1

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


def test_the_signature_of_a_function():
    def scaled(x, scale=2):
        return x

    def f(x):
        return x * inspect.signature(scaled).parameters["scale"].default

    compiled = check(f, (X,), graphs=1)
    scaled.__defaults__ = (3,)
    assert torch.equal(compiled(X), X * 3)
    scaled.__signature__ = inspect.signature(lambda scale=4: None)
    assert torch.equal(compiled(X), X * 4)


def test_what_an_enumeration_makes_of_other_values():
    class Kind(enum.Enum):
        ONE, TWO = 1, 2

        @classmethod
        def _missing_(cls, value):
            return cls(box.usual)

    box = Plain()
    box.usual = 1
    compiled = check(lambda x: x * Kind(5).value, (X,), graphs=1)
    box.usual = 2
    assert torch.equal(compiled(X), X * 2)


def test_storage_offset():
    def f(x):
        return x * x.storage_offset() + x[1:].storage_offset()

    base = torch.arange(8.)
    compiled = minicompile.compile(f, backend="eager")
    for x in (base[:4], base[2:6], base[2:6].clone()):
        close(compiled(x), f(x))


def test_our_own_failure_is_not_the_programs(monkeypatch):
    def broken(*args):
        raise KeyError("a bug of ours")

    def f(x):
        try:
            return sorted([x, x + 1], key=lambda t: math.sqrt(1))[0]
        except KeyError:
            return x * 0

    monkeypatch.setattr(rules, "call_native", broken)
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


def test_a_cached_function_sees_what_was_written_before_it():
    @functools.cache
    def scale(n):
        seen.append("scale")
        return n * factor

    def f(x):
        nonlocal factor
        factor = 5
        seen.append("f")
        return x * scale(3)

    factor, seen = 1, []
    compiled = minicompile.compile(f, backend="eager")
    assert torch.equal(compiled(X), X * 15)
    assert torch.equal(compiled(X), X * 15)
    assert seen == ["f", "scale", "f"]


class Backwards(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(3, 3) for _ in range(3))
        for layer in self.layers:
            layer.scale = 2

    def forward(self, x):
        for layer in reversed(self.layers):
            x = layer(x) * layer.scale
        return x


def test_layers_in_reverse_are_guarded():
    """`reversed` is C code that calls the `__getitem__` of a list."""
    net = Backwards()
    compiled = minicompile.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), net(X))
    net.layers[1].scale = 3
    torch.testing.assert_close(compiled(X), net(X))
    assert compiled.stats().graphs == 2


def test_what_goes_by_index_is_of_the_same_class():
    """A break hands on the iterators, half-way."""
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def f(x):
        steps, first = reversed(layers), next(reversed(layers))
        assert next(steps) is first
        minicompile.graph_break()
        return type(steps), [*steps], first(x)

    assert minicompile.compile(f)(X)[:2] == f(X)[:2]


def test_layers_with_elements_are_called_by_map():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def f(x):
        return [*map(net, [x, x * 2]), *itertools.accumulate(
            [x, x], operator.add, initial=x)]

    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for mine, eagers in zip(compiled(X), f(X), strict=True):
        torch.testing.assert_close(mine, eagers)


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


class Row(list):
    pass


#: What C code reads of objects from outside; and two of them.
READ_IN_C = {
    "truth of a dict": (lambda x, d: any([d]), {}, {1: 2}),
    "filter": (lambda x, d: len([*filter(None, [d, 1])]), {}, {1: 2}),
    "takewhile": (lambda x, d: [*itertools.takewhile(
        lambda n: d, [1, 2])], {}, {1: 2}),
    "nested dict": (lambda x, d: [d] == [{1: 2}], {1: 2}, {1: 3}),
    "sum of lists": (lambda x, row: [1] + row, Row([1]), Row([2])),
    "sorted": (lambda x, row: sorted(row), Row([2, 1]), Row([3, 1])),
    "maximum": (lambda x, row: max(row), Row([2]), Row([3])),
    "joined": (lambda x, row: ",".join(row), Row("ab"), Row("b")),
    "setdefault": (lambda x, d: (d.setdefault("k", 3), d), {}, {"k": 2}),
    "update": (lambda x, d: (d.update(k=1), d.pop("m", 0), d),
               {"m": 3}, {"k": 2}),
    "fromkeys": (lambda x, d: (dict.fromkeys("ab", d)["a"].update(z=1),
                               d), {}, {"k": 2}),
    "heap": (lambda x, d: (kept := [], heapq.heappush(kept, d),
                           kept[0].update(z=1), d), {}, {"k": 2}),
    "hash": (lambda x, d: (hash(("a",)), hash((1, (2.5, "b")))), 1, 2)}


@pytest.mark.parametrize("name", READ_IN_C)
def test_c_code_reads_nothing_unseen(name):
    function, *both = READ_IN_C[name]

    def program(x, given):
        return function(x, given), x + 1

    compiled = minicompile.compile(program, backend="eager")
    for given in (*both, *both):
        want = program(X, type(given)(given))
        close(compiled(X, type(given)(given)), want)
    assert not compiled.stats().fallbacks


class Given:
    """A callable object, which no class binds to its instances."""

    def __call__(self, *args):
        return len(args)


class Fetched:
    """A descriptor that gives a function without the object."""

    def __get__(self, owner, kind):
        return lambda *args: (kind.__name__, len(args))


class Whole:
    """A class whose `__new__` makes an instance of a derived class."""

    def __new__(cls, *args):
        return object.__new__(Half)


class Half(Whole):
    def __init__(self, *args):
        self.given = len(args)


def made(special, base=object):
    """A class with these special methods."""
    return type("Made", (base,), special)


#: Special methods that are no functions: an object, and its use.
SPECIAL = {
    **{f"call of {name}": (made({"__call__": call})(), lambda x, o: o(3))
       for name, call in {
           "an object": Given(), "a descriptor": Fetched(),
           "a partial": functools.partial(max, 5),
           "a static method": staticmethod(lambda *args: len(args)),
           "a class method": classmethod(lambda cls, *args: len(args)),
           "a property": property(lambda o: lambda *args: len(args))
       }.items()},
    "call of a module": (made({"__call__": Given()}, torch.nn.Module)(),
                         lambda x, o: o(3)),
    "call of a class": (type("Meta", (type,), {"__call__": Given()})(
        "Made", (), {}), lambda x, o: o(3, 4)),
    "missing key": (made({"__missing__": Given()}, dict)(),
                    lambda x, o: o["k"]),
    "missing attribute": (made({"__getattr__": Given()})(),
                          lambda x, o: o.k),
    "setting": (made({"__setattr__": Given()})(),
                lambda x, o: (setattr(o, "k", 1), hasattr(o, "k"))),
    "start": (made({"__init__": functools.partialmethod(
        lambda o, k, n: setattr(o, "k", k * n), 3)}),
        lambda x, o: o(2).k),
    "start of another class": (Whole, lambda x, o: o(2).given)}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_methods_are_bound_as_python_binds_them(name):
    owner, use = SPECIAL[name]

    def program(x):
        return use(x, owner), x + 1

    close(minicompile.compile(program, backend="eager", fullgraph=True)(X),
          program(X))


def test_getters_read_what_is_there_now():
    def f(x, a):
        return x * operator.attrgetter("n")(a) + operator.itemgetter(0)(a.m)

    a, b = Plain(), Plain()
    a.n, a.m, b.n, b.m = 2, [3], 4, [5]
    check(f, (X, a), (X, b))


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def scale(self, x):
        return x * self.factor


class Part(Scaled):
    pass


GETTERS = {
    "item": (lambda get, x: get([x, x * 2]), map(operator.itemgetter, (0, 1))),
    "attribute": (lambda get, x: [*map(get, [x + 1])][0],
                  map(operator.attrgetter, ("real", "ndim"))),
    "super": (lambda of, x: of.scale(x),
              (super(Part, Part(k)) for k in (2, 3)))}


@pytest.mark.parametrize("name", GETTERS)
def test_another_getter_or_super_is_noticed(name):
    use, (one, two) = GETTERS[name]
    check(lambda x, given: use(given[0], x), (X, [one]), (X, [two]),
          (X, [one]))


def test_the_list_is_empty_while_it_is_sorted():
    def program(x):
        seen, values = [], [1, 3, 2]
        values.sort(key=lambda n: seen.append(len(values)) or -n)
        return seen, values, x + 1

    close(minicompile.compile(program, backend="eager", fullgraph=True)(X),
          program(X))


def test_id_is_that_of_the_object():
    def f(x, a, b):
        return x * 2 if id(b) in {id(a)} else x + 1

    a, values = Plain(), [1]
    check(f, (X, a, a), (X, a, Plain()), (X, values, values),
          (X, [1], [1]), (X, X, X), graphs=5)
    assert minicompile.compile(lambda x, a: (id(a), x + 1))(X, a)[0] == id(a)


def test_annotations_of_inner_functions():
    def f(x):
        def inner(y: typing.Optional[torch.Tensor],  # noqa: UP045
                  z: dict[str, list[int]] | None = None, *,
                  w: typing.Callable[[int], int] | None = None) -> "Plain":
            return y * 2
        return inner, inner(x)

    inner, y = minicompile.compile(f, backend="eager", fullgraph=True)(X)
    assert inner.__annotations__ == f(X)[0].__annotations__
    assert torch.equal(y, X * 2)


def test_objects_in_a_cache():
    made = []

    @functools.cache
    def recipe(n):
        made.append(n)
        return types.SimpleNamespace(n=n, parts=[n, (n, Plain())])

    def f(x, n):
        found = recipe(n)
        return x * found.n + found.parts[0], found

    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for n in (3, 3, 4):
        y, found = compiled(X, n)
        assert torch.equal(y, X * n + n) and found is recipe(n)
    recipe(3).n = 5
    assert torch.equal(compiled(X, 3)[0], X * 5 + 3)
    assert made == [3, 4]


class Text(str):
    pass


class Whole(int):
    pass


@pytest.mark.parametrize("read, values", [
    (len, ("ab", "abc")), (lambda s: len(s.upper()), ("ab", "abc")),
    (lambda s: s[0] == "a", ("ab", "bb")), (lambda s: len([*s]), ("", "a")),
    (lambda s: 1 if s else 2, ("", "a")), (lambda n: -n, (2, 3)),
    (lambda n: 1 if n else 2, (0, 1)), (lambda n: n.bit_length(), (1, 9)),
    (int, (2, 3)), (operator.index, (2, 3)), (lambda n: n + 1, (2, 3)),
    (lambda n: 1 if n == 3 else 2, (2, 3)),
    (lambda n: [*range(9)][n:][0], (2, 3)),
    (lambda n: math.prod([n, n]), (2, 3)),
    (lambda s: len("".join([s, s])), ("ab", "abc"))])
def test_a_constant_of_a_class_of_its_own(read, values):
    kind = Text if isinstance(values[0], str) else Whole
    first, second = map(kind, values)
    check(lambda x, value: x * read(value),
          (X, first), (X, second), (X, first))


def test_a_tensor_of_a_type_of_its_own():
    def f(x):
        return x * 2 if isinstance(x, torch.FloatTensor) else x * 3

    compiled = minicompile.compile(f, backend="eager")
    for x in (X, X.double()):
        assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("make, write", [
    (lambda value: {"n": value}, operator.setitem),
    (lambda value: types.SimpleNamespace(n=value), setattr)])
def test_what_is_there_already_is_written_all_the_same(make, write):
    def f(x, owner):
        write(owner, "n", 3)
        return x * 2

    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for value in (3, 5):
        owner = make(value)
        compiled(X, owner)
        assert owner == make(3)


class Before:
    n = 1

    def scaled(self, x):
        return x + self.n


class After(Before):
    n = 5

    def scaled(self, x):
        return x * self.n


@pytest.mark.parametrize("name, value", [
    ("__class__", After), ("__dict__", {"n": 7})])
def test_another_class_or_dict_decides_what_the_attributes_are(name, value):
    def f(x, owner):
        setattr(owner, name, value)
        return owner.scaled(x)

    compiled = minicompile.compile(f, backend="eager")
    for _ in range(2):
        ours, theirs = Before(), Before()
        assert torch.equal(compiled(X, ours), f(X, theirs))
        assert type(ours) is type(theirs) and vars(ours) == vars(theirs)


def test_asking_a_defaultdict_makes_nothing():
    def f(x, table):
        return x * (table.get("n") or 5)

    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for items in ({"n": 2}, {"n": 0}, {}):
        table = collections.defaultdict(int, items)
        assert torch.equal(compiled(X, table), f(X, table))
        assert table == items


def test_asking_a_defaultdict_for_an_object_makes_nothing():
    def f(x, table, key):
        return x * (2 if table.get(key) is None else 3)

    here, other = Plain(), Plain()
    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for items in ({here: None}, {}, {other: None}, {here: 0}, {here: None}):
        for key in (here, other):
            table = collections.defaultdict(int, items)
            assert torch.equal(compiled(X, table, key), f(X, table, key))
            assert table == items


def test_a_tensor_that_a_defaultdict_lacks_is_not_put_there():
    def f(x, table):
        return x * table[x] if x in table else x

    compiled = minicompile.compile(f, backend="eager")
    for items in ({X: 2}, {torch.ones(3): 2}, {}, {X: 3}):
        table = collections.defaultdict(int, items)
        assert torch.equal(compiled(X, table), f(X, table))
        assert len(table) == len(items)


def test_a_c_function_called_by_its_call_method_runs_once_a_call(capsys):
    def f(x):
        print.__call__("called")
        return x * 2

    compiled = minicompile.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)).eq(2).all()
        assert capsys.readouterr().out == "called\n"


Registry = abc.ABCMeta("Registry", (), {})


@typing.runtime_checkable
class Masked(typing.Protocol):
    mask: object


@typing.runtime_checkable
class Scaling(typing.Protocol):
    def scale(self): ...


class Everything(type):
    def __instancecheck__(cls, value):
        return True


class Anything(metaclass=Everything):
    pass


def masked(x, value):
    return x * 2 if isinstance(value, Masked) else x + 1


def matched(x, value):
    match value:
        case Masked():
            return x * 2
    return x + 1


def scaled(x, value):
    return x * 2 if isinstance(value, Scaling) else x + 1


def masked_by_now(x, value):
    value.mask = None
    return x * 2 if isinstance(value, (int, Masked)) else x + 1


@pytest.mark.parametrize("function", [
    masked, matched, masked_by_now, scaled])
def test_what_a_protocol_names_is_asked_by_python(function):
    class Scaled:
        def scale(self):
            return 2

    compiled = minicompile.compile(function, backend="eager")
    with_one, value = Plain(), Scaled()
    with_one.mask = 1
    for each in (Plain(), with_one, value, X):
        assert torch.equal(compiled(X, each), function(X, each))
    del with_one.mask
    value.scale = None
    for each in (with_one, value):
        assert torch.equal(compiled(X, each), function(X, each))
    assert "Protocol" in str(compiled.cache.breaks)
    del value.scale, Scaled.scale
    assert torch.equal(compiled(X, value), X + 1)


@pytest.mark.parametrize("kinds", [Registry, (int, Registry),
                                   int | Registry])
def test_a_class_is_registered_later(kinds):
    def f(x, value):
        return x * 2 if isinstance(value, kinds) else x + 1

    def g(x, kind):
        return x * 2 if issubclass(kind, kinds) else x + 1

    class Late:
        pass

    value = Late()
    first, second = check(f, (X, value), graphs=1), check(
        g, (X, Late), graphs=1)
    Registry.register(Late)
    assert torch.equal(first(X, value), X * 2)
    assert torch.equal(second(X, Late), X * 2)


def test_a_users_check_is_asked_about_tensors_and_numbers():
    def f(x, value):
        return x * 2 if isinstance(value, Anything) else x + 1

    check(f, (X, X), (X, 3), (X, Plain()), graphs=3)


def test_a_partial_of_a_partial_is_guarded():
    """`functools.partial` takes apart the partial that it is given."""
    def f(x, part):
        return functools.partial(part)(x)

    compiled = minicompile.compile(f, backend="eager")
    for n in (3, 4, 5):
        part = functools.partial(torch.mul, n)
        torch.testing.assert_close(compiled(X, part), f(X, part))


class Slotted:
    __slots__ = ("hidden",)


class Unslotted(Slotted):
    def __init__(self, given):
        self.hidden, self.shown = given, given


def told(value) -> tuple:
    """The class of a value, its elements and its attributes."""
    elements = [*value.items()] if isinstance(value, dict) else (
        sorted(value) if isinstance(value, (list, set)) else [])
    return type(value).__name__, elements, vars(value), getattr(
        value, "hidden", None), getattr(value, "args", None)


@pytest.mark.parametrize("base, given", [
    (list, [1, 2]), (dict, {"a": 1}), (set, {1}), (ValueError, "x"),
    (Unslotted, 3)])
def test_a_copy_has_what_c_code_keeps(base, given):
    """A class in C, or slots, hold more than a `__dict__`."""
    kind = type("Kind", (base,), {})
    before = kind(given)

    def f(x):
        return x + 1, copy.copy(before), copy.deepcopy(kind(given))

    for mine, eagers in zip(minicompile.compile(f)(X)[1:], f(X)[1:]):
        assert told(mine) == told(eagers)


class Table(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


@pytest.mark.parametrize("kind", [collections.OrderedDict, Table])
def test_a_copy_of_an_ordered_dict_is_of_its_class(kind):
    def f(x, table):
        return x + 1, table.copy()

    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    for given in ({"a": 1}, {"b": 2, "a": 1}):
        ours, theirs = compiled(X, kind(given))[1], kind(given).copy()
        assert (type(ours), [*ours.items()]) == (kind, [*theirs.items()])
