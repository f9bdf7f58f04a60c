"""The book's models, compiled: results, gradients and training."""

import copy

import pytest
import torch

import minicompile
from minicompile.report.views.models import MODELS, build
from tests.judge import judged, near

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def exact_convolutions():
    """Without TF32, whose error would hide ours."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model(*batch)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def batch_in(batch, dtype):
    return [x.to(dtype) if x.is_floating_point() else x for x in batch]


@pytest.mark.slow(sample=5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_as_exact_as_eager(name, backend, device):
    model, batch = build(name, device)
    eager = loss_and_gradients(copy.deepcopy(model), batch)
    compiled = minicompile.compile(model, backend=backend, fullgraph=True)
    ours = loss_and_gradients(compiled, batch)
    assert compiled.stats().graphs == 1
    judged(near, ours, eager, loss_and_gradients, model, batch)


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [
    torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", MODELS)
def test_twenty_training_steps_follow_eager(name, dtype, device):
    if dtype == torch.bfloat16 and device == "cpu":
        pytest.skip("bf16 training is judged on the GPU")
    model, batch = build(name, device)
    model, batch = model.to(dtype), batch_in(batch, dtype)
    compiled = minicompile.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(20):  # each is judged from the state that ours is in
        twin = copy.deepcopy(model)
        ours = loss_and_gradients(compiled, batch)
        judged(near, ours, loss_and_gradients(twin, batch),
               loss_and_gradients, model, batch)
        optimizer.step()
        losses.append(ours[0].item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", MODELS)
def test_inference_needs_no_backward(name):
    model, batch = build(name)
    model.eval()
    compiled = minicompile.compile(model, fullgraph=True)
    with torch.no_grad():
        got, want = compiled(*batch), model(*batch)
    torch.testing.assert_close(got, want)
    (entry,) = compiled.cache.entries
    assert list(entry.lowered.programs) == ["forward"]
    assert not got.requires_grad


def test_state_dict_and_attributes_are_those_of_the_module():
    model, _ = build("mlp")
    compiled = minicompile.compile(model)
    assert list(compiled.state_dict()) == [
        "_orig_mod." + key for key in model.state_dict()]
    assert compiled.layers is model.layers
    compiled.eval()
    assert not model.training
