"""Mixed precision: autocast in and around a step, and a GradScaler."""

import pytest
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.utils._pytree import tree_leaves

import minicompile
from tests.judge import judged
from tests.same import assert_same, close


def inside(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = (model(x) - y).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def clipping(model, optimizer, scaler, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        loss = (model(x) - y).float().abs().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss


LR = 0.01
#: How far a parameter may be off: AdamW turns a gradient near 0 into a
#: whole step, up or down as bfloat16 rounds it.
TWO_STEPS = 2 * LR


def train(function, **settings):
    """Losses, parameters, scale and what the optimizer keeps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), LR)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
    run = function
    if settings:
        run = minicompile.compile(function, **settings)
    data = [torch.randn(2, 5, 6) for _ in range(10)]
    data[4][0, 0, 0] = float("inf")  # this step has to be skipped
    seen = [run(model, optimizer, scaler, x, y[:, :3]) for x, y in data]
    return [seen, model.state_dict(), scaler.state_dict(),
            optimizer.state_dict()["state"]], run


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("function", [inside, clipping])
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_step_with_a_scaler(function, backend):
    want, _ = train(function)
    got, run = train(function, backend=backend)
    for ours, theirs in zip(tree_leaves(got), tree_leaves(want)):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=TWO_STEPS,
                                   equal_nan=True)
    close(got[2], want[2])  # the scale itself, exactly
    assert not run.stats().fallbacks, run.stats()


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_autocast_around_the_call(backend):
    """The forward is cast, the backward is called outside."""
    model = nn.Sequential(nn.Linear(6, 16), nn.Softmax(1), nn.Linear(16, 3))
    x = torch.randn(5, 6, requires_grad=True)
    compiled = minicompile.compile(model, backend=backend, fullgraph=True)

    def seen(run, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        return [y, *torch.autograd.grad(
            y.float().sum(), [x, *run.parameters()])]

    got = seen(compiled, x)
    judged(close, got, seen(model, x), seen, model, x)
    assert got[0].dtype == torch.bfloat16
    # a graph without casts
    judged(close, compiled(x), model(x), lambda model, x: model(x), model, x)
    assert compiled.stats().graphs == 2


class Cast(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_custom_forward_and_backward(backend):
    def fn(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return Cast.apply(x @ w, w.t()) * 2

    assert_same(fn, torch.randn(3, 4, requires_grad=True),
                torch.randn(4, 5, requires_grad=True), backend=backend)


def broken(x, w, manager):
    y = x @ w
    with manager:
        y = y @ w
        print(y.dtype)
        with torch.autocast("cpu", enabled=False):
            z = y.to(w.dtype) @ w
        y = y @ w
    return y + z, (x @ w).exp()


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_break_inside_costs_one_graph(backend, capsys):
    """The rest starts inside the region, and leaves it itself."""
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    mine, yours = (torch.autocast("cpu", torch.bfloat16) for _ in range(2))
    compiled = minicompile.compile(broken, backend=backend)

    def seen(run, leaves, manager):
        made = run(*leaves, manager)
        return [*made, *torch.autograd.grad(
            sum(made).float().sum(), leaves)]

    results = []
    for _ in range(2):
        results.append((seen(compiled, [x, w], mine),
                        seen(broken, [x, w], yours)))
        assert vars(mine) == vars(yours)
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (2, 1, 0)
    assert capsys.readouterr().out == "torch.bfloat16\n" * 4
    for got, want in results:
        judged(close, got, want, seen, broken, [x, w], yours)


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_graph_that_fails_inside_leaves_the_region(backend):
    def fn(x, at):
        with torch.no_grad(), torch.autocast("cpu", torch.float16):
            x[0] = 1
            return (x @ x)[at]

    def depth():
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting()

    compiled, before = minicompile.compile(fn, backend=backend), depth()
    compiled(torch.ones(3, 3), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(3, 3), torch.tensor([7]))
    assert compiled.stats().graphs == 1
    assert torch.is_grad_enabled() and depth() == before
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
