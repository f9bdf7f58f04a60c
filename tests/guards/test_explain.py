"""A failed check says what was, what is, and which line relied on it."""

import pytest
import torch
from torch import nn

from minicompile.core.guard import Attribute, Guard, Item
from minicompile.core.errors import Where
from minicompile.guards import build_check
from tests.guards.say import (STATE, X, Y, explain, module_guards,
                              relation, tensor)


class Thing:
    def __repr__(self):
        return "Thing()"


def scale(x):
    return x * 2


def double(x):
    return x * 2


def twice(x):
    return x * 2


twice.__qualname__ = "double"
base = torch.zeros(32, 4)
thing = Thing()

#: guard -> (new value, what is said)
KEYS = ("DispatchKeySet({}, ADInplaceOrView, AutogradCPU, "
        "AutocastCPU)").format
SAID = [
    (tensor(X, base), torch.zeros(48, 4),
     ["size of dimension 0 of `x` was 32, is 48"]),
    (tensor(X, base), torch.zeros(48, 5, dtype=torch.float64),
     ["dtype of `x` was torch.float32, is torch.float64",
      "size of dimension 0 of `x` was 32, is 48",
      "size of dimension 1 of `x` was 4, is 5"]),
    (tensor(X, base), torch.zeros(32),
     ["shape of `x` was (32, 4), is (32,)"]),
    (tensor(X, base), torch.zeros(4, 32).t(),
     ["strides of `x` was (4, 1), is (1, 32)"]),
    (tensor(X, base), base.clone().requires_grad_(),
     ["requires_grad of `x` was False, is True"]),
    (tensor(X, base), base.to_sparse(),
     ["layout of `x` was torch.strided, is torch.sparse_coo",
      f"dispatch keys of `x` was {KEYS('CPU')}, is {KEYS('SparseCPU')}"]),
    (tensor(X, base), torch.nested.as_nested_tensor(base),
     [f"dispatch keys of `x` was {KEYS('CPU')}, is DispatchKeySet("
      "NestedTensorCPU, ADInplaceOrView, AutogradCPU, "
      "AutogradNestedTensor, AutocastCPU)"]),
    (tensor(X, base), nn.Parameter(base),
     ["type of `x` was Tensor, is Parameter"]),
    (Guard(X, "equal", 2), 3, ["`x` was 2, is 3"]),
    (Guard(X, "equal", 1), True, ["`x` was 1, is True"]),
    (Guard(X, "equal", 0.0), -0.0, ["`x` was 0.0, is -0.0"]),
    (Guard(X, "type", int), "", ["type of `x` was int, is str"]),
    (Guard(X, "is", None), 3, ["`x` was None, is 3"]),
    (Guard(X, "is", thing), Thing(),
     ["`x` was Thing(), is another: Thing()"]),
    (Guard(X, "is", scale), double,
     ["`x` was function scale, is function double"]),
    (Guard(X, "is", double), twice,
     ["`x` was function double, is another: function double"]),
    (Guard(X, "length", 2), [1], ["length of `x` was 2, is 1"]),
    (Guard(X, "keys", ("a",)), {}, ["keys of `x` was ('a',), is ()"]),
    (Guard((X,), "relation", "not hasattr({0}, 'real')"), 3,
     ["`not hasattr(x, 'real')` was true, is false: x is 3"]),
    (Guard(X, "contains", "a"), {}, ["key 'a' in `x` was there, is gone"]),
    (Guard(X, "lacks", ("a", "b", "c")), {"a": 1, "c": 2},
     ["key 'a' in `x` was absent, is there",
      "key 'c' in `x` was absent, is there"]),
]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_the_sentence(number):
    guard, new, said = SAID[number]
    check = build_check([guard], {})
    assert not check((new,), None)
    assert [str(f) for f in explain(check, (new,), None)] == said


def test_nothing_is_said_of_a_check_that_holds():
    check = build_check([STATE, *(guard for guard, _, _ in SAID[:1])], {})
    assert explain(check, (base,), None) == []


def test_the_users_line_is_named():
    where = Where(__file__, scale.__code__.co_firstlineno + 1, "scale")
    check = build_check([Guard(X, "equal", 2, where)], {})
    [failure] = explain(check, (3,), None)
    assert str(failure).splitlines() == [
        "`x` was 2, is 3", f"  relied on at {where}  return x * 2"]


def test_aliases_and_memory():
    check = build_check([relation("{0} is {1}", Y, X),
                         relation("disjoint_memory({0}, {1})", X, Y)], {})
    a, b = torch.zeros(2), torch.zeros(2)
    assert [str(f) for f in explain(check, (a, b), None)] == [
        "`y is x` was true, is false"]
    assert [str(f) for f in explain(check, (a, a), None)] == [
        "`disjoint_memory(x, y)` was true, is false"]


def test_global_state():
    check = build_check([STATE], {})
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        said = [str(f) for f in explain(check, (), None)]
    assert said == ["gradient mode was on, is off",
                    "autocast was off, is cpu to torch.bfloat16"]
    with torch.device("meta"):
        assert [str(f) for f in explain(check, (), None)] == [
            "the default device or function mode was None, is meta"]


def test_what_cannot_be_read_is_said_once_and_without_what_follows():
    owner = Attribute(X, "config")
    check = build_check([
        Guard(X, "type", Thing), Guard(owner, "type", dict),
        Guard(Item(owner, "a"), "equal", 1),
        Guard(Item(owner, "b"), "equal", 2)], {})
    good, bad, gone = Thing(), Thing(), Thing()
    good.config, bad.config = {"a": 1, "b": 2}, {"a": 1}
    assert check((good,), None)
    assert [str(f) for f in explain(check, (bad,), None)] == [
        "`x.config['b']` was there, is gone (KeyError: 'b')"]
    for value, what in (gone, "`x.config`"), (3, "type of `x`"):
        [said] = explain(check, (value,), None)
        assert said.startswith(f"{what} was ")


def test_every_failing_guard_of_a_module_is_named():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    check = build_check(module_guards(model, X), {})
    model.half().eval()
    said = [str(f) for f in explain(check, (model,), None)]
    assert len(said) == 6 + 10
    assert "dtype of `x.3.bias` was torch.float32, is torch.float16" in said
    assert "`x.4.training` was True, is False" in said
