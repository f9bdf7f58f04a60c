"""Images between convolutions have their channels side by side."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

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
