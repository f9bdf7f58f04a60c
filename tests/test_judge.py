"""The judge of numbers: what it lets pass, and what it does not."""

import pytest
import torch

from tests.judge import judged, near

X = torch.randn(1000, generator=torch.manual_seed(0))


def total(x):
    return (x * 1000).sum(0, keepdim=True)


@pytest.mark.parametrize("share, right", [
    (0, True), (1, True), (1.9, True), (2.5, False), (-1, True),
    (-2.5, False)])
def test_at_most_twice_eagers_error(share, right):
    """Here eager is as wrong as if it added in 16 bits."""
    exact = total(X.double())
    want = (exact * 1.01).float()
    got = (exact + share * (want - exact)).float()
    assert accepted(got, want, total, X) == right


def test_another_computation_is_no_judge():
    """Eager is far from what fp64 gives: then only eager counts."""
    assert accepted(total(X), total(X), lambda x: total(x) * 2, X)
    assert not accepted(total(X) * 1.5, total(X), lambda x: total(x) * 2, X)


def test_a_function_that_refuses_doubles_is_no_judge():
    def function(x):
        return x @ torch.ones(1000, dtype=torch.float32)
    assert not accepted(function(X) + 1, function(X), function, X)


def test_infinities_and_nans_are_eagers():
    def function(x):
        return torch.cat([x * 1e4, torch.tensor([torch.inf, torch.nan])])
    want = function(X)
    got = want * 1.00001
    assert not accepted(got, want, function, X)
    assert accepted(want, got, lambda x: function(x), X)
    for place in (0, -1, -2):
        wrong = want.clone()
        wrong[place] = 7 if place else torch.nan
        assert not accepted(wrong, got, function, X)


@pytest.mark.parametrize("input, right", [
    (1e-7, True), (1e-5, False), (0., False)])
def test_on_a_kink_the_gradient_of_either_side_is_right(input, right):
    x = X.clone()
    x[7] = input

    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.relu().sum(), x)[0]
    flipped = gradient(x)
    flipped[7] = 1 - flipped[7]
    assert accepted(gradient(x), gradient(x), gradient, x)
    assert accepted(flipped, gradient(x), gradient, x) == right
    flipped[8] = 1 - flipped[8]
    assert not accepted(flipped, gradient(x), gradient, x)


def accepted(got, want, function, *args) -> bool:
    try:
        judged(near, got, want, function, *args)
    except AssertionError:
        return False
    return True
