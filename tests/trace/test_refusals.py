"""What a trace refuses: a kind, the user's line, and a way out."""

# ruff: noqa: UP031, UP032

import time

import numpy
import pytest
import torch

from minicompile.core.errors import Unsupported
from minicompile.trace import trace
from minicompile.trace.reasons import REASONS

from .conftest import entry

CASES = []


def refused(kind):
    def register(function):
        CASES.append((kind, function))
        return function
    return register


@pytest.mark.parametrize("kind, function", CASES,
                         ids=[f.__name__ for _, f in CASES])
def test_refused(kind, function):
    x = torch.ones(3)
    with pytest.raises(Unsupported) as error:
        trace(entry, (function, (x,), {}))
    refusal = error.value
    assert refusal.kind == kind, refusal
    assert refusal.hint and kind in REASONS
    assert refusal.where.file == __file__
    assert refusal.where.text.endswith("# here")
    assert torch.equal(x, torch.ones(3))


@refused("data-dependent")
def branch(x):
    if x.sum() > 0:  # here
        return x
    return -x


@refused("effect")
def out_of_another_shape(x):
    return torch.add(x, 1, out=x[:1].clone())  # here


@refused("effect")
def out_of_another_dtype(x):
    return torch.complex(x, x, out=torch.zeros(  # here
        3, dtype=torch.complex128))


@refused("data-dependent")
def item(x):
    return x * x[0].item()  # here


@refused("data-dependent")
def number(x):
    return float(x[0]) + 1  # here


@refused("data-dependent")
def text(x):
    return f"{x}"  # here


@refused("data-dependent")
def percent(x):
    return "%s" % x  # here


@refused("data-dependent")
def formatted(x):
    return "{}".format(x)  # here


@refused("data-dependent")
def nonzero(x):
    return x.nonzero()  # here


@refused("data-dependent")
def mask(x):
    return x[x > 0]  # here


@refused("data-dependent")
def largest(x):
    return max(x)  # here


@refused("data-dependent")
def member(x):
    return x.sum() in [1, 2]  # here


@refused("data-dependent")
def to_numpy(x):
    return x.numpy()  # here


@refused("builtin")
def printing(x):
    print("hello")  # here
    return x


@refused("builtin")
def clock(x):
    return x + time.time()  # here


@refused("disabled")
def seed(x):
    torch.manual_seed(3)  # here
    return x


@refused("library")
def array(x):
    return x + numpy.ones(3).sum()  # here


@refused("gradient")
def backward(x):
    x.sum().backward()  # here


@refused("exception")
def raises(x):
    raise ValueError("the user's own")  # here


@refused("exception")
def wrong_shapes(x):
    return x @ torch.ones(5)  # here


@refused("exception")
def missing(x):
    return {"a": x}["b"]  # here


@refused("exception")
def undefined(x):
    return x + nowhere  # noqa: F821  # here


@refused("exception")
def too_many(x):
    return len(x, x)  # here


@refused("recursion")
def endless(x):
    return endless(x)  # here


def test_inputs_that_are_no_plain_tensors():
    for bad in (torch.eye(2).to_sparse(), torch.ones(2).conj()
                if False else torch.complex(
                    torch.ones(2), torch.ones(2)).conj()):
        with pytest.raises(Unsupported) as error:
            trace(entry, (lambda x: x * 2, (bad,), {}))
        assert error.value.kind == "input"


def test_what_is_no_function():
    with pytest.raises(Unsupported) as error:
        trace(len, ([],))
    assert error.value.kind == "code"


def test_the_users_exception_is_the_cause():
    with pytest.raises(Unsupported) as error:
        trace(entry, (raises, (torch.ones(1),), {}))
    assert isinstance(error.value.__cause__, ValueError)
