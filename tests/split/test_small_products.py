"""Products of small matrices are sums, which fuse; tried on a CPU."""

import pytest
import torch

from minicompile import compile, fusion
from minicompile.split.torch import decompositions
from tests.fusion.graphs import aten
from tests.same import assert_same


#: As they are for users; without those of a CPU in these tests.
PAIRS = {**decompositions.PAIRS}


def calls(function, *args):
    """How many of a graph's steps are operators, and how many kernels."""
    schedule = fusion.fuse(aten(function, *(x.detach() for x in args)))
    return len(schedule.externs), len(schedule.kernels)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Single products are taken apart as well."""
    monkeypatch.setitem(decompositions.PAIRS, "cpu", 2 ** 17)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sides", [
    (3, 3, 3), (2, 5, 16), (1, 4, 1), (90, 3, 4)])
def test_many_small_matrices(sides, dtype):
    m, k, n = sides
    a, b = torch.randn(7, m, k, dtype=dtype), torch.randn(
        7, k, n, dtype=dtype)
    args = a.requires_grad_(), b.mT.contiguous().mT.requires_grad_()

    def f(a, b):
        return torch.tanh(a * 2 @ b)
    assert_same(f, *args)
    assert calls(f, *args) == (0, 1)


def test_a_chain_of_turns_and_any_number_of_them():
    def f(turn, point):
        return (turn @ turn.mT @ point[..., None])[..., 0].norm(dim=-1)
    compiled = compile(f)
    for count in (5, 9, 7):
        given = torch.randn(count, 3, 3), torch.randn(count, 3)
        torch.testing.assert_close(compiled(*given), f(*given))
    assert compiled.stats().graphs == 2
    assert calls(f, *given)[0] == 0


def test_others_stay_calls_of_the_library():
    a = torch.randn(2, 17, 5)
    assert calls(lambda a: a @ a.mT, a) == (1, 0)
    assert calls(lambda a: a[0] @ a[0].mT, a) == (1, 0)
    assert calls(lambda a: a @ a, torch.randn(2, 3, 3).bfloat16()) == (1, 0)
    assert calls(lambda a: a @ a, torch.ones(2, 3, 3).long())[0] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sides", [(9, 12, 5), (3, 300, 2), (500, 4, 4),
                                   (1, 1, 1), (40, 0, 3)])
def test_single_products_on_a_gpu(as_on_a_gpu, sides, dtype):
    m, k, n = sides
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    args = a.requires_grad_(), b.requires_grad_(), torch.randn(n).to(dtype)

    def f(a, b, bias):
        return torch.relu(a @ b), torch.addmm(bias, a, b)
    assert_same(f, *args)
    assert calls(f, *args)[0] == 0 or not k


def test_on_a_cpu_only_a_tiny_one_is_a_sum(monkeypatch):
    monkeypatch.setattr(decompositions, "PAIRS", PAIRS)
    a, b = torch.randn(6, 6), torch.randn(8, 8)
    assert calls(torch.mm, a, a) == (0, 1)
    assert calls(torch.mm, b, b) == (1, 0)
    assert calls(torch.mm, a.half(), a.half()) == (1, 0)
    assert_same(lambda a: torch.tanh(a @ a.T), a.requires_grad_())


@pytest.mark.parametrize("sides", [(64, 64, 64), (5, 2000, 5)])
def test_a_library_multiplies_what_is_larger(as_on_a_gpu, sides):
    m, k, n = sides
    a, b = torch.randn(m, k), torch.randn(k, n)
    limit = m * k * n
    assert calls(torch.mm, a, b)[0] == (limit > 2 ** 17)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_on_a_gpu_they_are_as_right_as_eagers(dtype):
    def f(a, b, c):
        return torch.tanh(a @ a.mT) @ b, c @ b[0], c.T @ c
    args = [torch.randn(*shape, device="cuda", dtype=dtype,
                        requires_grad=True)
            for shape in ((50, 8, 8), (50, 8, 16), (300, 8))]
    compiled = assert_same(f, *args)
    assert not any(s.externs for s in
                   compiled.cache.entries[0].lowered.schedules.values())
