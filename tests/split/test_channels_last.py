"""Images between convolutions have their channels side by side."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import minicompile
from minicompile.core.index import Symbol, index, most_of
from minicompile.split.torch.passes import follows, gains, images
from tests.split.dynamic import assert_same as assert_same_at
from tests.split.judge import assert_same

aten = torch.ops.aten
CONVOLUTIONS = aten.convolution.default, aten.convolution_backward.default


def grad(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def conv(x, w):
    return F.conv2d(x, w).relu()


CASES = {
    "viewed": lambda x, w: conv(x, w).view(2, -1).sin(),
    "strided": lambda x, w: conv(x, w).as_strided((2, 3), (4, 1)) * 2,
    "results": lambda x, w: (y := conv(x, w), y.sin(), y.transpose(1, 2)),
    "max pool": lambda x, w: F.max_pool2d(conv(x, w), 2).mean((2, 3)),
    "mean pool": lambda x, w: F.avg_pool2d(conv(x, w), 2),
    "cat": lambda x, w: torch.cat([y := conv(x, w), y.sin()], 1).cos(),
    "written to": lambda x, w: F.conv2d(x, w).add_(1).relu_(),
    "resized": lambda x, w: F.interpolate(conv(x, w), scale_factor=2),
    "shuffled": lambda x, w: F.pixel_shuffle(conv(x, w), 2),
    "attention": lambda x, w: (
        y := conv(x, w).flatten(2)).transpose(1, 2) @ y,
    "permuted": lambda x, w: conv(x, w).permute(0, 2, 3, 1).contiguous(),
    "two": lambda x, w: conv(F.pad(conv(x, w), (1, 1)), w.transpose(0, 1)),
    "rolled": lambda x, w: conv(x, w).roll(1, 2),
    "channels shuffled": lambda x, w: F.channel_shuffle(conv(x, w), 2),
    "argmax": lambda x, w: (y := conv(x, w), y.argmax(1), y.sum(1)),
}


def images_of(joint):
    """The first inputs of the convolutions."""
    return [node.args[0].meta["val"] for node in joint.graph.graph.nodes
            if node.target in CONVOLUTIONS]


@pytest.mark.parametrize("name", CASES)
def test_results_are_laid_out_as_in_eager(name):
    joint, _ = assert_same(CASES[name], grad(2, 3, 8, 8), grad(4, 3, 3, 3))
    found = images_of(joint)
    assert len(found) >= 2
    assert all(image.is_contiguous(memory_format=torch.channels_last)
               for image in found)


def test_which_images_gain_by_it():
    with FakeTensorMode():
        for device, dtype, expected in (
                ("cpu", torch.float32, True), ("cpu", torch.float64, True),
                ("cuda", torch.float16, True), ("cuda", torch.bfloat16, True),
                ("cuda", torch.float32, False), ("meta", torch.half, False)):
            image = torch.empty(2, 3, 8, 8, device=device, dtype=dtype)
            assert gains(image) is expected


def test_on_a_gpu_weights_are_laid_out_once():
    for size, expected in ((3, 2), (1, 1)):
        with FakeTensorMode():
            args = [torch.empty(2, 8, 8, 8, device="cuda",
                                dtype=torch.bfloat16),
                    torch.empty(4, 8, size, size, device="cuda",
                                dtype=torch.bfloat16)]
        graph = fx.Graph()
        given = [graph.placeholder(name) for name in "xw"]
        for node, fake in zip(given, args):
            node.meta["val"] = fake
        node = graph.call_function(aten.convolution.default, (
            *given, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1))
        assert images(node) == given[:expected]


@pytest.mark.parametrize("device, groups, width, results, expected", [
    ("cuda", 1, 24, 4, True), ("cuda", 2, 24, 24, False),
    ("cuda", 2, 16, 16, True), ("cuda", 2, 16, 8, False),
    ("cuda", 8, 1, 1, True), ("cuda", 8, 1, 2, False),
    ("cuda", 8, 2, 2, False), ("cuda", 8, 4, 4, True),
    ("cpu", 2, 24, 4, True), ("cpu", 8, 1, 2, True)])
def test_convolutions_in_groups(device, groups, width, results, expected):
    with FakeTensorMode():
        x, w = (torch.empty(*shape, device=device, dtype=torch.bfloat16)
                for shape in ((2, groups * width, 8, 8),
                              (groups * results, width, 3, 3)))
        more = None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups
        y = aten.convolution.default(x, w, *more)
        back = [0], *more[1:], [True, True, False]
        grads = aten.convolution_backward.default(y, x, w, *back)
    graph = fx.Graph()
    for target, values, rest, made in (
            (CONVOLUTIONS[0], (x, w), more, y),
            (CONVOLUTIONS[1], (y, x, w), back, grads)):
        given = [graph.placeholder(f"x{at}") for at, _ in enumerate(values)]
        node = graph.call_function(target, (*given, *rest))
        for each, fake in (*zip(given, values), (node, made)):
            each.meta["val"] = fake
        assert follows(node) is expected


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_on_a_gpu_tensor_cores_get_it(dtype):
    x, w = (torch.randn(2, 8, 8, 8), torch.randn(8, 8, 3, 3))
    args = [each.to("cuda", dtype).requires_grad_() for each in (x, w)]
    compiled = minicompile.compile(CASES["two"], backend="split")
    got, want = compiled(*args), CASES["two"](*args)
    assert got.stride() == want.stride()
    grads = [torch.autograd.grad(y.float().square().mean(), args)
             for y in (got, want)]
    for ours, theirs in zip([got, *grads[0]], [want, *grads[1]]):
        off = (ours - theirs).abs().max() / theirs.abs().max()
        assert off < 4 * torch.finfo(torch.bfloat16).eps
    found = images_of(compiled.cache.entries[0].lowered.joint)
    assert len(found) >= 4
    assert all(image.is_contiguous(memory_format=torch.channels_last) is (
        dtype == torch.bfloat16) for image in found)


@pytest.mark.parametrize("function, x, w", [
    (F.conv1d, grad(2, 3, 8), grad(4, 3, 3)),
    (F.conv2d, grad(3, 8, 8), grad(4, 3, 3, 3)),
    (F.conv3d, grad(2, 3, 8, 8, 8), grad(4, 3, 3, 3, 3)),
    (F.conv_transpose2d, grad(2, 3, 8, 8), grad(3, 4, 3, 3))])
def test_other_convolutions(function, x, w):
    assert_same(lambda x, w: function(x, w).sin(), x, w)


def test_what_lies_well_already_is_left_alone():
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    joint, _ = assert_same(lambda x, w: F.conv2d(x, w).sin() + 1, x,
                           torch.randn(4, 3, 3, 3))
    assert not joint.graph.graph.find_nodes(
        op="call_function", target=aten.clone.default)


def test_between_two_convolutions_nothing_is_moved():
    def function(x, w):
        return F.conv2d(F.conv2d(x, w).relu() * 2, torch.ones(1, 4, 1, 1))

    joint, _ = assert_same(function, torch.randn(2, 3, 8, 8),
                           torch.randn(4, 3, 3, 3))
    clones = joint.graph.graph.find_nodes(
        op="call_function", target=aten.clone.default)
    assert len(clones) <= 2  # the image, and at most the result


#: What asks for Python's forms of operators, or for more of sizes.
RESIZED = {
    "nearest": lambda y: F.interpolate(y, scale_factor=2),
    "bilinear": lambda y: F.interpolate(y, scale_factor=2.0,
                                        mode="bilinear"),
    "area": lambda y: F.interpolate(y, size=(5, 3), mode="area"),
    "bicubic": lambda y: F.interpolate(y, size=(9, 7), mode="bicubic"),
    "padded": lambda y: F.pad(y, (2, 0, 0, 1), value=3.0),
    "padded by less": lambda y: F.pad(y, (-1, -1, -2, 0)),
    "reflected": lambda y: F.pad(y, (1, 1, 2, 0), mode="reflect"),
    "cropped": lambda y: y[:, :, 1:-1, 1:-1],
    "fft": lambda y: torch.fft.rfft2(y).abs(),
    "pooled": lambda y: F.adaptive_avg_pool2d(y, (3, 2)),
    "mean": lambda y: F.group_norm(y, 2).mean((2, 3)),
}


@pytest.mark.slow(sample=5)
@pytest.mark.parametrize("name", RESIZED)
def test_sizes_may_be_symbols(name):
    def function(x, w):
        return RESIZED[name](conv(x, w)).relu()

    calls = [(grad(2, 3, size, size + 2), grad(4, 3, 3, 3))
             for size in (8, 11)]
    assert_same_at(function, *calls)


def test_a_size_that_may_be_0_divides():
    size, width = (index(Symbol(name, least=0)) for name in "sw")
    assert most_of((size * 4) // width) > 0


def test_a_crop_is_compiled_for_all_sizes():
    w = torch.randn(4, 3, 3, 3)
    run = minicompile.compile(
        lambda x: F.conv2d(x, w)[:, :, 1:-1, 1:-1].relu(), dynamic=True)
    for size in (8, 11):
        x = torch.randn(2, 3, size, size + 2)
        torch.testing.assert_close(
            run(x), F.conv2d(x, w)[:, :, 1:-1, 1:-1].relu())
    assert run.stats().graphs == 1 and not run.stats().fallbacks


@pytest.mark.parametrize("channels, moved", [(3, False), (16, True)])
def test_where_onednn_writes_too_far_an_image_stays(channels, moved):
    """The gradient of weights for every other pixel of a few channels."""
    def function(x, w):
        return F.conv2d(x.sin(), w, stride=2)

    joint, _ = assert_same(function, grad(2, channels, 32, 32),
                           grad(48, channels, 1, 1))
    [backward] = (node for node in joint.graph.graph.nodes
                  if node.target is CONVOLUTIONS[1])
    assert backward.args[1].meta["val"].is_contiguous(
        memory_format=torch.channels_last) == moved
