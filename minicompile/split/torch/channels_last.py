"""Convolutions get images whose channels lie side by side.

In and out: the joint graph; the input is left alone. On a CPU a
convolution takes half as long in this layout. On a GPU the tensor cores
need it, so cuDNN converts any other image before each convolution.
Values computed from an image keep its layout, up to views and results,
which stay as recorded: only memory in between is laid out in another way.
PyTorch decides this in
torch/_inductor/graph.py:GraphLowering.decide_layout_opt.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...core.graph import has_effect, tensors_of, value
from ..record import PASSES

aten = torch.ops.aten

#: How many of the first arguments are images.
IMAGES = {aten.convolution.default: 1, aten.convolution_backward.default: 2}

#: In the names of operators that mean something else in another layout,
#: or whose fake results are laid out otherwise than the real ones.
OTHERWISE = "view", "stride", "roll", "channel_shuffle", "tion_pad"

#: On a GPU also these: interpolation, whose fakes are laid out otherwise,
#: and average pooling, whose gradients come out wrong (torch 2.11).
ON_CUDA = "upsample", "avg_pool"


def channels_last(raw: fx.Graph, mode: FakeTensorMode,
                  forward_outputs: int) -> fx.Graph:
    """The graph, the images of its convolutions laid out anew."""
    if not any(map(images, raw.nodes)):
        return raw
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    clones: dict[tuple, fx.Node] = {}

    def laid_out(node: fx.Node, layout: torch.memory_format) -> fx.Node:
        if (node, layout) not in clones:
            form = {"memory_format": layout}
            fake = mode.dispatch(aten.clone.default, (), (value(node),),
                                 form)
            if fake.stride() == value(node).stride():
                return node
            clones[node, layout] = clone = graph.call_function(
                aten.clone.default, (node,), form)
            clone.meta = {**node.meta, "val": fake}
        return clones[node, layout]

    for node in raw.nodes:
        given = {each: copies[each] for each in node.all_input_nodes}
        moved = {each for each, now in given.items()
                 if value(now) is not value(each)}
        if not follows(node):
            given |= {each: laid_out(given[each], torch.contiguous_format)
                      for each in moved}
            moved = set()
        for image in images(node) if follows(node) else ():
            given[image] = laid_out(given[image], torch.channels_last)
            moved.add(image)
        copies[node] = made = graph.node_copy(node, given.__getitem__)
        if moved:
            args, kwargs = fx.map_arg((made.args, made.kwargs), value)
            fake = (mode.dispatch(node.target, (), args, kwargs) if
                    isinstance(node.target, torch._ops.OpOverload)
                    else args[0][args[1]])
            if strides(fake) != strides(value(node)):
                made.meta["val"] = fake
    return graph


def strides(fake: object) -> list:
    """The strides of a value, or of the values in it."""
    return [tensor.stride() for tensor in tensors_of(fake)]


def images(node: fx.Node) -> tuple[fx.Node, ...]:
    """The images that a convolution reads and that gain by the layout."""
    found = node.args[:IMAGES.get(node.target, 0)]
    return tuple(image for image in found if value(image).dim() == 4
                 and gains(value(image)))


def gains(image: torch.Tensor) -> bool:
    """Whether convolutions of the image are faster in the layout.

    All on a CPU; on a GPU those of halves, which tensor cores do. Of
    float32 they do some in TF32 that eager computes in full.
    """
    return image.device.type == "cpu" or (
        image.is_cuda and image.dtype in (torch.float16, torch.bfloat16))


def follows(node: fx.Node) -> bool:
    """Whether the node may be computed in another layout: PyTorch's
    operators mean the same in all, but for views."""
    target = node.target
    if target is operator.getitem:
        return True
    made = tensors_of(value(node))
    words = OTHERWISE + ON_CUDA * any(t.is_cuda for t in made)
    return (isinstance(target, torch._ops.OpOverload)
            and target.namespace == "aten" and not has_effect(node)
            and not any(r.alias_info for r in target._schema.returns)
            and not any(word in str(target) for word in words)
            and all(t.is_contiguous() for t in made))


PASSES.append(channels_last)
