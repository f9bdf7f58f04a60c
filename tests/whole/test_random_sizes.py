"""Random programs whose sizes vary, and their gradients, beside eager."""

import random

import pytest
import torch
import torch.nn.functional as F

import minicompile

#: Lines of a program, of two values and a number.
LINES = """
    a.sin()
    a * b
    torch.where(a > 0, a, b)
    a.exp().clamp(max=3)
    F.pad(a, (0, -a.shape[-1] % n))
    F.pad(a, (0, 0, 0, -a.shape[-2] % n))
    F.pad(a.reshape(-1), (0, -a.numel() % n)).reshape(-1, n)
    F.pad(a.reshape(-1), (0, -a.numel() % n)).reshape(n, -1)
    F.pad(a, (-1, 0))
    a.reshape(a.shape[0], -1)
    a.reshape(-1, a.shape[-1])
    a.unflatten(-1, (-1, 1))
    a.flatten(0, 1)
    a[..., a.shape[-1] // 2:]
    a[1:]
    a[::2]
    a[..., 0]
    a[:, 0]
    a[:, 1:3]
    torch.cat([a, b], 0)
    torch.stack([a, a.cos()], -1)
    a.transpose(-1, -2)
    a.flip(-1)
    a.roll(a.shape[-1] // 2, -1)
    a.sum(-1, keepdim=True)
    a.amax(0)
    a.softmax(-1)
    a.cumsum(-1)
    a.unsqueeze(1)
    a.squeeze(0)
    a.tile(2)
    a.expand(3, *a.shape)
    a.unfold(-1, 2, 1)
    a.tril()
    a.index_select(0, torch.arange(a.shape[0] - 1, -1, -1))
    torch.where(torch.arange(-(-a.shape[0] // n))[:, None] == 0, a, 0)
    a * torch.arange(a.shape[-1]) / a.shape[0]
    a @ a.transpose(-1, -2)
    F.max_pool1d(a, 2)
    set_part(a)""".strip().splitlines()
SIZES = (5, 7, 3), (9, 4, 2), (2, 13, 6), (11, 6, 5), (5, 7, 4)


def set_part(a):
    a = a.clone()
    a[..., :1].add_(1)
    a[0].copy_(a[-1])
    return a


def inputs(n, m, k):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True)
            for shape in ((n, m), (m,), (k, n, m), (n, 1))]


def program(seed):
    """A random program as source: the trace follows real code."""
    choose, names = random.Random(seed), dict(zip("xyzw", inputs(*SIZES[0])))
    lines, world = [], {"torch": torch, "F": F, "set_part": set_part}
    while len(lines) < 4 + seed % 4:
        line = choose.choice(LINES).strip()
        a, b = (choose.choice([*names][-each:]) for each in (3, 9))
        text = f"(lambda a, b, n: {line})({a}, {b}, {choose.choice((2, 8))})"
        try:
            made = eval(text, world, names)
        except (RuntimeError, IndexError, ValueError):
            continue  # it does not fit
        if 0 < made.numel() < 9999 and made.dim() < 5 and made.requires_grad:
            lines.append(f"v{len(lines)} = {text}")
            names[lines[-1].split()[0]] = made
    body = "\n    ".join([*lines, f"return {', '.join([*names][-3:])}"])
    exec(f"def made(x, y, z, w):\n    {body}", world)
    return world["made"], body


def results(function, args):
    made = function(*args)
    ends = [(each, torch.arange(1.0, each.numel() + 1).cos().view(each.shape)
             ) for each in made]
    return [*made, *torch.autograd.grad(
        sum((each * by).sum() for each, by in ends), args,
        allow_unused=True, materialize_grads=True)]


@pytest.mark.slow(sample=8)
@pytest.mark.parametrize("device", [
    "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_is_right_at_all_sizes(seed, device):
    with torch.device(device):
        function, text = program(seed)
        compiled = minicompile.compile(
            function, dynamic=True if seed % 2 else None)
        for sizes in SIZES:
            try:
                want = results(function, inputs(*sizes))
            except (RuntimeError, IndexError, ValueError):
                continue  # it does not fit
            torch.testing.assert_close(
                results(compiled, inputs(*sizes)), want,
                msg=lambda said: f"{said}\nin:\n{text}")
    assert compiled.stats().graphs
