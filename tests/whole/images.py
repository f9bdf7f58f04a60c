"""Random programs on images: convolutions, and what stands around them.

A seed gives a program of four to seven steps, each a function of one image
of any size. Compiled, it is run at two sizes, so that sizes are symbols;
its judge is the same program in float64, beside what eager has of error.
"""

from __future__ import annotations

import random
import warnings

import torch
from torch.nn import functional as F

import minicompile

SIZES = (13, 17), (18, 15)


def weights(*shape: int) -> torch.Tensor:
    """The same numbers for one shape, none of them large."""
    count = torch.Size(shape).numel()
    made = torch.sin(torch.arange(count, dtype=torch.float64) * 1.7)
    return (made * (2 / max(1, count // shape[0]) ** 0.5)).view(shape)


def convolution(pick: random.Random, channels: int):
    """A convolution: plain, strided, dilated, grouped or transposed."""
    groups = pick.choice([1, 1, 2, channels])
    out = pick.choice([2, 4]) * channels // 2 if groups == 1 else channels
    kernel, bias = pick.choice([1, 2, 3]), pick.random() < 0.5
    more = {"stride": pick.choice([1, 1, 2]), "groups": groups,
            "padding": pick.choice([0, 1]),
            "dilation": pick.choice([1, 1, 2])}
    if pick.random() < 0.3:
        return out, lambda x: F.conv_transpose2d(
            x, weights(channels, out // groups, kernel, kernel).to(x),
            weights(out).to(x) if bias else None, **more)
    return out, lambda x: F.conv2d(
        x, weights(out, channels // groups, kernel, kernel).to(x),
        weights(out).to(x) if bias else None, **more)


def resized(pick: random.Random, channels: int):
    """An interpolation of any mode, to a size or by a factor."""
    mode = pick.choice(["nearest", "nearest-exact", "bilinear", "bicubic",
                        "area"])
    more = {"mode": mode}
    if mode in ("bilinear", "bicubic"):
        more["align_corners"] = pick.random() < 0.5
        more["antialias"] = pick.random() < 0.2
    to = pick.choice([{"size": (9, 7)}, {"scale_factor": 2},
                      {"scale_factor": (0.5, 1.5)}])
    return channels, lambda x: F.interpolate(x, **to, **more)


def padded(pick: random.Random, channels: int):
    """A padding of any mode; a constant one may take away."""
    mode = pick.choice(["constant", "constant", "reflect", "replicate",
                        "circular"])
    least = -2 if mode == "constant" else 0
    by = [pick.randint(least, 2) for _ in range(4)]
    more = {"value": 0.5} if mode == "constant" else {}
    return channels, lambda x: F.pad(x, by, mode=mode, **more)


def spectrum(pick: random.Random, channels: int):
    """There and back, or how much there is of each frequency."""
    function = pick.choice([
        lambda x: torch.fft.rfft2(x, norm="ortho").abs(),
        lambda x: torch.fft.fft(x, dim=-1, norm="ortho").real,
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=x.shape[-2:])])
    return channels, function


def normed(pick: random.Random, channels: int):
    """One of the norms."""
    return channels, pick.choice([
        lambda x: F.group_norm(x, 2), lambda x: F.instance_norm(x),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.layer_norm(x, x.shape[1:]),
        lambda x: F.local_response_norm(x, 2),
        lambda x: F.normalize(x, dim=1)])


def pooled(pick: random.Random, channels: int):
    """A pooling, to a size or by a window."""
    window, ceil = pick.choice([2, 3]), pick.random() < 0.3
    return channels, pick.choice([
        lambda x: F.max_pool2d(x, window, 2, 1, ceil_mode=ceil),
        lambda x: F.avg_pool2d(x, window, 2, 1, ceil),
        lambda x: F.lp_pool2d(x.abs() + 1, 2.0, window),
        lambda x: F.adaptive_avg_pool2d(x, (7, 6)),
        lambda x: F.adaptive_max_pool2d(x, (6, 7))])


def moved(pick: random.Random, channels: int):
    """A crop, a turn, a view, or a copy in another layout."""
    return pick.choice([
        (channels, lambda x: x[:, :, 1:-1, 2:]),
        (channels, lambda x: x[:, :, ::2]),
        (channels, lambda x: x.transpose(2, 3)),
        (channels, lambda x: x.flip(3)),
        (channels, lambda x: x.roll(1, 2)),
        (channels, lambda x: x.flatten(2).cumsum(2).view_as(x) * 0.1),
        (channels, lambda x: x.permute(0, 2, 3, 1).contiguous().permute(
            0, 3, 1, 2)),
        (channels, lambda x: x.to(memory_format=torch.channels_last)),
        (2 * channels, lambda x: torch.cat([x, x.cos()], 1)),
        (4 * channels, lambda x: F.pixel_unshuffle(
            x[:, :, :x.shape[2] // 2 * 2, :x.shape[3] // 2 * 2], 2))])


def bent(pick: random.Random, channels: int):
    """Element by element, or with the mean of a channel."""
    return channels, pick.choice([
        torch.tanh, F.silu, F.gelu, torch.sin,
        lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
        lambda x: x + x.amax(1, keepdim=True),
        lambda x: x.softmax(1)])


AROUND = resized, padded, spectrum, normed, pooled, moved, bent, bent


def program(seed: int):
    """The program of a seed: a function of an image of four channels."""
    pick, channels, steps = random.Random(seed), 4, []
    kinds = [convolution, *pick.choices(AROUND, k=pick.randint(2, 4)),
             convolution, *pick.choices(AROUND, k=pick.randint(0, 1))]
    for kind in kinds if pick.random() < 0.7 else kinds[::-1]:
        channels, step = kind(pick, channels)
        steps.append(step)

    def function(x):
        for step in steps:
            x = step(x)
        return x, x.mean((2, 3))
    return function


def outcome(run, image: torch.Tensor) -> list[torch.Tensor]:
    """What a program returns, and the gradient of the image."""
    x = image.clone().requires_grad_()
    y, mean = run(x)
    (y.square().mean() + mean.sum()).backward()
    return [y.detach(), mean.detach(), x.grad]


def judged(seed: int, backend: str, device: str = "cpu",
           dtype: torch.dtype = torch.float32) -> object:
    """The program compiled, once it is right; None if eager refuses it."""
    function = program(seed)
    rounding = 2e-5 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps
    compiled = minicompile.compile(function, backend=backend)
    for height, width in SIZES:
        image = torch.randn(2, 4, height, width, generator=torch.Generator(
            ).manual_seed(seed)).to(device, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                eager = outcome(function, image)
                exact = outcome(function, image.double())
            except RuntimeError:
                return None
            found = outcome(compiled, image)
        for ours, theirs, truth in zip(found, eager, exact, strict=True):
            assert ours.stride() == theirs.stride(), seed
            scale = truth.abs().max().item()
            off, allowed = ((each - truth).abs().max().item()
                            for each in (ours, theirs))
            assert off <= 4 * allowed + rounding * (1 + scale), (
                seed, off, allowed, scale)
    return compiled
