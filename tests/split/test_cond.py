"""A choice between two graphs: results, gradients, written operands."""

import pytest
import torch

from minicompile import compile
from tests.same import assert_same


def shared(x, w):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda a, b: a.sin() * b,
                      lambda a, b: b.cos() + a, (y, x)), y.exp()


def turned(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: a @ b.t(),
                      lambda a, b: (b @ a.t()).t().contiguous(),
                      (x, w)).t().sin()


def one_sided(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: a * 1, lambda a, b: b * 1,
                      (x, w))


def twice(x, w):
    first = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x * w,))
    return torch.cond(first.sum() > 1, torch.exp, torch.neg, (first,))


@pytest.mark.parametrize("function", [shared, turned, one_sided, twice])
@pytest.mark.parametrize("sign", [1, -1])
def test_either_branch_is_eagers(function, sign):
    x, w = (torch.rand(3, 3) for _ in range(2))
    for backend in ("split", "fused"):
        assert_same(function, (x * sign).requires_grad_(),
                    w.clone().requires_grad_(), backend=backend)


def test_an_operand_that_is_written_to_raises_as_in_eager():
    def function(x):
        y = x * 2
        z = torch.cond(x.sum() > 0, torch.sin, torch.cos, (y,))
        y.add_(1)
        return z
    for run in (function, compile(function, backend="split")):
        x = torch.rand(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            run(x).sum().backward()
