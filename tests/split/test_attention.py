"""Attention written in parts is one call where that takes less time."""

import subprocess
import sys

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import minicompile
from minicompile import split
from minicompile.split.torch import attention
from tests.same import assert_same


def plain(q, k, v):
    return (q @ k.transpose(-2, -1) / 8).softmax(-1) @ v


def in_floats(q, k, v):
    scores = torch.matmul(q, k.mT).mul(0.125).float()
    return torch.matmul(torch.softmax(scores, dim=-1).to(q.dtype), v)


def unscaled(q, k, v):
    return torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)), 2), v)


def returned(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def masked(q, k, v):
    return (q @ k.mT + q.new_zeros(256)).softmax(-1) @ v


def of_columns(q, k, v):
    return (q @ k.mT).softmax(-2) @ v


def twice(q, k, v):
    return ((q @ k.mT).softmax(-1) * 2) @ v


def written(q, k, v):
    q = q * 2
    scores = q @ k.mT
    q.zero_()
    return scores.softmax(-1) @ v + q


def tensors(*sizes, rows=256, width=64, **more):
    return [torch.randn(*sizes, rows, width, **more) for _ in range(3)]


def called(function, args):
    """Whether the graph has a call of PyTorch's attention."""
    joint = split.record(fx.symbolic_trace(function), args)
    return "_scaled_dot_product" in str(joint.graph.graph)


def repeated(x, count):
    """Keys for several heads each, as transformers write it."""
    batch, heads, rows, width = x.shape
    return x[:, :, None, :, :].expand(
        batch, heads, count, rows, width).reshape(
            batch, heads * count, rows, width)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(
        q, repeated(k, 4), repeated(v, 4), attn_mask=mask, dropout_p=0.0,
        scale=0.1)


def changed_between(q, k, v, mask):
    k, v = k * 1, v * 1
    keys = repeated(k, 4)
    k.zero_()
    return F.scaled_dot_product_attention(q, keys, repeated(v, 4), mask)


def of_a_cache(q, k, v, mask):
    k, v = k * 1, v * 1
    k.index_copy_(2, torch.tensor([7]), q[:, :2, :1])
    v[:, :, 7] = 0
    return F.scaled_dot_product_attention(
        q, repeated(k, 4), repeated(v, 4), mask)


def dropped(q, k, v, mask):
    return F.scaled_dot_product_attention(
        q, repeated(k, 4), repeated(v, 4), mask, 0.5)


@pytest.mark.parametrize("function, copies", [
    (grouped, False), (of_a_cache, False), (changed_between, True),
    (dropped, True)])
@pytest.mark.parametrize("rows", [1, 40])
def test_heads_that_share_keys_are_not_copied(function, copies, rows):
    q, k, v = (torch.randn(2, heads, count, 16) for heads, count in (
        (8, rows), (2, 64), (2, 64)))
    args = q, k, v, torch.rand(rows, 64) > 0.3
    run = minicompile.compile(function, dynamic=False)
    run(*args)
    schedule = run.cache.entries[0].lowered.schedules["forward"]
    sizes = {buffer.nbytes for buffer in schedule.buffers.values()}
    assert (4 * 2 * 8 * 64 * 16 in sizes) == copies
    if function is not dropped:
        assert_same(function, *args)
        assert_same(function, q, k.requires_grad_(), v, args[-1])


@pytest.fixture
def anywhere(monkeypatch):
    """As if it paid for all on a CPU, where results can be judged."""
    monkeypatch.setitem(attention.LONG, "cpu", 256)
    monkeypatch.setattr(attention, "NUMBERS", {
        torch.float32, torch.bfloat16, torch.float16})


@pytest.mark.parametrize("function, sizes", [
    (plain, (2, 3)), (plain, (4,)), (in_floats, (2, 3)), (unscaled, (4,))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_is_as_exact_as_its_parts(function, sizes, dtype, anywhere):
    torch.manual_seed(0)
    args = tensors(*sizes, dtype=dtype)
    assert called(function, args)
    exact = [each.double() for each in args]

    def with_gradients(function, args):
        args = [each.clone().requires_grad_() for each in args]
        result = function(*args)
        return result, *torch.autograd.grad(result.square().sum(), args)

    compiled = minicompile.compile(function, fullgraph=True)
    for ours, eager, judge in zip(*(with_gradients(*each) for each in (
            (compiled, args), (function, args), (function, exact)))):
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        off, allowed = ((each - judge).abs().max() for each in (ours, eager))
        assert off <= 2 * allowed + 1e-7
    assert compiled(*args).stride() == function(*args).stride()


def test_autocast_is_seen(anywhere, monkeypatch):
    monkeypatch.setattr(attention, "NUMBERS", {torch.bfloat16})
    args = tensors(2, 3)
    assert not called(plain, args)
    compiled = minicompile.compile(plain, fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert called(plain, args)
        ours, eager = compiled(*args), plain(*args)
    assert ours.dtype is eager.dtype is torch.bfloat16
    exact = plain(*(each.double() for each in args))
    assert (ours - exact).abs().max() <= 2 * (eager - exact).abs().max()


@pytest.mark.parametrize("function", [
    returned, masked, of_columns, twice, written])
def test_what_is_another_computation_stays_in_parts(function, anywhere):
    assert not called(function, tensors(2, 3))


@pytest.mark.parametrize("q, k, v", [
    ((2, 3, 256, 64), (2, 3, 255, 64), (2, 3, 255, 64)),
    ((2, 3, 256, 64), (2, 3, 256, 64), (2, 3, 256, 32)),
    ((2, 3, 256, 60), (2, 3, 256, 60), (2, 3, 256, 60)),
    ((2, 1, 256, 64), (2, 3, 256, 64), (2, 3, 256, 64)),
    ((1, 2, 3, 256, 64), (1, 2, 3, 256, 64), (1, 2, 3, 256, 64)),
    ((256, 64), (256, 64), (256, 64))])
def test_other_shapes_stay_in_parts(q, k, v, anywhere):
    assert not called(plain, [*map(torch.randn, (q, k, v))])


@pytest.mark.parametrize("device, dtype, one", [
    ("cpu", torch.float32, False), ("cpu", torch.bfloat16, False),
    ("cuda", torch.float32, False), ("cuda", torch.bfloat16, True)])
def test_it_pays_for_halves_on_a_gpu(device, dtype, one, monkeypatch):
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    with FakeTensorMode():
        args = [torch.empty(2, 3, 512, 64, dtype=dtype, device=device)
                for _ in range(3)]
        assert attention.pays(*args) == one


@pytest.mark.gpu
def test_one_call_is_as_exact_on_a_gpu():
    args = tensors(4, 8, rows=512, dtype=torch.bfloat16, device="cuda")
    compiled = minicompile.compile(plain, fullgraph=True)
    exact = plain(*(each.double() for each in args))
    ours, eager = ((function(*args) - exact).abs().max()
                   for function in (compiled, plain))
    assert ours <= 2 * eager
    assert called(plain, args)


ORDER = """
import sys, torch, minicompile
from torch.nn import functional as F
x = torch.randn(1, 2, 512, 64, device="cuda", dtype=torch.bfloat16)
def attended(x):
    return F.scaled_dot_product_attention(x, x, x)
(minicompile.compile(attended) if len(sys.argv) > 1 else attended)(x)
print(torch._C._get_sdp_priority_order())
"""


@pytest.mark.gpu
def test_a_compile_leaves_pytorchs_choice_of_kernels_alone():
    """PyTorch puts them in order when it first chooses, whoever asks."""
    ours, eager = (subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ORDER, *more], text=True,
        capture_output=True, check=True).stdout for more in (["-"], []))
    assert ours == eager
