"""Names added, removed and shadowed between calls: none goes unnoticed.

Random programs read random names of instances, classes, metaclasses,
supers, modules, tensors, functions, slots and dicts. A random change may
touch a name that was read, one that was looked for and not found, one in
between, or one that nobody asked for: that last one costs no recompile.
"""

import functools
import random
import types

import pytest
import torch
from torch import nn

import minicompile
from tests.guards.say import explain
from tests.guards.test_fuzz import Reusable, outcome

NAMES = ("k", "m", "n", "go")
UNREAD = ("other", "more")
MISSING = object()


class Meta(type):
    pass


class A(metaclass=Meta):
    def go(self):
        return 1


class B(A):
    pass


class C(B):
    k = 3

    def go(self):
        return super().go() + 10


class Slots:
    __slots__ = ("k", "m")


class Hooked:
    def __getattr__(self, name):
        if name in ("k", "m"):
            return 7
        raise AttributeError(name)


class Net(nn.Module):
    k = 2

    def __init__(self):
        super().__init__()
        self.n = nn.Parameter(torch.ones(2))
        self.register_buffer("m", torch.ones(2))


def number(value):
    """What a program adds up, of whatever it has read."""
    if isinstance(value, (int, float)):
        return value
    return value.sum() if isinstance(value, torch.Tensor) else 100


class Things:
    """What a program reads from; `spaces` are what can be changed."""

    def __init__(self):
        self.c, self.net, self.slots = C(), Net(), Slots()
        self.hooked, self.x = Hooked(), torch.ones(2)
        self.f = types.FunctionType((lambda: 0).__code__, {}, "plain")
        self.module = types.ModuleType("things")
        self.d = {"k": 1, "n": 2}
        self.module.k = self.slots.k = self.f.n = self.x.n = 5

    def spaces(self):
        net = self.net
        return [self.c, A, B, C, Meta, net, Net, net._parameters,
                net._buffers, self.slots, self.hooked, Hooked, self.x,
                self.f, self.module, self.d]  # whose order is read, too


#: How a program reads a name, and of what.
FORMS = (*["getattr({0}, {1!r}, 0)"] * 6, "hasattr({0}, {1!r})",
         "getattr(type({0}), {1!r}, 0)", "w.c.go()",
         "callable({0})", "bool({0}) if {0} is not w.x else 0",
         "w.d.get({1!r}, 0)", "len(list(w.d)) + 3 * (list(w.d)[0] == 'k')",
         "({1!r} in w.c.__dict__)", "len(type({0}).__name__)")
PLACES = ("w.c", "C", "B", "w.net", "w.slots", "w.hooked", "w.x", "w.f",
          "w.module")


def make_program():
    """A program of some random reads, each with a weight of its own."""
    reads = [random.choice(FORMS).format(random.choice(PLACES),
                                         random.choice(NAMES))
             for _ in range(random.randint(12, 24))]
    lines = [f"    y = y + {at + 1} * number({read})"
             for at, read in enumerate(reads)]
    text = "\n".join(["def program(w, x):", "    y = x.double()", *lines,
                      "    return y"])
    names = {"number": number, "C": C, "B": B}
    exec(text, names)
    return names["program"], text


def value():
    """Something to find: a number, a tensor, a property, a function."""
    return random.choice([
        random.randint(0, 99), random.random(), True, None,
        property(lambda self: 4, lambda self, new: None), torch.ones(3),
        lambda self=None: 9, nn.Parameter(torch.ones(1))])


def change(things, names):
    """Set or delete a name somewhere; what undoes it."""
    spaces = things.spaces()
    space, name = random.choice(
        spaces if names is NAMES else spaces[:-1]), random.choice(names)
    new = random.choice([MISSING, value(), value()])
    if isinstance(space, dict):
        old = dict(space)
        if random.random() < 0.3:  # another order
            new = space.pop(name, new)
        space.pop(name, None) if new is MISSING else (
            space.update({name: new}))
        return lambda: (space.clear(), space.update(old))
    had = (vars(space) if hasattr(space, "__dict__") else {
        slot: getattr(space, slot) for slot in Slots.__slots__
        if hasattr(space, slot)}).get(name, MISSING)
    put(space, name, new)
    return lambda: put(space, name, had)


def put(space, name, new):
    """Set an attribute past what a class makes of that, or delete it."""
    base = type if isinstance(space, type) else object
    if new is MISSING:
        base.__delattr__(space, name)
    else:
        base.__setattr__(space, name, new)


@pytest.mark.parametrize("seed", range(40))
def test_no_name_goes_unnoticed(seed):
    """50 changes a program: 2,000 in all."""
    random.seed(seed)
    things, (program, text) = Things(), make_program()
    call = (things, torch.ones(2)), program
    kept = Reusable(call)
    for _ in range(50):
        names = random.choice([NAMES, NAMES, UNREAD])
        undo = None
        try:
            undo = change(things, names)
        except (AttributeError, TypeError):
            pass  # there is no such name to delete, or to set
        try:
            holds = kept.check(*call)
            assert holds or names is NAMES, (
                text, *explain(kept.check, *call))
            if holds:
                now = outcome(functools.partial(program, *call[0]))
                assert outcome(lambda: kept.run(call)) == now, text
        finally:
            undo and undo()
        assert kept.check(*call), text


def test_changes_are_seen_by_eager():
    """The changes above do change results; else they would show nothing."""
    seen = made = 0
    for seed in range(10):
        random.seed(seed)
        things, (program, _) = Things(), make_program()
        result = functools.partial(
            outcome, functools.partial(program, things, torch.ones(2)))
        before = result()
        for _ in range(20):
            try:
                undo = change(things, NAMES)
            except (AttributeError, TypeError):
                continue
            seen += result() != before
            undo()
            made += 1
    assert seen > made / 8


class Silent(type):
    """A metaclass of classes that are false, and say so once too often."""

    def __bool__(self):
        raise RuntimeError("nobody may ask")

    __len__ = __bool__


class Base(metaclass=Silent):
    k = 1

    def size(self):
        return 2


class Derived(Base):
    def size(self):
        return super().size() + self.k


def test_a_class_is_never_asked_whether_it_is_true():
    thing = Derived()
    thing.k = 5

    def program(thing, x):
        return x * thing.size()

    call = (thing, torch.ones(2)), program
    kept = Reusable(call)
    assert kept.run(call).tolist() == [7, 7]
    undo = put_property(Base)
    try:
        assert not kept.check(*call)
    finally:
        undo()
    assert kept.check(*call)


def put_property(kind):
    """Let `k` be a property that wins over an instance's own."""
    before = kind.k
    kind.k = property(lambda self: 9, lambda self, value: None)
    return lambda: setattr(kind, "k", before)


# What a class defines of its own, which a program need not call by name


class Scaling:
    """A descriptor that sets another attribute."""

    scale = 3

    def __set__(self, owner, value):
        vars(owner)["seen"] = value * self.scale


def doubled(self, value):
    self.seen = value * 2


class Customs:
    shown = property(lambda self: self.seen, doubled)
    scaled, plain, seen = Scaling(), 1, 0

    def __call__(self):
        return 1

    def __getattribute__(self, name):
        return 3 if name == "k" else object.__getattribute__(self, name)

    k = 6


def sets(name):
    def program(thing, x):
        setattr(thing, name, 2)
        return x * thing.seen + (thing.plain if name == "plain" else 0)
    return program


def calls(thing, x):
    return x * (1 if callable(thing) else 2)


def asks(thing, x):
    return x * thing.k


@pytest.mark.parametrize("program, name, values", [
    (calls, "__call__", [MISSING]), (asks, "__getattribute__", [MISSING]),
    (sets("shown"), "shown", [property(None, lambda self, value: None), 5]),
    (sets("scaled"), "scaled", [MISSING, 5]),
    (sets("plain"), "plain", [property(lambda self: 9, doubled), 4])],
    ids=["call", "getattribute", "property", "descriptor", "shadowed"])
def test_what_a_class_defines_is_relied_on(program, name, values):
    kind = type("Custom", (), {name: each for name, each in vars(
        Customs).items() if name not in ("__dict__", "__weakref__")})
    thing, x = kind(), torch.ones(2)
    compiled = minicompile.compile(program)
    for value in (vars(kind)[name], *values):
        put(kind, name, value)
        for _ in range(2):
            want = program(thing, x)
            vars(thing).clear()
            assert compiled(thing, x).equal(want), value
            vars(thing).clear()
    assert not compiled.stats().fallbacks


def test_a_descriptor_that_only_sets_hides_no_attribute():
    thing = Customs()
    vars(thing)["scaled"] = 4
    assert minicompile.compile(lambda x: x * thing.scaled)(
        torch.ones(1)).item() == 4
