"""What the user changes between the forward and the backward.

The gradient is the right one, or eager's error comes: never a wrong one.
"""

from __future__ import annotations

import pytest
import torch
from torch.linalg import inv

import minicompile

#: What is returned first is changed; all results are summed.
RETURNED = {
    "a result": torch.exp,
    "a saved result": inv,
    "a view of a saved result": lambda x: inv(x).t(),
    "a row of a saved result": lambda x: inv(x)[0],
    "one of two": lambda x: ((y := inv(x)), y.t()),
    "a detached one": lambda x: ((y := inv(x)).detach(), y),
    "a softmax": lambda x: (x @ x).softmax(-1).t(),
    "of two products": lambda x: ((y := x @ x).t(), y @ y),
    "an input": lambda x: (x, x @ x),
    "a view of an input": lambda x: (x.t(), x.sin()),
    "a written input": lambda x: (x.sin_(), x @ x),
    "a mask": torch.relu,
    "a multiple": lambda x: x * 2,
    "positions": lambda x: ((k := x.argsort(1)), x.gather(1, k)),
    "parts of a complex": lambda x: torch.view_as_real(
        inv(torch.complex(x, x))),
}


def add(x):
    x.add_(1)


def part(x):
    x[:1].zero_()


@torch.no_grad()
def unseen(x):
    x.mul_(2)


def gradient(function, change):
    """The gradient with all ones as tangents, or the error's type."""
    torch.manual_seed(0)
    x = (torch.rand(3, 3) + torch.eye(3)).requires_grad_()
    made = function(x * 1)
    made = made if isinstance(made, tuple) else (made,)
    change(made[0])
    ends = [each for each in made if each.grad_fn is not None]
    try:
        torch.autograd.backward(ends, [torch.ones_like(e) for e in ends])
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return None
    return x.grad


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_changed_result(name, backend):
    function = RETURNED[name]
    compiled = minicompile.compile(function, backend=backend)
    if "input" not in name:  # its gradient goes through the change
        right = gradient(function, lambda x: None)
        got = gradient(compiled, lambda x: unseen(x.detach()))
        if got is not None:
            torch.testing.assert_close(got, right)
    for change in (add, part, unseen):
        got, want = gradient(compiled, change), gradient(function, change)
        if got is not None and want is not None:
            torch.testing.assert_close(got, want)
        assert want is None or got is not None


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("function", [
    lambda x, w: x * w, lambda x, w: x @ w, lambda x, w: x @ w.t(),
    lambda x, w: (x @ w[1:].t()).exp()])
def test_a_changed_input_that_is_needed(function, backend):
    compiled = minicompile.compile(function, backend=backend)
    for change in (add, part, unseen):
        x, w = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3)
        y = compiled(x, w)
        change(w)
        with pytest.raises(RuntimeError, match="inplace operation"):
            y.sum().backward()
