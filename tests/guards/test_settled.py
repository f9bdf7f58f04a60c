"""What is asked only after a change: every change is noticed."""

import collections
import sys

import pytest
import torch
from torch import nn

import minicompile
from minicompile.core.guard import Attribute, Guard, Item
from minicompile.guards import build_check
from minicompile.guards.fast import c_functions
from tests.guards.say import X, module_guards, tensor


#: CPython counts changes to dictionaries before 3.13.
SETTLES = pytest.mark.skipif(
    sys.version_info >= (3, 13) or not c_functions.compiled(),
    reason="nothing is settled here")


class Layer(nn.Linear):
    """A class of its own for each test to change."""

    def __init__(self):
        super().__init__(2, 2)
        self.label, self.table, self.mode = "a", {"k": 1, "gone": 2}, None


def guards_of(model):
    yield from module_guards(model, X)
    for key, layer in model._modules.items():
        place = Item(Attribute(X, "_modules"), key)
        yield Guard(Attribute(place, "__dict__"), "lacks",
                    ("forward", "weight"))
        yield Guard(Attribute(place, "label"), "equal", layer.label)
        yield Guard(Attribute(place, "mode"), "is", None)
        table = Attribute(place, "table")
        yield Guard(table, "type", dict)
        yield Guard(table, "keys", ("k", "gone"))
        yield Guard(Item(table, "k"), "equal", 1)
        yield Guard(table, "lacks", ("absent",))
        yield Guard(Attribute(place, "_parameters"), "type", dict)


class Other(Layer):
    pass


class Twice(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


def hooked():
    return collections.OrderedDict({1: print})


def replace_dict(layer, **more):
    layer.__dict__ = {**layer.__dict__, **more}


def reorder(table):
    table["k"] = table.pop("k")


def add_property(kind, name, value):
    setattr(kind, name, property(lambda self: value,
                                 lambda self, value: None))


#: What is done to one layer (of class `kind`) of several.
CHANGES = {
    "attribute": lambda m, kind: setattr(m, "label", "b"),
    "plain attribute": lambda m, kind: object.__setattr__(m, "label", "b"),
    "in vars": lambda m, kind: vars(m).__setitem__("label", "b"),
    "vars updated": lambda m, kind: vars(m).update(label="b"),
    "equal, not the same": lambda m, kind: setattr(m, "training", 1),
    "none": lambda m, kind: setattr(m, "mode", False),
    "deleted": lambda m, kind: delattr(m, "label"),
    "popped": lambda m, kind: vars(m).pop("mode"),
    "forward": lambda m, kind: setattr(m, "forward", torch.relu),
    "set by default": lambda m, kind: vars(m).setdefault("forward", 1),
    "another dict": lambda m, kind: replace_dict(m, label="b"),
    "another class": lambda m, kind: setattr(m, "__class__", Other),
    "hook": lambda m, kind: m.register_forward_hook(print),
    "hook by hand": lambda m, kind: m._forward_hooks.update({0: print}),
    "dict of hooks": lambda m, kind: setattr(m, "_forward_hooks", hooked()),
    "other parameters": lambda m, kind: setattr(
        m, "_parameters", Twice(m._parameters)),
    "no bias": lambda m, kind: m._parameters.pop("bias"),
    "bias is none": lambda m, kind: setattr(m, "bias", None),
    "parameters cleared": lambda m, kind: m._parameters.clear(),
    "bias of another shape": lambda m, kind: m._parameters.__ior__(
        {"bias": nn.Parameter(torch.ones(1))}),
    "bias frozen": lambda m, kind: m.bias.requires_grad_(False),
    "bias in half": lambda m, kind: m.half(),
    "item": lambda m, kind: m.table.__setitem__("k", 2),
    "item of another type": lambda m, kind: m.table.update(k=True),
    "item added": lambda m, kind: m.table.setdefault("absent", 1),
    "last item": lambda m, kind: m.table.popitem(),
    "order": lambda m, kind: reorder(m.table),
    "another table": lambda m, kind: setattr(m, "table", {"k": 1}),
    "ordered table": lambda m, kind: setattr(
        m, "table", collections.OrderedDict(m.table)),
    "list for hooks": lambda m, kind: setattr(m, "_forward_hooks", [1]),
    "property": lambda m, kind: add_property(kind, "label", "b"),
    "property of a base": lambda m, kind: add_property(
        kind.__mro__[1], "_parameters", {}),
    "__getattribute__": lambda m, kind: setattr(
        kind, "__getattribute__", lambda self, name: 7),
}


def fresh():
    """A model whose layers have a class with a base of their own."""
    base = type("Base", (Layer,), {})
    kind = type("Kind", (base,), {})
    model = nn.Sequential(*(kind() for _ in range(6)))
    return model, kind


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_noticed_before_and_after_settling(build, name,
                                                          calls):
    model, kind = fresh()
    check = build(guards_of(model), {})
    for _ in range(calls):
        assert check((model,), None)
    CHANGES[name](model[4], kind)
    assert not check((model,), None)
    assert not check((model,), None)


HARMLESS = {
    "counter": lambda m: setattr(m, "calls", 1),
    "same again": lambda m: setattr(m, "label", "a"),
    "another dict": lambda m: replace_dict(m),
    "refilled": lambda m: (found := dict(m._parameters),
                           m._parameters.clear(),
                           m._parameters.update(found)),
    "hook and back": lambda m: m.register_forward_hook(print).remove(),
    "another weight": lambda m: setattr(m, "weight", nn.Parameter(
        torch.ones(2, 2))),
    "a list for hooks": lambda m: setattr(m, "_forward_hooks", []),
    "class": lambda m: setattr(type(m), "note", 1),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_changes_are_asked_about_and_pass(build, name):
    model, _ = fresh()
    check = build(guards_of(model), {})
    for _ in range(3):
        assert check((model,), None)
        HARMLESS[name](model[2])
    assert check((model,), None) and check((model,), None)
    model[2]._forward_hooks = hooked()
    assert not check((model,), None)


def test_a_list_for_hooks_is_never_settled(build):
    model, _ = fresh()
    model[1]._forward_hooks = hooks = []
    check = build(guards_of(model), {})
    assert check((model,), None) and check((model,), None)
    hooks.append(print)
    assert not check((model,), None)


@SETTLES
def test_what_changes_while_it_is_asked_is_asked_again():
    model, _ = fresh()
    check = build_check(guards_of(model), {})
    values = check.names.values
    agrees = values["agrees"]

    def changing(*given):
        model[3].register_forward_hook(print)  # its question was before
        return agrees(*given)
    values["agrees"] = changing
    check((model,), None)
    values["agrees"] = agrees
    assert not check((model,), None)


def test_other_layers_at_the_same_place_are_other_layers(build):
    check = None
    for turn in range(20):
        model, kind = fresh()
        if check is None:
            check = build([g for g in guards_of(model)
                           if g.expected is not kind], {})
        for layer in model:
            layer.__class__ = Layer
        assert check((model,), None)
        model[turn % 6].label = "b"
        assert not check((model,), None)
        del model


@SETTLES
def test_a_settled_check_asks_less():
    model, _ = fresh()
    check = build_check(guards_of(model), {})
    asked, values = [], check.names.values
    below = values["below"]
    values["below"] = lambda *given: asked.append(1) or below(*given)
    assert check((model,), None) and asked.pop()
    assert check((model,), None) and asked == []
    model[0].calls = 3
    assert check((model,), None) and asked


def test_models_in_a_list_are_settled_one_by_one(build):
    models = [nn.Sequential(*(Layer() for _ in range(6))) for _ in range(5)]
    guards = [guard for at, model in enumerate(models)
              for guard in module_guards(model, Item(X, at))]
    sources = [next(g.source for g in guards if str(g.source) == each)
               for each in ("x[4].3.weight", "x[1].3.weight")]
    check = build(guards, {}, sources)
    for _ in range(3):
        for at, source in zip((4, 1), check.function((models,), None)):
            assert source is models[at][3].weight
        models[4][3].weight = nn.Parameter(torch.zeros(2, 2))
    models[2][5].register_forward_hook(print)
    assert not check((models,), None)
    models[2] = nn.Sequential(*(Layer() for _ in range(6)))
    assert check((models,), None)
    models[2] = nn.Sequential(*(Layer() for _ in range(5)))
    assert not check((models,), None)


def settings():
    return {"a": 1, "b": 2.0, "c": "three", "d": None, "e": True, "f": 6,
            "g": {"h": 8}, "i": 9, "j": torch.ones(3)}


#: What is done to a dict that is itself an argument.
SETTINGS = {
    "number": lambda d: d.update(a=2),
    "type": lambda d: d.update(a=True),
    "float": lambda d: d.update(b=-2.0),
    "none": lambda d: d.update(d=0),
    "below": lambda d: d["g"].update(h=7),
    "another below": lambda d: d.update(g={"h": 7}),
    "tensor": lambda d: d.update(j=torch.ones(4)),
    "gone": lambda d: d.pop("i"),
}


@pytest.mark.parametrize("calls", [0, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_dict_that_is_an_argument_is_asked_about(build, name, calls):
    table = settings()
    guards = [Guard(X, "type", dict), Guard(Item(X, "g"), "type", dict),
              Guard(Item(Item(X, "g"), "h"), "equal", 8),
              *(tensor(Item(X, key), value) if key == "j" else
                Guard(Item(X, key), "equal", value)
                for key, value in table.items() if key != "g")]
    check = build(guards, {})
    for _ in range(calls):
        assert check((table,), None)
    SETTINGS[name](table)
    assert not check((table,), None)
    assert check((settings(),), None)
    assert not check(([*table],), None)


def test_a_compiled_function_follows_the_dict_it_is_given():
    def weighted(x, d):
        return x * (d["a"] + d["b"] + d["c"] + d["e"] + d["f"] + d["g"]
                    + d["h"] + d["i"] + d["j"] + d["k"])
    compiled = minicompile.compile(weighted, backend="eager")
    table, x = dict.fromkeys("abcdefghijk", 1), torch.ones(2)
    for key in "abck":
        assert compiled(x, table).equal(weighted(x, table))
        table[key] += 1
        assert compiled(x, table).equal(weighted(x, table))
