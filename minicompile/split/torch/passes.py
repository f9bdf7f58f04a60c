"""Passes over the joint graph: small clean-ups, and the layout of images.

In and out: an FX graph; the input is left alone. Each gives a graph that
computes the same. Without this file work is repeated, and convolutions
take images as eager lays them out. PyTorch's are in
torch/_functorch/compile_utils.py, torch/_inductor/fx_passes and
torch/_inductor/graph.py:GraphLowering.decide_layout_opt.
"""

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...core.graph import (has_effect, placeholders, results, tensors_of,
                           value)
from ..joint import root, without_dead
from ..record import PASSES
from ..recorder import aten

#: How many of the first arguments are images; weights come next.
IMAGES = {aten.convolution.default: 1, aten.convolution_backward.default: 2}

#: In the names of operators that mean something else in another layout,
#: or whose fake results are laid out otherwise than the real ones.
OTHERWISE = "view", "stride", "roll", "channel_shuffle", "tion_pad", "fft"

#: On a GPU also these: interpolation, whose fakes are laid out otherwise,
#: and average pooling, whose gradients come out wrong (torch 2.11).
ON_CUDA = "upsample", "avg_pool"


def simplify(raw: fx.Graph, mode: FakeTensorMode) -> fx.Graph:
    """The joint graph without dead, idle and repeated work.

    One walk copies the graph and asks of each node: does it do nothing,
    was it computed before? The node that makes the memory of a result or
    a gradient, or a snapshot, stays as it is: those that eager keeps apart
    are never merged.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    computed: dict[tuple, fx.Node] = {}
    pinned = {root(node) for node in results(raw) if node is not None}
    pinned |= {part.args[0] for part in pinned
               if part.target is operator.getitem}
    for node in raw.nodes:
        copied = graph.node_copy(node, copies.__getitem__)
        if is_snapshot(node):
            copied.meta["snapshot"] = True
            pinned.add(node)
        earlier = None if node in pinned else (
            idle(copied) or repeated(copied, computed))
        if earlier is not None:
            graph.erase_node(copied)
        copies[node] = copied if earlier is None else earlier
    return without_dead(graph)


def is_snapshot(node: fx.Node) -> bool:
    """Whether a copy is the program's, of an input without a gradient.

    The program may change the input next, as a queue of keys at each step;
    in eager the backward reads the copy.
    """
    if node.target is not aten.clone.default or "of" not in node.meta:
        return False
    copied, given = root(node.args[0]), placeholders(node.graph)
    return copied.name.startswith("primals_") and not (
        value(copied).requires_grad) and (
        given[-1].name.startswith("tangents_"))


def idle(node: fx.Node) -> fx.Node | None:
    """The node that this one returns unchanged, or None.

    Both are laid out alike. Symbolic sizes that merely happen to be equal
    do not count.
    """
    source = read_back(node)
    if source is None and node.target in IDLE:
        source = node.args[IDLE[node.target]]
    if not isinstance(source, fx.Node):
        return None
    one, two = value(node), value(source)
    alike = (one.dtype == two.dtype and one.device == two.device
             and one.dim() == two.dim() and all(
                 a is b or statically_known_true(a == b) for a, b in
                 zip((*one.shape, *one.stride()),
                     (*two.shape, *two.stride()))))
    return source if alike else None


def read_back(node: fx.Node) -> fx.Node | None:
    """The value just written there: `slice(slice_scatter(a, b))`."""
    if node.target is not aten.slice.Tensor:
        return None
    written = node.args[0]
    same = (written.target is aten.slice_scatter.default
            and written.args[2:] == node.args[1:]
            and written.kwargs == node.kwargs)
    return written.args[1] if same else None


#: Ops that may do nothing, and which of their arguments they then return.
IDLE = {
    **dict.fromkeys((aten.clone.default, aten._to_copy.default,
                     aten.view.default, aten.expand.default,
                     aten.permute.default, aten.slice.Tensor), 0),
    **dict.fromkeys((aten.copy.default, aten.slice_scatter.default), 1)}


def repeated(node: fx.Node, computed: dict) -> fx.Node | None:
    """The earlier node that computes the same, or None."""
    if node.op != "call_function" or has_effect(node):
        return None
    key = node.target, repr((node.args, node.kwargs))  # tells 0.0 from -0.0
    earlier = computed.setdefault(key, node)
    return earlier if earlier is not node else None


def channels_last(raw: fx.Graph, mode: FakeTensorMode) -> fx.Graph:
    """The graph, with channels innermost in the images it convolves.

    On a CPU a convolution takes half as long if the channels of an image
    lie side by side. On a GPU the tensor cores need it, so cuDNN converts
    any other image before each convolution. Values computed from an image
    keep its layout, up to views and results, which stay as recorded: only
    memory in between is laid out in another way.
    """
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
        moved = [each for each, now in given.items()
                 if value(now) is not value(each)]
        if not follows(node):
            given |= {each: laid_out(given[each], torch.contiguous_format)
                      for each in moved}
            moved = []
        for image in images(node) if follows(node) else ():
            given[image] = laid_out(given[image], torch.channels_last)
            moved.append(image)
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


def images(node: fx.Node) -> list[fx.Node]:
    """The images that a convolution reads faster in the layout. On a GPU
    also its weight, which PyTorch would convert before each call."""
    count = IMAGES.get(node.target, 0)
    weight = value(node.args[count]) if count else None
    count += (weight is not None and weight.is_cuda and not
              weight.is_contiguous(memory_format=torch.channels_last))
    return [image for image in node.args[:count] if value(image).dim() == 4
            and gains(value(image))]


def gains(image: torch.Tensor) -> bool:
    """Whether convolutions of the image are faster in the layout.

    All on a CPU; on a GPU those of halves, which tensor cores read. Of
    float32 they compute some in TF32 that eager computes in full.
    """
    return image.device.type == "cpu" or (
        image.is_cuda and image.dtype in (torch.float16, torch.bfloat16))


def loses(node: fx.Node) -> bool:
    """Whether a convolution is slower in the layout: on a GPU those of
    groups, except for groups of one channel, or of four or another power
    of two, with as many results. For others cuDNN's kernels take up to 20
    times as long, often with a launch for each group (H100, torch 2.11).

    Or whether it is wrong: oneDNN writes beyond the gradient of weights
    that each see every other pixel in fewer than 16 channels (torch 2.13).
    """
    count = IMAGES.get(node.target)
    if not count:
        return False
    weight, steps, groups = (node.args[count + k] for k in (0, 2, 7))
    weight = value(weight)
    channels = int(weight.shape[1])
    if weight.device.type == "cpu":
        return count == 2 and channels < 16 and max(steps) > 1 and all(
            size == 1 for size in weight.shape[2:])
    return groups != 1 and (
        weight.shape[0] != groups * channels or channels == 2
        or channels.bit_count() > 1)


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
            and not loses(node)
            and all(t.is_contiguous() for t in made))


PASSES[:0] = [simplify]
PASSES.append(channels_last)
