"""Replay on a GPU: what PyTorch's users reported, and random programs.

Each test named after an issue of pytorch/pytorch does what was reported
there; nobody clones, nobody marks steps.
"""

import copy
import random

import pytest
import torch
from torch import nn

import minicompile

pytestmark = pytest.mark.gpu


def replayed(model):
    return minicompile.compile(model, mode="reduce-overhead")


def mlp(seed=0, width=32, depth=3):
    torch.manual_seed(seed)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, width)).cuda()


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def same_gradients(model, reference):
    for p, q in zip(model.parameters(), reference.parameters()):
        close(p.grad, q.grad)


def batch(rows=8, width=32):
    return torch.randn(rows, width, device="cuda")


def replays(function):
    return function.stats().replays


def test_it_replays():
    model = mlp()
    compiled = replayed(model)
    with torch.no_grad():
        for _ in range(5):
            x = batch()
            close(compiled(x), model(x))
    assert replays(compiled)["replayed"] >= 4


def test_issue_122192_outputs_of_earlier_calls_stay():
    model = mlp()
    compiled = replayed(model)
    with torch.no_grad():
        given = [batch() for _ in range(8)]
        held = [compiled(x) for x in given]
        for x, out in zip(given, held):
            close(out, model(x))


@pytest.mark.parametrize("micro", [2, 4])
def test_issue_96693_gradients_accumulate(micro):
    model, reference = mlp(), mlp()
    compiled = replayed(model)
    for _ in range(4):
        model.zero_grad()
        reference.zero_grad()
        for _ in range(micro):
            x = batch()
            compiled(x).square().mean().backward()
            reference(x).square().mean().backward()
        same_gradients(model, reference)


def test_issue_106321_losses_are_added_before_one_backward():
    model, reference = mlp(), mlp()
    compiled = replayed(model)
    for _ in range(4):
        xs = [batch() for _ in range(3)]
        sum(compiled(x).square().mean() for x in xs).backward()
        sum(reference(x).square().mean() for x in xs).backward()
        same_gradients(model, reference)


def test_issue_169545_an_output_is_used_after_the_next_forward():
    model, reference = mlp(), mlp()
    compiled = replayed(model)
    last = last_reference = torch.zeros(8, 32, device="cuda")
    for _ in range(6):
        x = batch()
        out, wanted = compiled(x), reference(x)
        (out - last.detach()).square().mean().backward()
        (wanted - last_reference.detach()).square().mean().backward()
        last, last_reference = out, wanted
        same_gradients(model, reference)


def test_issue_152887_the_result_is_the_next_input():
    model = mlp()
    compiled = replayed(model)
    with torch.no_grad():
        x = wanted = batch()
        for _ in range(8):
            x, wanted = compiled(x), model(wanted)
            close(x, wanted)


def test_issue_160281_blocks_compiled_one_by_one():
    blocks = nn.ModuleList(mlp(k, depth=1) for k in range(4))
    reference = copy.deepcopy(blocks)
    compiled = [replayed(block) for block in blocks]
    for _ in range(5):
        x = wanted = batch()
        for block, other in zip(compiled, reference):
            x, wanted = block(x), other(wanted)
        x.square().mean().backward()
        wanted.square().mean().backward()
        same_gradients(blocks, reference)


def test_training_with_an_optimizer():
    model, reference = mlp(), mlp()
    compiled = replayed(model)
    ours = torch.optim.AdamW(model.parameters(), lr=1e-2)
    theirs = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for _ in range(20):
        x, y = batch(), batch()
        losses = []
        for each, optimizer in ((compiled, ours), (reference, theirs)):
            loss = (each(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        close(*losses)
    assert replays(compiled)["replayed"] >= 30


def test_what_waits_for_the_device_runs_unrecorded():
    def function(x):
        return x[x > 0].sum() * 2
    compiled = replayed(function)
    for _ in range(4):
        x = batch()
        close(compiled(x), function(x))


def test_random_numbers_are_fresh_and_repeatable():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5, True)
    compiled = replayed(function)
    x = torch.ones(4096, device="cuda")
    found = [compiled(x) for _ in range(5)]
    for a, b in zip(found, found[1:]):
        assert not torch.equal(a, b)
        assert abs(a.mean().item() - 1) < 0.1
    torch.manual_seed(3)
    first = compiled(x)
    torch.manual_seed(3)
    assert torch.equal(first, compiled(x))


def test_another_stream():
    model = mlp()
    compiled = replayed(model)
    side = torch.cuda.Stream()
    with torch.no_grad():
        for turn in range(8):
            x = batch()
            if turn % 2:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    out = compiled(x)
                torch.cuda.current_stream().wait_stream(side)
            else:
                out = compiled(x)
            close(out, model(x))


def test_inside_the_users_own_recording():
    model = mlp()
    compiled = replayed(model)
    x = batch()
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)
        x.normal_()
        graph.replay()
        close(out, model(x))


def test_a_misaligned_input():
    model = mlp()
    compiled = replayed(model)
    memory = torch.randn(8 * 32 + 1, device="cuda")
    with torch.no_grad():
        for k in (0, 1, 0, 1, 1):
            x = memory[k:k + 256].view(8, 32)
            close(compiled(x), model(x))


@pytest.mark.parametrize("seed", range(12))
def test_random_training_programs(seed):
    chance = random.Random(seed)
    model, reference = mlp(seed), mlp(seed)
    compiled = replayed(model)
    pending, held = [], []
    for _ in range(40):
        match chance.choice(["call", "call", "nest", "back", "keep",
                             "drop", "hold"]):
            case "call" | "nest" as what:
                x = batch()
                out, wanted = compiled(x), reference(x)
                if what == "nest":
                    out, wanted = compiled(out), reference(wanted)
                close(out, wanted)
                pending.append((out, wanted))
            case "back" | "keep" as what if pending:
                k = chance.randrange(len(pending))
                out, wanted = pending[k]
                gradient = torch.randn_like(out)
                out.backward(gradient, retain_graph=what == "keep")
                wanted.backward(gradient, retain_graph=what == "keep")
                if what == "back":
                    pending.pop(k)
                same_gradients(model, reference)
            case "drop" if pending:
                pending.pop(chance.randrange(len(pending)))
            case "hold" if pending:
                out, wanted = chance.choice(pending)
                held.append((out.detach(), wanted.detach()))
    for out, wanted in held + pending:
        close(out, wanted)


def test_random_numbers_in_forward_and_backward_are_the_same():
    """One mask in both, another in each call."""
    def drops(x, w):
        return nn.functional.dropout(x @ w, 0.5) * 3

    compiled, w = replayed(drops), torch.eye(64, device="cuda")
    masks = []
    for _ in range(6):
        given = batch(64, 64).requires_grad_()
        y = compiled(given, w)
        y.sum().backward()
        close(given.grad, torch.where(y == 0, 0.0, 6.0))
        masks.append(y == 0)
    assert not torch.equal(masks[-1], masks[-2])
    assert abs(torch.stack(masks).double().mean() - 0.5) < 0.03
