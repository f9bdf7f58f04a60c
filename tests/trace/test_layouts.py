"""Results lie in memory as eager's, where PyTorch's own fakes do not."""

import itertools

import pytest
import torch
from torch.nn import functional as F

import minicompile

ORDERS = (0, 1, 2, 3), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3), (2, 3, 0, 1)


def gradient(f):
    """What gives the gradient of a function's sum."""
    return lambda x: torch.autograd.grad(
        f(x.requires_grad_()).sum(), x)[0]


FUNCTIONS = {
    "a number to a power": lambda x: 2 ** x,
    "log sigmoid": F.logsigmoid,
    "its gradient": gradient(F.logsigmoid),
    "random relu": lambda x: F.rrelu(x, training=True),
    "a mean's gradient": gradient(lambda x: F.mse_loss(
        x, x.flip(0), reduction="none")),
    "a smooth loss's gradient": gradient(lambda x: F.smooth_l1_loss(
        x, 2 * x, reduction="none")),
    "a robust loss's gradient": gradient(lambda x: F.huber_loss(
        x, 2 * x, reduction="none")),
    "normalised": lambda x: F.batch_norm(x, None, None, training=True),
    "its image's gradient": gradient(lambda x: F.batch_norm(
        x, None, None, training=True)),
    "normalised, in inference": lambda x: F.batch_norm(
        x, x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1),
    "rolled": lambda x: x.roll(1, 1),
    "channels shuffled": lambda x: F.channel_shuffle(x, 2),
    "divided by a number": lambda x: x // torch.tensor(2.),
    "signs of a number": lambda x: torch.copysign(x, torch.tensor(-1.)),
}


@pytest.mark.slow(sample=3)
@pytest.mark.parametrize("device", [
    "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_has_eagers_strides(name, dynamic, device):
    if (name, device) == ("channels shuffled", "cuda"):
        pytest.skip("eager's elements overlap there (torch 2.11)")
    function = FUNCTIONS[name]
    compiled = minicompile.compile(function, dynamic=dynamic)
    for order in ORDERS:
        x = laid_out(order).to(device)
        assert compiled(x.detach()).stride() == (
            function(x.detach()).stride())


BOTH = {
    "divided": torch.floor_divide, "with signs": torch.copysign,
    "weighted logarithms": torch.xlogy, "steps": torch.heaviside,
    "both": torch.logical_and, "either": torch.logical_or,
    "one": torch.logical_xor, "added logarithms": torch.logaddexp,
    "those to base 2": torch.logaddexp2,
    "in a list": lambda x, y: torch.isin(x, y.flatten()[:3]),
    "filled": lambda x, y: x[:, ::2].index_fill(1, torch.tensor([1]), 0)}


@pytest.mark.parametrize("name", BOTH)
def test_a_result_of_two_has_eagers_strides(name):
    function, image = BOTH[name], torch.rand(2, 4, 6, 8)
    others = [image, image.permute(2, 0, 3, 1).contiguous().permute(
        1, 3, 0, 2), torch.rand(2, 4, 1, 8).expand(2, 4, 6, 8)]
    compiled = minicompile.compile(function, dynamic=False, options={
        "recompile_limit": 9})
    for x, y in itertools.product(others, repeat=2):
        assert compiled(x, y).stride() == function(x, y).stride()
    assert compiled.stats().graphs == 9


def test_a_trace_knows_the_strides():
    """The program asks for them while it is traced."""
    def flat(x):
        power = 2 ** x
        return power.view(-1) if power.is_contiguous() else x
    x = laid_out((3, 2, 1, 0))
    compiled = minicompile.compile(flat, backend="eager", fullgraph=True)
    assert compiled(x).equal(flat(x)) and compiled(x).dim() == 1


def laid_out(order):
    """An image whose axes lie in memory in this order."""
    sizes = [(2, 4, 6, 8)[axis] for axis in order]
    return torch.rand(sizes).permute(sorted(range(4), key=order.index))
