"""Questions about many: compiled or in Python, the answers agree."""

import pytest
import torch
from torch import nn

from minicompile.core.torch import extension
from minicompile.core.guard import Attribute, Guard, Item
from minicompile.guards.fast import c_functions
from tests.guards.say import STATE, X, tensor
from tests.guards.test_bad_input import BAD
from tests.guards.test_check import OTHER_TENSORS, base


class Plain:
    shared = "of the class"

    def __init__(self):
        self.own = self.hidden = 1


class Hidden(Plain):
    hidden = property(lambda self: 2, lambda self, value: None)


class Late(Plain):
    def __getattr__(self, name):
        return f"no {name}"


class First(Plain):
    def __getattribute__(self, name):
        return f"always {name}"


class Meta(type):
    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return hash(Plain)


class Posing(Plain, metaclass=Meta):
    pass


class Slots:
    __slots__ = ("own",)


class Broken:
    @property
    def own(self):
        raise AttributeError("mine")


THINGS = [Plain(), Hidden(), Late(), First(), Posing(), Slots(), Broken(),
          Plain, torch, nn.Linear(1, 1), 3, "ab", None,
          {"a": 1}, {}, [1], (1, 2), *(make() for make in BAD)]


def test_both_ways_agree_about_every_thing(build):
    check = build([tensor(X, base())], {})
    for thing in [*THINGS, base()]:
        assert check((thing,), None) is (
            type(thing) is torch.Tensor and thing.shape == (4, 6))
    assert not check((), None)


def test_answers_are_compared_as_objects(build):
    check = build([STATE], {})
    assert check((), None)
    torch.set_default_dtype(torch.float64)
    try:
        assert not check((), None)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        assert not check((), None)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("change", OTHER_TENSORS)
@pytest.mark.parametrize("at", [0, 3, 9])
def test_one_other_tensor_among_many_is_noticed(build, change, at):
    xs = [base() for _ in range(10)]
    check = build([tensor(Item(X, n), x) for n, x in enumerate(xs)], {})
    assert check((xs,), None)
    xs[at] = OTHER_TENSORS[change]()
    assert not check((xs,), None)


@pytest.mark.parametrize("dtype", [
    torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.bool,
    torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64])
def test_dtypes_are_told_apart(build, dtype):
    x = torch.zeros(3, 2, dtype=dtype)
    for other in (torch.float32, torch.uint8, torch.bfloat16, torch.int64):
        y = torch.zeros(3, 2, dtype=other)
        assert build([tensor(X, x)], {})((y,), None) == (other is dtype)
    assert build([tensor(X, x)], {})((x,), None)


class Lying(torch.Tensor):
    """Answers every question about itself with the number 64."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return 64


class LyingMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return 64


def test_a_tensor_class_or_mode_that_lies(build):
    check = build([STATE, *(tensor(Item(X, n), base()) for n in range(5))],
                  {})
    xs = [base() for _ in range(5)]
    assert check((xs,), None)
    with LyingMode():
        assert not check((xs,), None)
    xs[2] = base().as_subclass(Lying)
    assert not check((xs,), None)


def test_a_class_that_takes_over_an_attribute_is_noticed(build):
    class Layer(nn.Module):
        pass

    layers = [Layer() for _ in range(6)]
    check = build([guard for n in range(6) for guard in (
        Guard(Item(X, n), "type", Layer),
        Guard(Attribute(Item(X, n), "training"), "equal", True))], {})
    assert check((layers,), None)
    Layer.training = property(lambda self: False)
    assert not check((layers,), None)
    del Layer.training
    Layer.__getattribute__ = lambda self, name: 1
    assert not check((layers,), None)
    del Layer.__getattribute__
    assert check((layers,), None)


@pytest.fixture
def anew():
    """The C++ is compiled by this test."""
    c_functions.begun.cache_clear()
    yield
    c_functions.begun.cache_clear()


@pytest.mark.parametrize("named", ["no-such-compiler", "false"])
def test_without_a_compiler_they_are_asked_in_python(
        anew, monkeypatch, tmp_path, named):
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", named)
    assert c_functions.compiled.__wrapped__() is None


class NoTensor:
    """Does not begin as a tensor does."""

    def __init__(self, x):
        self._cdata = x._cdata


def test_another_layout_of_tensors_is_noticed(anew, monkeypatch):
    monkeypatch.setattr(extension, "TENSORS", (torch.Tensor, NoTensor))
    assert c_functions.compiled.__wrapped__() is None
