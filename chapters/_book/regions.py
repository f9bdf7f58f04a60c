"""Functions whose graphs hold graphs: they must stand in a file."""

import torch


class Straight(torch.autograd.Function):
    """Rounds; its gradient passes where the value was small."""

    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return torch.where(x.abs() <= 1, gradient, 0), None


def quantised(x):
    return Straight.apply(x.tanh() * 2, 4).sum()


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def rise_or_fall(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda v: (v * y).sin(), torch.exp, (x,))
