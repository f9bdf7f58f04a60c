"""Tensors of a user's class that are made of parts, such as quantised
weights: the graph has the parts, and the results are eager's."""

import copy
import enum
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

import minicompile
from minicompile.core.torch.subclasses import Together, has_parts
from tests.judge import judged
from tests.same import close

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Whole numbers, and a factor for each row."""

    @staticmethod
    def __new__(cls, data, scale, mode="once"):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data, scale, mode="once"):
        self.whole, self.scale, self.mode = data, scale, mode

    def __tensor_flatten__(self):
        return ["whole", "scale"], {"mode": self.mode}

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["whole"], parts["scale"], context["mode"])

    def __repr__(self):
        return f"{type(self).__name__}({self.mode})"

    def float_values(self):
        values = self.whole.to(self.scale.dtype) * self.scale
        return values * 2 if self.mode == "twice" else values

    @property
    def half(self):
        return self.scale / 2

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        first = args[0]
        if function in (aten.detach.default, aten.alias.default):
            return cls(first.whole, first.scale, first.mode)
        if function is aten.t.default:
            return cls(first.whole.t(), first.scale.t(), first.mode)
        if function is aten.zero_.default:
            first.whole.zero_()
            return first
        if function is aten.view.default:
            return first.whole.view(args[1])
        if function is aten.mul.Tensor and type(args[1]) is float:
            return cls(first.whole, first.scale * args[1], first.mode)
        given = tree_map(lambda each: each.float_values() if isinstance(
            each, cls) else each, (args, kwargs or {}))
        return function(*given[0], **given[1])


def scaled(rows=8, mode="once"):
    return Scaled(torch.randint(-90, 90, (rows, 8), dtype=torch.int8),
                  torch.rand(rows, 1), mode)


x = torch.randn(4, 8)


def linear(x, w):
    return F.gelu(F.linear(x, w)), w.half.sum()


def asked(x, w):
    known = isinstance(w, Scaled), type(w) is Scaled, w.mode, w.shape, len(w)
    return x * (3 if known[0] else 5), known


def followed(x, w):
    return x @ w.float_values() + w.scale[0], w.t() @ w


def given_back(x, w):
    return w, x + w.whole.sum()


@pytest.mark.parametrize("program", [linear, asked, followed, given_back])
def test_the_parts_are_the_graphs_inputs(program):
    w = scaled()
    compiled = minicompile.compile(program, fullgraph=True)
    judged(close, compiled(x, w), program(x, w), program, x, w)
    stats = compiled.stats()
    assert stats.graphs == 1 and stats.kernels and not stats.fallbacks


def changed(w):
    w.mode = "twice"
    return w


CHANGES = [lambda w: scaled(mode="twice"), lambda w: scaled(16), changed,
           lambda w: w.float_values(),
           lambda w: Scaled(w.whole, w.scale.double().float().t().t()[:, :1]),
           lambda w: Scaled(w.whole.long(), w.scale)]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_tensor_is_besides_its_parts_is_guarded(change):
    compiled = minicompile.compile(F.linear)
    w = scaled()
    for given in (w, scaled(), change(w)):
        judged(close, compiled(x, given), F.linear(x, given), F.linear, x,
               given)
    assert compiled.stats().graphs <= 2 and not compiled.stats().fallbacks


@pytest.mark.parametrize("dynamic", [True, None])
def test_frozen_weights_in_a_model_that_learns(dynamic):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    for layer in model[0], model[2]:
        layer.weight = nn.Parameter(scaled(), requires_grad=False)
    compiled = minicompile.compile(model, dynamic=dynamic)
    for rows in (4, 6, 9):
        given = torch.randn(rows, 8, requires_grad=True)
        grads = [torch.autograd.grad(each(given).square().sum(), [
            given, *(p for p in model.parameters() if p.requires_grad)])
            for each in (compiled, model)]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-2)
    stats = compiled.stats()
    assert stats.graphs <= 2 and stats.kernels and not stats.fallbacks


def a_part_written(x, w):
    w.whole.add_(1)
    return F.linear(x, w)


def a_part_written_later(x, w):
    y = F.linear(x, w)
    w.whole.add_(1)
    return y + F.linear(x, w)


def zeroed(x, w):
    w.zero_()
    return F.linear(x, w) + 1


def told(x, w):
    w.mode = "twice"
    return F.linear(x, w)


def told_in_its_dict(x, w):
    vars(w)["mode"] = "twice"
    return F.linear(x, w)


def another_part(x, w):
    w.scale = w.scale * 2
    return F.linear(x, w)


def extended(x, w):
    w.extra = 3
    return F.linear(x, w) * w.extra


def added(x, w):
    w += 1
    return F.linear(x, w)


def a_result_of_the_class(x, w):
    return x + 1, w * 2.0


def memory_of_a_part(x, w):
    return w.view(64), x * 2


PROGRAMS = [a_part_written, a_part_written_later, zeroed, told,
            told_in_its_dict, another_part, extended, added,
            a_result_of_the_class, memory_of_a_part]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_no_graph_says_is_as_in_eager(program):
    """It is a graph break, or the graph runs as it was traced."""
    ours = scaled()
    theirs = Scaled(ours.whole.clone(), ours.scale.clone())
    compiled = minicompile.compile(program)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got, want = compiled(x, ours), program(x, theirs)
        for one, other in zip(*map(tree_map_parts, ((got, ours),
                                                    (want, theirs)))):
            torch.testing.assert_close(one, other)
        assert ours.mode == theirs.mode
        assert vars(ours).keys() == vars(theirs).keys()
        if program is memory_of_a_part:
            assert got[0].data_ptr() == ours.whole.data_ptr()
    stats = compiled.stats()
    assert stats.graph_breaks or stats.fallbacks


def tree_map_parts(given):
    """All plain tensors, those of parts taken apart."""
    if isinstance(given, Scaled):
        return [given.whole, given.scale]
    if isinstance(given, tuple):
        return [part for each in given for part in tree_map_parts(each)]
    return [given]


def test_one_that_requires_a_gradient_is_eagers():
    pair = TwoTensor(torch.randn(4), torch.randn(4)).requires_grad_()
    compiled = minicompile.compile(lambda pair: (pair * 2).sum())
    with pytest.warns(UserWarning, match="TwoTensor, pair"):
        compiled(pair).backward()
    assert torch.equal(pair.grad.a, torch.full((4,), 2.0))
    assert compiled.stats().fallbacks == {"input": 1}


class Kind(enum.Enum):
    ROW = 1


@dataclass
class How:
    kind: Kind
    bits: int | None
    more: object = ()


class Opaque:
    pass


@pytest.mark.parametrize("context, said", [
    (None, True), ((1, "a", torch.float32, [Kind.ROW, Scaled]), True),
    (How(Kind.ROW, 3), True), (How(Kind.ROW, 3, How(Kind.ROW, None)), True),
    (Opaque(), False), (How(Kind.ROW, 3, Opaque()), False),
    ({"a": {3}}, False), ([torch.ones(1)], False)])
def test_a_text_says_all_of_the_context_or_nothing(context, said):
    pair = Scaled(x.char(), x[:, :1])
    pair.__tensor_flatten__ = lambda: (["whole", "scale"], context)
    assert has_parts(pair) == said


def test_what_puts_a_tensor_together():
    one, other, third = scaled(), scaled(), scaled(mode="twice")
    made = Together(one)(other.whole, other.scale)
    assert type(made) is Scaled and made.whole is other.whole
    assert Together(one) == Together(other) != Together(third)
    assert len({Together(one), Together(other), Together(third)}) == 2
    assert copy.copy(Together(one)) == Together(other)
