"""One program for all sizes, forward and backward, beside eager."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minicompile
from tests.judge import judged, near


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(
            width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mix(self.norms[0](x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.wide(self.norms[1](x))


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


CASES = {
    "batch": (Block, lambda n: (n, 10, 32), None, 2),
    "batch, from the start": (Block, lambda n: (n, 10, 32), True, 1),
    "length": (Block, lambda n: (3, n, 32), None, 2),
    "both": (Block, lambda n: (n, 2 * n + 1, 32), True, 1),
    "images": (images, lambda n: (n, 3, 16, 16), None, 2),
}


def seen(model, x) -> list:
    """The result, the gradients of its mean square, and the buffers."""
    y = model(x)
    return [y, *torch.autograd.grad(y.square().mean(), model.parameters()),
            *model.buffers()]


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("name", CASES)
def test_training_at_all_sizes(name):
    make, shape, dynamic, graphs = CASES[name]
    torch.manual_seed(0)
    model = make()
    eager = copy.deepcopy(model)
    compiled = minicompile.compile(model, dynamic=dynamic, fullgraph=True)
    for n in (2, 3, 5, 8, 17, 64):
        x, before = torch.randn(shape(n)), copy.deepcopy(eager)
        judged(near, seen(compiled, x), seen(eager, x), seen, before, x)
        eager.load_state_dict(model.state_dict())
    assert compiled.stats().graphs == graphs
    assert not compiled.stats().fallbacks


@pytest.mark.parametrize("cut", [
    lambda x: x.chunk(2)[-1] * 2, lambda x: x.split(3)[1] + 1,
    lambda x: x.split([2, x.shape[0] - 2])[1].sum(0),
    lambda x: torch.cat(x.chunk(3)[::-1])])
def test_pieces_of_any_length(cut):
    compiled = minicompile.compile(cut, dynamic=True)
    for rows in (10, 6, 8, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), cut(x))
    assert not compiled.stats().fallbacks


def test_numbers_made_of_sizes():
    """Scales, bounds and lengths that Python computes from sizes."""
    def function(x, n):
        rows = x[-3:] * (x.shape[0] / 7) + x.mean(1)[n]
        return (rows * x.shape[1] ** -0.5, F.pad(x, (n, 2 * n)),
                x.new_full((x.shape[0] // 2 + n,), x.shape[0] - n),
                x.shape[0] * n, torch.arange(x.shape[1] - n, device="cpu"))
    compiled = minicompile.compile(function, dynamic=True)
    for size, n in [(5, 2), (9, 3), (40, 4), (7, 5)]:
        x = torch.randn(size, size + 3)
        found, expected = compiled(x, n), function(x, n)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("error:a graph of")
def test_sizes_times_a_fraction():
    """Their formulas need Python's functions of numbers."""
    def function(x):
        return F.interpolate(x, scale_factor=1.5, mode="bilinear")
    compiled = minicompile.compile(function, dynamic=True)
    for size in (5, 8):
        x = torch.randn(2, 3, size, size + 1, requires_grad=True)
        found, expected = (
            (y, *torch.autograd.grad(y.square().sum(), x))
            for y in (compiled(x), function(x)))
        torch.testing.assert_close(found, expected)


#: What eager answers with its input, with a view of it, or with a copy.
IDENTITIES = {
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "dropout in place": lambda x: F.dropout(x, 0.5, False, True),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, False),
    "module": nn.Dropout(0.5).eval(),
    "dropout2d": nn.Dropout2d(0.5).eval(),
    "alpha_dropout": nn.AlphaDropout(0.5).eval(),
    "feature_alpha_dropout": nn.FeatureAlphaDropout(0.5).eval(),
    "identity": nn.Identity(),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32),
    "to a copy": lambda x: x.to(torch.float32, copy=True),
    "cpu": lambda x: x.cpu(),
    "type_as": lambda x: x.type_as(x),
    "reshape": lambda x: x.reshape(x.shape),
    "view": lambda x: x.view(x.shape),
    "expand": lambda x: x.expand(x.shape),
    "broadcast_to": lambda x: torch.broadcast_to(x, x.shape),
    "flatten one": lambda x: x.flatten(1, 1),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x.squeeze(0),
    "transpose": lambda x: x.transpose(1, 1),
    "slice": lambda x: x[:],
    "pad": lambda x: F.pad(x, (0, 0)),
    "cat": lambda x: torch.cat([x]),
    "positive": lambda x: +x,
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "resolve_conj": lambda x: x.resolve_conj(),
    "rrelu": lambda x: F.rrelu(x),
    "interpolate": lambda x: F.interpolate(x, size=x.shape[-1]),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", IDENTITIES)
def test_what_gives_back_its_input_does(name, grad):
    function = IDENTITIES[name]

    def seen(run, x):
        y = run(x)
        return (y is x, torch._C._storage_id(y) == torch._C._storage_id(x),
                y.shape, y.stride(), y.requires_grad)

    run = minicompile.compile(function, dynamic=True, backend="split")
    for size in (4, 6):
        x = torch.randn(size, size + 3, 5, requires_grad=grad)
        assert seen(run, x) == seen(function, x)
    assert len(run.cache.entries) == 1 and not run.stats().recompiles
    assert not run.stats().fallbacks


@pytest.mark.parametrize("width", [3, 5, 6, 7, 8, 13])
def test_short_rows_behind_others_are_read_right(width):
    """g++ 12 would mix up the lanes of a vector where the others end."""
    def joined(a, b, c):
        return (torch.cat([a, b]), F.pad(b * 2, (0, 0, len(a), 1)),
                F.pad(F.pad(c, (0, 1)), (0, 0, len(c), 1)))

    compiled = minicompile.compile(joined)
    for sizes in ((3, 5), (2, 40), (37, 60), (6, 21)):
        args = [torch.randn(*size, width, dtype=torch.double)
                for size in (sizes[:1], sizes[1:], sizes)]
        for mine, eager in zip(compiled(*args), joined(*args)):
            assert mine.equal(eager)


@pytest.mark.parametrize("function", [
    F.hardshrink, F.softshrink, lambda x: torch.add(x, x, alpha=1.5)])
def test_what_eager_has_not_of_whole_numbers_is_its_error(function):
    x = torch.arange(5)
    with pytest.raises(RuntimeError) as error:
        function(x)
    with pytest.raises(error.type, match=re.escape(str(error.value))):
        minicompile.compile(function, dynamic=True)(x)
