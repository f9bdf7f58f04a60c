"""Grad mode and inference mode, around the call and inside of it."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import pytest
import torch

import minicompile
from tests.split.judge import close, observe
from tests.whole.test_modules import INSTALLED

MODES = {"as it is": nullcontext, "no_grad": torch.no_grad,
         "enable_grad": torch.enable_grad,
         "inference_mode": torch.inference_mode}
BODIES = {
    "value": lambda x, y: (x * y).sin(),
    "view of an input": lambda x, y: x[0],
    "views of a value": lambda x, y: (x * 2).chunk(2)[1],
    "write": lambda x, y: y.mul_(x),
    "write to a view": lambda x, y: (y[0].mul_(2), x * y)[1],
    "detach": lambda x, y: x.detach()}


@pytest.mark.slow(sample=5)
@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_each_operator_has_the_mode_it_has_in_eager(outer, inner):
    for body in BODIES.values():
        function = within(MODES[inner], body)
        compiled = minicompile.compile(function, backend="split")
        for grads in product((True, False), repeat=2):
            given = [torch.rand(2, 2, dtype=torch.float64)
                     .requires_grad_(each) for each in grads]
            want, got = [in_mode(MODES[outer], each, given)
                         for each in (function, compiled)]
            close(list(got.values()), list(want.values()))
        assert not compiled.stats().fallbacks


def within(mode, body):
    """A function that does something in a mode, and more around it."""
    def function(x, y):
        z = y * 3
        with mode():
            made = body(x, z)
        return made, z, x * 3
    return function


def in_mode(mode, function, given) -> dict:
    """What is seen of a call made in a mode, looked at outside of it."""
    def call(*args):
        with mode():
            return function(*args)
    return observe(call, given)


def cached(cache, new, at):
    """Writes to two views of an input, one of them made in two steps."""
    cache[0, :, at].copy_(new)
    cache[1].view(-1)[::2] += 1
    return cache[0].sum(0) + cache.mean()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_view_of_an_input_is_written_to_in_inference_mode(
        backend, dynamic):
    """An inference tensor counts no writes; they happen all the same."""
    compiled = minicompile.compile(cached, backend=backend,
                                   dynamic=dynamic)
    with torch.inference_mode():
        for size in (4, 6, 5):
            mine, other = torch.ones(2, 3, size), torch.ones(2, 3, size)
            new = torch.rand(3)
            torch.testing.assert_close(compiled(mine, new, 1),
                                       cached(other, new, 1))
            torch.testing.assert_close(mine, other)
    stats = compiled.stats()
    assert not stats.fallbacks and not stats.graph_breaks


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_view_of_a_parameter_is_written_to_under_no_grad(backend):
    """Autograd forbids to ask such a view for its gradient, but no more."""
    compiled = minicompile.compile(lambda x: x.mul_(2), backend=backend)
    parameter = torch.nn.Parameter(torch.ones(4))
    with torch.no_grad():
        for size in (2, 3):
            compiled(parameter[:size])
    assert parameter.tolist() == [4, 4, 2, 1]
    assert not compiled.stats().fallbacks


def test_a_refused_graph_leaves_the_modes_as_they_were():
    """Autocast's depth decides when it forgets its casts, and is guarded.
    """
    def twice(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            torch.ops.aten._foreach_add_.Scalar([y, y], 1)
        return y

    compiled = minicompile.compile(twice, backend="split")
    with pytest.warns(UserWarning, match="one place twice"):
        for _ in range(2):
            close(compiled(torch.eye(2)), twice(torch.eye(2)))
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0
    assert compiled.stats().graphs == 1


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_traced_graph_that_fails_leaves_the_modes_as_they_were(backend):
    """It runs if a written input shares memory, or may not be written."""
    def normalized(x, mean, var, at):
        with torch.no_grad():
            y = torch.nn.functional.batch_norm(x, mean, var, training=True)
            chosen = x[at]
        return y + chosen

    def written(x, _):
        with torch.no_grad():
            x.add_(1)
        return x * 2

    memory, x = torch.rand(6), torch.rand(4, 3)
    with torch.inference_mode():
        frozen = torch.ones(2)
    for function, good, bad, error in (
            (normalized, (x, memory[:3], torch.ones(3), torch.tensor([1])),
             (x, memory[:3], memory[3:], torch.tensor([9])), IndexError),
            (written, (torch.ones(2), 1), (frozen, 1), RuntimeError)):
        compiled = minicompile.compile(function, backend=backend)
        compiled(*good)
        with pytest.raises(error):
            compiled(*bad)
        assert torch.is_grad_enabled() and compiled.stats().graphs == 1


@INSTALLED
def test_a_graph_of_another_tracer_leaves_the_modes_as_they_were():
    def chosen(x, at, y):
        with torch.no_grad():
            z = x[at]
            torch.ops.aten._foreach_add_.Scalar([y, y], 1)
        return z + 1

    compiled = torch.compile(chosen, backend="minicompile")
    with pytest.warns(UserWarning, match="one place twice"):
        compiled(torch.ones(3), torch.tensor([1]), torch.ones(2))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([9]), torch.ones(2))
    assert torch.is_grad_enabled()
