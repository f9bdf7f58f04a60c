"""Questions about many objects at once, in Python.

In: a list of objects, one for each place that looks alike. Out: whether
all are as expected. This is what the questions mean; native.py has the
same ones compiled, and they are used where there is a C++ compiler. `x`,
`y` is one object, and what it is expected to be.
PyTorch's are the LeafGuards in torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from ..core.guard import TensorFacts
from .constants import fingerprint

#: Each object with what is expected of it.
pairs = partial(zip, strict=True)


def exact(objects: list, kind: type) -> bool:
    """Whether each is of that class, and of no subclass."""
    return all(type(x) is kind for x in objects)


def sized(containers: list, length: int) -> bool:
    """Whether each has that many items."""
    return all(len(x) == length for x in containers)


def holding(containers: list, key: object, there: bool) -> bool:
    """Whether the key is in all of them, or in none."""
    return all((key in x) is there for x in containers)


def lacking(dicts: list, keys: tuple) -> bool:
    """Whether none of them has any of the keys."""
    return all(x.keys().isdisjoint(keys) for x in dicts)


def equal(objects: list, expected: list) -> bool:
    """Whether each is of the type and value of a plain constant."""
    return all(type(x) is type(y) and x == y if type(y) is not float
               else fingerprint(x) == fingerprint(y)
               for x, y in pairs(objects, expected))


def answers(questions: list[Callable], expected: list) -> bool:
    """Whether each function returns the very object expected."""
    return all(ask() is y for ask, y in pairs(questions, expected))


def tensors(objects: list, expected: list) -> bool:
    """Whether each is a tensor of class and metadata as expected."""
    return all(type(x) is y[0] and metadata(x) == y
               for x, y in pairs(objects, expected))


def metadata(x: torch.Tensor) -> tuple:
    """What decides how a kernel reads the tensor, with its lazy bits."""
    return (type(x), x.dtype, x.device, x.layout, x.is_neg(), x.is_conj(),
            x.requires_grad, x.shape, x.stride())


def described(facts: TensorFacts) -> tuple:
    """The metadata of a tensor of which these are the facts."""
    sizes = (tuple(ANY if n is None else n for n in numbers)
             for numbers in (facts.shape, facts.stride))
    return (facts.type, facts.dtype, facts.device, torch.strided, False,
            False, facts.requires_grad, *sizes)


class Any:
    """What a symbolic size is expected to be: it equals every number."""

    def __eq__(self, other: object) -> bool:
        return True


ANY = Any()
