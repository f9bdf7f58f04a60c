"""Operators of a user's class, given another meaning between two calls."""

import types

import pytest
import torch
from torch import nn

import minicompile
from tests.same import close


class Op:
    k = 1

    def __init__(self, k=1):
        self.k = k

    def __call__(self, x):
        return x * 2

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return index + 1

    def __add__(self, other):
        return 5

    def __radd__(self, other):
        return 6

    def __iter__(self):
        return iter([1, 2])

    def __eq__(self, other):
        return True

    def __contains__(self, other):
        return True

    def __enter__(self):
        return 3

    def __exit__(self, *error):
        pass

    def __getattr__(self, name):
        return 4


class Plain:
    pass


class Meta(type):
    def __call__(cls, *args):
        return type.__call__(cls, *args)


class Made(metaclass=Meta):
    def __init__(self, k):
        self.k = k


class Descriptor:
    def __get__(self, owner, kind):
        return 3


class Holder:
    d = Descriptor()


class Layer(nn.Module):
    def forward(self, x):
        return x * 3


OP, PLAIN, HOLDER, LAYER = Op(), Plain(), Holder(), Layer()


def entered(x):
    with OP as value:
        return x * value


#: What is replaced, or added, by what, and a program that uses it.
CHANGES = [
    (Op, "__call__", lambda self, x: x * 3, lambda x: OP(x)),
    (Op, "__len__", lambda self: 7, lambda x: x * len(OP)),
    (Op, "__getitem__", lambda self, k: 7, lambda x: x * OP[1]),
    (Op, "__add__", lambda self, k: 7, lambda x: x * (OP + 1)),
    (Op, "__radd__", lambda self, k: 7, lambda x: x * (1 + OP)),
    (Op, "__iter__", lambda self: iter([7]), lambda x: x * sum(OP)),
    (Op, "__eq__", lambda self, k: False, lambda x: x * (OP == 3)),
    (Op, "__contains__", lambda self, k: False, lambda x: x * (3 in OP)),
    (Op, "__enter__", lambda self: 8, entered),
    (Op, "__getattr__", lambda self, name: 8, lambda x: x * OP.unknown),
    (Op, "__init__", lambda self, k: None, lambda x: x * Op(3).k),
    (Op, "__neg__", lambda self: 8, lambda x: x * -OP),
    (Plain, "__bool__", lambda self: False, lambda x: x if PLAIN else -x),
    (Plain, "__len__", lambda self: 0, lambda x: x if PLAIN else -x),
    (Meta, "__call__", lambda cls, k: types.SimpleNamespace(k=9),
     lambda x: x * Made(2).k),
    (Descriptor, "__get__", lambda self, owner, kind: 8,
     lambda x: x * HOLDER.d),
    (Layer, "__call__", lambda self, x: x * 8, lambda x: LAYER(x))]


@pytest.mark.parametrize("kind, name, new, program", CHANGES, ids=[
    f"{kind.__name__}.{name}" for kind, name, _, _ in CHANGES])
def test_a_change_is_noticed(kind, name, new, program, monkeypatch):
    compiled = minicompile.compile(program, backend="eager")
    x = torch.ones(3)

    def check():
        try:
            wanted = program(x)
        except TypeError:  # there is no such operator yet
            with pytest.raises(TypeError):
                compiled(x)
        else:
            close(compiled(x), wanted)
    check()
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, new, raising=False)
        check()
    check()
    check()
