"""A whole train step in one compiled function: backward, step, zero_grad."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import minicompile
from minicompile.core.loops import Kernel
from tests.same import close

STEPS = 20


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def keeping(model, optimizer, x, y):
    """Gradients are filled with zeros, then added to twice."""
    optimizer.zero_grad(set_to_none=False)
    (model(x) - y).abs().mean().backward()
    (model(x * 2) - y).abs().mean().backward()
    optimizer.step()


def clipped(model, optimizer, x, y):
    loss = (model(x) - y).pow(2).sum()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    return norm


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.BatchNorm1d(8),
                          nn.Linear(8, 3))
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    return model.double()


def train(function, kind, options, **settings):
    """(losses, parameters, optimizer's state, compiled) after STEPS."""
    model = network()
    optimizer = kind(model.parameters(), **{"lr": 0.02, **options})
    run = function
    if settings:
        run = minicompile.compile(function, **settings)
    torch.manual_seed(1)
    data = [torch.randn(2, 5, 6).double() for _ in range(STEPS)]
    seen = [run(model, optimizer, x, y[:, :3]) for x, y in data]
    grads = [p.grad for p in model.parameters()]
    return [seen, grads, model.state_dict(), optimizer.state_dict()], run


def same(got, want, digits: int = 9):
    """Equal to so many digits, in each of STEPS."""
    for ours, theirs in zip(tree_leaves(got), tree_leaves(want),
                            strict=True):
        torch.testing.assert_close(ours, theirs, rtol=10 ** -digits,
                                   atol=10 ** (-2 - digits))


SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
CASES = [
    (step, SGD, {}), (step, SGD, {"foreach": True}),
    (step, SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (step, Adam, {}), (step, Adam, {"foreach": True, "amsgrad": True}),
    (step, AdamW, {}), (step, AdamW, {"foreach": True}),
    (step, AdamW, {"lr": torch.tensor(0.02)}),
    (step, AdamW, {"amsgrad": True}), (step, torch.optim.Adamax, {}),
    (keeping, SGD, {"momentum": 0.5}), (keeping, Adam, {}),
    (clipped, AdamW, {}), (clipped, SGD, {"foreach": True}),
    (step, torch.optim.RMSprop, {}), (step, torch.optim.Adagrad, {}),
]


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("function, kind, options, backend", [
    *((*case, "fused") for case in CASES),
    *((step, kind, {}, backend) for kind in (SGD, AdamW)
      for backend in ("eager", "split"))])
def test_twenty_steps_are_eagers(function, kind, options, backend):
    want, _ = train(function, kind, copy.deepcopy(options))
    got, run = train(function, kind, copy.deepcopy(options),
                     backend=backend)
    same(got, want, 6 if "lr" in options else 9)  # a float32 tensor
    stats = run.stats()
    assert not stats.fallbacks, stats
    assert {each.kind for each in run.cache.breaks} == {"gradient"}, (
        list(map(str, run.cache.breaks)))
    assert stats.graphs <= 5 and stats.recompiles <= 3, stats


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "ASGD", "Adafactor"])
@pytest.mark.parametrize("foreach", [False, True])
def test_rare_updates_are_eagers_to_the_last_digits(name, foreach):
    """Float32 has no digits left of RAdam's corrections, and no graph
    is made for each parameter of an update that looks at numbers."""
    def run(compiled: bool) -> list:
        torch.manual_seed(0)
        parameters = list(network().parameters())
        optimizer = getattr(torch.optim, name)(parameters, foreach=foreach)
        update = optimizer.step
        if compiled:
            update = minicompile.compile(
                lambda: optimizer.step(), backend="eager")
        for _ in range(STEPS):
            for each in parameters:
                each.grad = torch.randn_like(each)
            update()
        if compiled:
            stats = update.stats()
            assert stats.graphs <= 4 and not stats.fallbacks, stats
        return [*parameters, optimizer.state_dict()]

    same(run(True), run(False), 7)  # NAdam's product is a float32


def test_the_update_is_one_graph_of_fused_loops():
    _, run = train(step, AdamW, {"foreach": True}, backend="fused")
    update = next(entry for cache in run.cache.family()[1:]
                  for entry in cache.entries)
    ops = {node.target for node in update.trace.graph.graph.nodes}
    assert not any("foreach" in str(op) for op in ops)
    schedule = update.lowered.schedules["forward"]
    assert all(isinstance(each, Kernel) for each in schedule.steps)


def test_a_fused_optimizer_runs_as_it_was_traced():
    """Its one operator writes to lists, which the split cannot undo."""
    want, _ = train(step, AdamW, {"fused": True})
    with pytest.warns(UserWarning, match="_fused_adamw_"):
        got, run = train(step, AdamW, {"fused": True}, backend="fused")
    same(got, want)
    assert run.stats().graph_breaks == 2 and run.stats().fallbacks


@pytest.mark.parametrize("kind, options", [
    (AdamW, {}), (Adam, {"amsgrad": True}), (SGD, {"momentum": 0.9}),
    (torch.optim.Adagrad, {})])
def test_a_scheduled_rate_compiles_a_fused_optimizer_twice(kind, options):
    def run(compiled: bool):
        model = network()
        optimizer = kind(model.parameters(), lr=0.1, fused=True, **options)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def update():
            optimizer.step()

        update = minicompile.compile(update) if compiled else update
        for _ in range(6):
            model(torch.ones(3, 6).double()).square().sum().backward()
            update()
            schedule.step()
            optimizer.zero_grad()
        return list(model.parameters()), update

    with pytest.warns(UserWarning, match="_fused_ad|_fused_sgd") as caught:
        got, update = run(True)
    close(got, run(False)[0])
    assert max(len(str(each.message)) for each in caught) < 400
    assert update.stats().graphs <= 3, update.stats()


def test_after_torch_compile_was_used():
    """Its first use disables parts of every optimizer, for itself."""
    torch._dynamo.eval_frame.TorchPatcher.patch()
    minicompile.reset()
    for kind in (SGD, AdamW):
        test_twenty_steps_are_eagers(step, kind, {}, "eager")
    test_a_fused_optimizer_runs_as_it_was_traced()
