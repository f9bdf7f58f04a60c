"""A check holds for the call it was made from, and for no other."""

import functools

import pytest
import torch
from torch import nn

from minicompile.core.errors import Unsupported, Where
from minicompile.core.guard import Attribute, Call, Constant, Guard, Item
from minicompile.guards import build_check
from minicompile.guards.fast import c_functions
from tests.guards.say import STATE, F, X, Y, Z, module_guards, relation, tensor


def base():
    return torch.zeros(4, 6)


#: Every change to one fact about a tensor.
OTHER_TENSORS = {
    "shape": lambda: torch.zeros(4, 5),
    "dimensions": lambda: torch.zeros(4, 6, 1),
    "dtype": lambda: torch.zeros(4, 6, dtype=torch.float64),
    "device": lambda: torch.zeros(4, 6, device="meta"),
    "strides": lambda: torch.zeros(6, 4).t(),
    "expanded": lambda: torch.zeros(4, 1).expand(4, 6),
    "requires_grad": lambda: torch.zeros(4, 6, requires_grad=True),
    "subclass": lambda: nn.Parameter(base(), requires_grad=False),
    "sparse": lambda: base().to_sparse(),
    "sparse rows": lambda: base().to_sparse_csr(),
    "mkldnn": lambda: base().to_mkldnn(),
    "without memory": lambda: torch._efficientzerotensor((4, 6)),
    "nested": lambda: torch.nested.as_nested_tensor(base()),
    "functional": lambda: torch._to_functional_tensor(base()),
    "negated": lambda: torch.zeros(4, 6, dtype=torch.complex64).conj().imag,
    "not a tensor": lambda: [[0.0] * 6] * 4,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("change", OTHER_TENSORS)
def test_a_tensor_of_another_kind_is_noticed(build, change):
    check = build([tensor(X, base())], {})
    assert check((base(),), None)
    assert check((torch.ones(4, 6),), None)
    assert not check((OTHER_TENSORS[change](),), None)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 1), (1, 3), (0, 3)])
def test_strides_count_even_where_a_size_is_0_or_1(build, shape):
    plain = torch.zeros(shape)
    check = build([tensor(X, plain)], {})
    assert check((torch.ones(shape),), None)
    assert not check((plain.to_sparse(),), None)
    for strides in {(7,) * len(shape), tuple(range(len(shape)))}:
        other = torch.zeros(64).as_strided(shape, strides)
        assert check((other,), None) == (other.stride() == plain.stride())


def test_a_conjugate_is_noticed(build):
    z = torch.zeros(3, dtype=torch.complex64)
    check = build([tensor(X, z)], {})
    assert check((z,), None) and not check((z.conj(),), None)


NAN = float("nan")
CONSTANTS = [
    0, 1, -1, True, False, 0.0, -0.0, 1.0, NAN, float("inf"), 0j, -0j, 1j,
    complex(NAN, 0), "", "1", b"1", b"", None, ..., NotImplemented, (), (1,),
    (True,), (1.0,), (0.0,), (-0.0,), ((1,),), frozenset({1}),
    frozenset({True}), frozenset(), torch.Size([1]), torch.float32,
    torch.float64, torch.strided, torch.device("cpu"), torch.device("meta"),
    torch.contiguous_format, slice(1), slice(True), slice(1, 2), range(1),
    range(0, 3, 2), range(0, 4, 2),
    range(2), int, float, len, "a\0b", "'\"{}", 10**30]


@pytest.mark.parametrize("number", range(len(CONSTANTS)))
def test_equal_tells_every_two_constants_apart(build, number):
    check = build([Guard(X, "equal", CONSTANTS[number])], {})
    held = [check((other,), None) for other in CONSTANTS]
    assert held == [other == number for other in range(len(CONSTANTS))]


@pytest.mark.parametrize("value", [[1], {}, object(), torch.zeros(1),
                                   (1, [2])])
def test_a_mutable_thing_is_no_constant(build, value):
    with pytest.raises(Unsupported, match="not a constant"):
        build([Guard(X, "equal", value)], {})


def held(value):
    return value


class Thing:
    pass


class Sub(Thing):
    pass


class Meta(type):
    """Says that it is every class."""

    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return hash(int)


class Posing(metaclass=Meta):
    pass


class Name(str):
    pass


thing, items, table = Thing(), [1, 2], {"a": 1, "b": 2}

#: kind -> (expected, what holds, what does not)
KINDS = {
    "type": (Thing, [Thing()], [Sub(), Thing, 3, None]),
    "is": (thing, [thing], [Thing(), None]),
    "is list": (items, [items], [list(items)]),
    "is None": (None, [None], [0, False, ()]),
    "is function": (held, [held], [functools.partial(held), F]),
    "length": (2, [[1, 2], "ab"], [[1], 3, None]),
    "keys": (("a", "b"), [table, ["a", "b"]],
             [{"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, 3]),
    "keys int": ((1, 0), [{1: 0, 0: 0}], [{True: 0, 0: 0}, {1: 0}]),
    "keys str": (("a", ""), [["a", ""]], [[Name("a"), ""], ["a"], ["a", 0]]),
    "keys types": ((int, bool), [(int, bool), {int: 0, bool: 0}],
                   [(int,), (bool, int), (Posing, bool), (int, 1), 3]),
    "keys mro": (Sub.__mro__, [Sub.__mro__, [*Sub.__mro__]],
                 [Thing.__mro__, Sub]),
    "keys mixed": ((int, "a", 1.0), [(int, "a", 1.0)],
                   [(int, "a", 1), (bool, "a", 1.0), (int, "a")]),
    "keys many": ((0.5,) * 40, [[0.5] * 40, (float("0.5"),) * 40],
                  [[0.5] * 39, [0.5] * 39 + [-0.5], [0.5] * 39 + [1], 3]),
    "keys many str": (tuple("ab" * 20), ["ab" * 20, [*"ab" * 20]],
                      [[*"ab" * 19, "a", Name("b")], [*"ba" * 20]]),
    "keys none": ((), [{}, []], [{"": 0}, None]),
    "contains": ("a", [table, "abc"], [{}, 3, "b"]),
    "lacks": (("c", "d"), [table, {}], [{"c": 1}, {"d": 1}, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_holds_exactly_where_it_says(build, kind):
    expected, good, bad = KINDS[kind]
    check = build([Guard(X, kind.split()[0], expected)], {})
    assert all(check((value,), None) for value in good)
    assert not any(check((value,), None) for value in bad)


def test_the_inputs_are_handed_over_in_their_order():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(9)), nn.ReLU())
    layers, key = Attribute(X, "_modules"), Item(Y, "a")
    places = [Item(Attribute(Item(layers, str(at)), "_parameters"), name)
              for at in (3, 0, 8, 1) for name in ("weight", "bias")]
    for inputs in ([], [Y], [Z, Y, Z], places, [Z, *places[::-1], Z],
                   [places[0]], [key, places[5], places[2], key]):
        guards = module_guards(model, X)
        check = build_check(guards, {}, inputs)
        call = model, {"a": torch.zeros(2)}, 7
        found = check.function(call, None)
        wanted = [eval(place.code(), {"L": call}) for place in inputs]
        assert len(found) == len(wanted)
        assert all(a is b for a, b in zip(found, wanted))
        model[4].bias.requires_grad_(False)
        assert check.function(call, None) is None
        model[4].bias.requires_grad_(True)


def test_same_and_different_objects(build):
    a, b = torch.zeros(2), torch.zeros(2)
    same = build([relation("{0} is {1}", Y, X)], {})
    different = build([relation("{0} is not {1}", Y, X)], {})
    for pair, equal in (((a, a), True), ((a, b), False)):
        assert same(pair, None) == equal
        assert different(pair, None) != equal


def test_apart_means_no_shared_memory(build):
    check = build([relation("disjoint_memory({0}, {1}, {2})", X, Y, Z)],
                  {})
    whole, other = torch.zeros(8), torch.zeros(8)
    empty = torch.zeros(0)
    assert check((whole, other, torch.zeros(8)), None)
    assert check((whole, empty, empty), None)
    assert not check((whole, other, whole), None)
    assert not check((whole[:2], other, whole[6:]), None)
    array = torch.zeros(8).numpy()
    views = torch.from_numpy(array[:6]), torch.from_numpy(array[2:])
    assert not check((*views, other), None)


STATES = {
    "no_grad": torch.no_grad, "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "flop counter": lambda: __import__(
        "torch.utils.flop_counter").utils.flop_counter.FlopCounterMode(
            display=False),
    "dual numbers": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("state", STATES)
def test_global_state_is_noticed(build, state):
    check = build([STATE], {})
    assert check((), None)
    with STATES[state]():
        assert not check((), None)
    assert check((), None)


def test_default_dtype_and_determinism_are_noticed(build):
    check = build([STATE], {})
    torch.set_default_dtype(torch.float64)
    try:
        assert not check((), None)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not check((), None)
    finally:
        torch.use_deterministic_algorithms(False)
    assert check((), None)


def test_a_transform_is_noticed(build):
    check, seen = build([STATE], {}), []

    def watch(x):
        seen.append(check((), None))
        return x * 2

    torch.func.vmap(watch)(torch.zeros(3, 2))
    assert seen == [False] and check((), None)


def test_autocast_dtype_and_device_are_noticed(build):
    from minicompile.core.state import global_state
    with torch.autocast("cpu", torch.bfloat16):
        check = build([Guard(None, "state", global_state())], {})
        assert check((), None)
        with torch.autocast("cpu", torch.float16):
            assert not check((), None)
        with torch.autocast("cpu", enabled=False):
            assert not check((), None)
    assert not check((), None)


def test_closures_globals_and_constants_are_read_from_the_call(build):
    def make(n):
        def f():
            return n
        return f

    cell = Item(Attribute(F, "__closure__"), 0)
    settings = Constant("settings", table)
    check = build([Guard(Attribute(cell, "cell_contents", ), "equal", 3),
                   Guard(Item(settings, "a"), "equal", 1),
                   Guard(Call("type", X), "is", int)],
                  {"settings": table})
    assert check((1,), make(3))
    assert not check((1,), make(4))
    assert not check((1.0,), make(3))
    table["a"] = 5
    try:
        assert not check((1,), make(3))
    finally:
        table["a"] = 1


def test_no_guard_at_all_always_holds(build):
    assert build([], {})((), None)


def layers(count):
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(count)))


@pytest.mark.parametrize("count", [1, 3, 4, 20])
def test_many_layers_alike_each_count(build, count):
    model = layers(count)
    check = build([STATE, *module_guards(model, X)], {})
    assert check((model,), None)
    for layer in model:
        saved = layer.weight.data
        layer.weight.data = saved.double()
        assert not check((model,), None)
        layer.weight.data = saved
        layer.training = False
        assert not check((model,), None)
        layer.training = True
        assert check((model,), None)


def test_siblings_that_differ_are_told_apart(build):
    sizes = [3, 5, 7, 2, 4, 3]
    model = nn.Sequential(*map(nn.Linear, sizes, sizes[1:]))
    check = build(module_guards(model, X), {})
    assert check((model,), None)
    model[0], model[1] = model[1], model[0]
    assert not check((model,), None)


def test_identities_of_many_items(build):
    things = [Thing() for _ in range(9)]
    check = build([Guard(Item(X, at), "is", thing)
                   for at, thing in enumerate(things)], {})
    assert check((things,), None)
    for at in range(9):
        others = list(things)
        others[at] = Thing()
        assert not check((others,), None)


@pytest.mark.parametrize("counted", [True, False])
def test_the_text_is_pinned(golden, counted, monkeypatch):
    where = Where(__file__, 1)
    guards = [STATE, tensor(X, base()), Guard(Y, "equal", 2, where),
              *module_guards(layers(5), Z)]
    """Where changes of dicts are counted, and where they are not."""
    monkeypatch.setattr(c_functions, "COUNTED", counted)
    golden("check.txt" if counted else "check_uncounted.txt",
           build_check(guards, {}).source)
