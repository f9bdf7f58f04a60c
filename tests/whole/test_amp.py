"""Mixed precision: autocast in and around a step, and a GradScaler."""

import pytest
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd

import minicompile
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


def train(function, **settings):
    """Losses, parameters, scale and what the optimizer keeps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
    run = function
    if settings:
        run = minicompile.compile(function, **settings)
    data = [torch.randn(2, 5, 6) for _ in range(10)]
    data[4][0, 0, 0] = float("inf")  # this step has to be skipped
    seen = [run(model, optimizer, scaler, x, y[:, :3]) for x, y in data]
    return [seen, model.state_dict(), scaler.state_dict(),
            optimizer.state_dict()["state"]], run


@pytest.mark.parametrize("function", [inside, clipping])
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_step_with_a_scaler(function, backend):
    want, _ = train(function)
    got, run = train(function, backend=backend)
    close(got, want, 2e-2, 2e-2)
    close(got[2], want[2])  # the scale itself, exactly
    assert not run.stats().fallbacks, run.stats()


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_autocast_around_the_call(backend):
    """The forward is cast, the backward is called outside."""
    model = nn.Sequential(nn.Linear(6, 16), nn.Softmax(1), nn.Linear(16, 3))
    x = torch.randn(5, 6, requires_grad=True)
    compiled = minicompile.compile(model, backend=backend, fullgraph=True)
    results = []
    for run in (compiled, model):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        results.append([y, *torch.autograd.grad(
            y.float().sum(), [x, *model.parameters()])])
    close(*results, 2e-2, 2e-2)
    assert results[0][0].dtype == torch.bfloat16
    close(compiled(x), model(x), 1e-5, 1e-5)  # a graph without casts
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
                torch.randn(4, 5, requires_grad=True), backend=backend,
                rtol=2e-2, atol=2e-2)


def broken(x, w, manager):
    y = x @ w
    with manager:
        y = y @ w
        print(y.dtype)
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ w
        y = y @ w
    return y + z, (x @ w).exp()


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_a_break_inside_costs_one_graph(backend, capsys):
    """The rest starts inside the region, and leaves it itself."""
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    mine, yours = (torch.autocast("cpu", torch.bfloat16) for _ in range(2))
    compiled = minicompile.compile(broken, backend=backend)
    for _ in range(2):
        got, want = compiled(x, w, mine), broken(x, w, yours)
        close(got, want, 2e-2, 2e-2)
        close(*(torch.autograd.grad(sum(each).float().sum(), [x, w])
                for each in (got, want)), 2e-2, 2e-2)
        assert vars(mine) == vars(yours)
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (2, 1, 0)
    assert capsys.readouterr().out == "torch.bfloat16\n" * 4


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
