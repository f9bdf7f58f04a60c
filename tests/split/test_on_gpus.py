"""Operators that are taken apart on a GPU: tried on a CPU, beside eager."""

from math import inf

import pytest
import torch
from torch.nn import functional as F

from minicompile import compile, fusion
from minicompile.fusion.rules import indexing, pooling
from minicompile.split.torch import on_gpus
from tests.fusion.graphs import aten
from tests.same import assert_same

SMALL, WIDE = (2, 4, 9, 8), (2, 8, 12, 14)


def places(x):
    return torch.tensor([3, 0, 3, 8], device=x.device)


FUNCTIONS = {
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), SMALL),
    "nearest, odd": (lambda x: F.interpolate(x.sin(), (13, 5)), SMALL),
    "bilinear": (lambda x: F.interpolate(
        x.sin(), scale_factor=1.7, mode="bilinear"), SMALL),
    "aligned": (lambda x: F.interpolate(
        x, (5, 19), mode="bilinear", align_corners=True) * 2, SMALL),
    "bicubic": (lambda x: F.interpolate(
        x, scale_factor=2, mode="bicubic"), SMALL),
    "cubic, aligned": (lambda x: F.interpolate(
        x, (3, 19), mode="bicubic", align_corners=True), SMALL),
    "cubic, smaller": (lambda x: F.interpolate(
        x, scale_factor=0.6, mode="bicubic") * 2, SMALL),
    "cubic of one": (lambda x: F.interpolate(
        x[..., :1, :2], 7, mode="bicubic"), SMALL),
    "to one": (lambda x: F.interpolate(
        x, (1, 5), mode="bilinear", align_corners=True), SMALL),
    "smaller": (lambda x: F.interpolate(
        x, scale_factor=0.3, mode="bilinear"), SMALL),
    "linear": (lambda x: F.interpolate(x[0], 21, mode="linear"), SMALL),
    "trilinear": (lambda x: F.interpolate(
        x[None], (3, 5, 6), mode="trilinear"), SMALL),
    "reflected": (lambda x: F.pad(x, (1, 3, 2, 0), "reflect") * 2, SMALL),
    "replicated": (lambda x: F.pad(x, (1, 3, 2, 0), "replicate"), SMALL),
    "reflected line": (lambda x: F.pad(x[0], (4, 3), "reflect"), SMALL),
    "reflected block": (lambda x: F.pad(
        x[None], (1, 0, 2, 1, 1, 3), "reflect") * 2, SMALL),
    "cut off": (lambda x: F.pad(x.sin(), (-1, 2, 1, -2), "reflect"), SMALL),
    "repeated": (lambda x: F.pad(x[None], (0, 1, 1, 0, 2, -1), "replicate"),
                 SMALL),
    "far repeated": (lambda x: F.pad(x, (3,) * 4, "replicate"), SMALL),
    "slid": (lambda x: x.unfold(2, 3, 2).sin(), SMALL),
    "slid by one": (lambda x: x.unfold(-1, 4, 1) * 2, SMALL),
    "slid evenly": (lambda x: x.unfold(3, 5, 2) * 2, SMALL),
    "slid far": (lambda x: x.unfold(3, 2, 3) * 2, SMALL),
    "blocks": (lambda x: F.unfold(x, (2, 3), 1, (1, 0), (2, 1)) * 2, SMALL),
    "far blocks": (lambda x: F.unfold(x, 2, dilation=2), SMALL),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (6, 7)), WIDE),
    "uneven": (lambda x: F.adaptive_avg_pool2d(x.exp(), (5, 3)), WIDE),
    "shuffled": (lambda x: F.pixel_shuffle(x, 2) * 2, WIDE),
    "unshuffled": (lambda x: F.pixel_unshuffle(x, 2) * 2, WIDE),
    "product": (lambda x: x[0, 0] @ x[0, 0, 0], SMALL),
    "added": (lambda x: x.new_zeros(9, 4, 2, 8).index_add(
        0, places(x), x.permute(1, 2, 0, 3)[:, :4] * 2), SMALL),
    "doubled": (lambda x: x.index_add(
        2, places(x), x[:, :, :4], alpha=2), SMALL),
    "rows": (lambda x: x[:, :, places(x)] * 2, SMALL),
    "from the end": (lambda x: x[..., places(x) - 4, :].sin(), SMALL),
    "elements": (lambda x: x[:, places(x) % 4 - 2, places(x)[:, None]],
                 SMALL),
    "apart": (lambda x: x[places(x) % 2, :, places(x)], SMALL),
    "a flat place": (lambda x: x[1, places(x)[0] % 2], SMALL),
    "a mask": (lambda x: x[x > 0], SMALL),
    "put": (lambda x: x.index_put(
        (places(x) % 2,), x[0, 0, 0, :1], accumulate=True), SMALL),
    "a table": (lambda x: F.embedding(places(x)[None], x[0, 0]).sin(), SMALL),
    "padding": (lambda x: F.embedding(
        places(x), x[0, 0], padding_idx=3).sin(), SMALL),
    "by count": (lambda x: F.embedding(
        places(x), x[0, 0], scale_grad_by_freq=True), SMALL),
    "greatest": (lambda x: x.max(1)[0] + x.min(1, keepdim=True)[0][:, 0],
                 SMALL),
    "scattered": (lambda x: x.scatter(1, x.argmax(1, True), x[:, :1]),
                  SMALL),
    "of more": (lambda x: x.scatter(
        1, x.argmax(1, True), x.detach()[:, 1:]), SMALL),
    "a number": (lambda x: x.scatter(-1, x.argmin(-1, True), 2.0), SMALL),
    "several": (lambda x: x.scatter(2, places(x)[
        None, None, :, None].expand(2, 4, 4, 8), 1.0), SMALL),
}

POOLS = {
    "mean": lambda x: F.avg_pool2d(x.sin(), 2),
    "overlapping": lambda x: F.avg_pool2d(x, 3, 1, 1) - x,
    "inside alone": lambda x: F.avg_pool2d(
        x, (3, 2), (2, 1), 1, count_include_pad=False),
    "rest counts": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "by": lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5),
    "large": lambda x: F.avg_pool2d(x, 4),
    "stem": lambda x: F.max_pool2d(x.sin(), 3, 2, 1),
    "pairs": lambda x: F.max_pool2d(x, 2),
    "apart": lambda x: F.max_pool2d(x, (2, 3), 1, dilation=(3, 2)),
    "rest": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "one image": lambda x: F.max_pool2d(x[0], 2, 1).sin(),
    "places": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
}


@pytest.fixture
def as_on_a_gpu(monkeypatch, tmp_path):
    """The tables of a GPU; what is kept on disk does not know of them."""
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(on_gpus, "DEVICES", {"cpu"})
    monkeypatch.setitem(pooling.POOLED, "cpu", (9, inf))


def example(shape, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(shape).to(dtype).requires_grad_()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_taken_apart_it_is_eager_s(as_on_a_gpu, name):
    function, shape = FUNCTIONS[name]
    assert_same(function, example(shape))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_how_wide_a_margin_is_may_vary(mode):
    def padded(x, n):
        return F.pad(x, (n, n - 1, 1, n), mode=mode) * 2
    compiled = compile(padded, dynamic=True)
    for n in 1, 2, 3, 5:
        x, y = example(SMALL), example(SMALL)
        mine, theirs = compiled(x, n), padded(y, n)
        torch.testing.assert_close(mine, theirs)
        mine.sin().sum().backward()
        theirs.sin().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert not compiled.stats().fallbacks


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_an_infinite_gradient_reaches_its_pixels_alone(as_on_a_gpu, mode):
    def resized(x):
        return F.interpolate(x, scale_factor=2, mode=mode)

    x, y = example(SMALL), example(SMALL)
    mine, gradient = compile(resized)(x), torch.ones(2, 4, 18, 16)
    gradient[0, 1, 8, 9] = torch.inf
    mine.backward(gradient)
    resized(y).backward(gradient)
    assert torch.equal(x.grad.isfinite(), y.grad.isfinite())
    assert not x.grad.isfinite().all()


@pytest.mark.parametrize("factor", [None, 1.7, 2, 0.6])
def test_a_kernel_finds_the_nearest(as_on_a_gpu, factor, monkeypatch):
    """As PyTorch's does, with a float32; of whole factors it needs none."""
    monkeypatch.setattr(indexing, "STOPS", {"cpu"})
    size = {"scale_factor": factor} if factor else {"size": (31, 5)}
    def function(x):
        return F.interpolate(x.sin(), **size)
    x = example((2, 4, 23, 8))
    assert_same(function, x)
    graph = aten(function, x.detach())
    assert len(fusion.fuse(graph).steps) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FUNCTIONS, *POOLS])
def test_on_a_gpu_it_is_eager_s(name):
    function, shape = FUNCTIONS.get(name) or (POOLS[name], WIDE)
    x = example(shape).detach().cuda().requires_grad_()
    assert_same(function, x)


@pytest.mark.gpu
def test_the_kernel_that_compares_classes_also_checks_them():
    classes = torch.tensor([[3, 0], [4, 3]], device="cuda")
    compiled = assert_same(lambda x: F.one_hot(x.t(), 5) * 2, classes)
    assert compiled.stats().kernels == 1
    assert "checked" in compiled.cache.entries[0].lowered.programs[
        "forward"].source


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_eager_s(as_on_a_gpu, name, dtype):
    x = example(WIDE, dtype)
    assert_same(POOLS[name], x)


def test_a_pool_gives_the_place_that_eager_gives(as_on_a_gpu):
    x = example(WIDE).detach()
    x[0, 1, 2, 3], x[1, 0, 4:, :], x[0, 2] = torch.nan, -torch.inf, 1.0
    x[1, 1] = -torch.inf

    def apart(x):
        return F.max_pool2d(x, 3, 1, 1, 2, return_indices=True)
    for function in (POOLS["places"], apart):
        for mine, theirs in zip(compile(function)(x), function(x),
                                strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0,
                                       equal_nan=True)


def test_a_convolution_s_bias_and_its_gradient(as_on_a_gpu):
    def function(x, weight, bias):
        return F.conv2d(x, weight, bias, padding=1).relu()
    x, weight = example(SMALL), example((6, 4, 3, 3))
    compiled = assert_same(function, x, weight, example((6,)))
    assert compiled.stats().kernels


def test_a_place_outside_is_still_an_error(as_on_a_gpu):
    compiled = compile(lambda x, at: x.scatter(1, at, x[:, :1]))
    x = example((3, 4)).detach()
    with pytest.raises(RuntimeError, match="out of"):
        compiled(x, torch.tensor([[1], [7], [0]]))


WHOLE = torch.arange(12).view(3, 4)
AT = torch.tensor([[0], [3], [2]])


@pytest.mark.parametrize("function", [
    lambda: WHOLE.scatter(1, AT, 1.5), lambda: WHOLE.scatter(1, AT, AT),
    lambda: (WHOLE > 5).scatter(1, AT, 2),
    lambda: WHOLE.half().scatter(1, AT, 3),
    lambda: WHOLE.half().scatter(1, AT, 1e6),
    lambda: WHOLE.byte().scatter(1, AT, 1000),
    lambda: torch.zeros(3, 4).index_add(0, AT[:2, 0] * 0, torch.ones(2, 1)),
    lambda: torch.zeros(3, 4).index_add(0, AT[:2, 0] * 0, torch.ones(2, 3)),
    lambda: WHOLE.char().index_add(0, AT[:2, 0] * 0, WHOLE.char()[:2],
                                   alpha=300),
    lambda: torch.zeros(3, 4).index_add(-1, AT[:, 0], torch.ones(3, 3)),
    lambda: torch.randn(3, 4) @ torch.randn(4).double(),
    lambda: F.unfold(WHOLE[None, None], 2)])
def test_dtypes_and_errors_are_eager_s(as_on_a_gpu, function):
    def outcome(call):
        try:
            return call()
        except RuntimeError as error:
            return type(error)
    torch.manual_seed(0)
    wanted = outcome(function)
    torch.manual_seed(0)
    found = outcome(compile(function))
    if isinstance(wanted, type):
        assert found is wanted
    else:
        torch.testing.assert_close(found, wanted)
