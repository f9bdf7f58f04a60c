"""Operators that a GPU's kernels do better than PyTorch's own.

Out: rows of the tables of decompositions, for tensors on a GPU; `im2col`
for those on a CPU, too. PyTorch's kernels for these move each element by
itself, ask for a division or two, and read what another kernel has just
written. Taken apart, they are views and arithmetic on places, which fuse
with what is around them. A convolution's bias is an addition after it in
eager, too. PyTorch's choice is in torch/_inductor/decomposition.py.
"""

from collections.abc import Callable
from functools import partial, reduce
from math import ceil

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import (
    _compute_scale, _compute_source_index, _upsample_get_cubic_coefficients)
from torch.nn import functional as F

from ...core.graph import operators, tensors_of
from ...core.loops import accurate
from ..recorder import DECOMPOSITIONS, aten
from .decompositions import along, bounded

#: The types of the devices where it pays.
DEVICES = {"cuda"}
#: How far rounding may move a place, at most.
ROUNDED = 0.01

#: Operators of which PyTorch has a formula; not those of their gradients.
BY_FORMULA = """
    upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    _adaptive_avg_pool2d mv"""


def there(formula: Callable, *args, **kwargs):
    """The formula's result for floats of one dtype on such a device, or
    NotImplemented."""
    given = tensors_of((args, kwargs))
    floats = {each.dtype for each in given if each.is_floating_point()}
    fits = {each.device.type for each in given} <= DEVICES
    return formula(*args, **kwargs) if fits and len(floats) == 1 else (
        NotImplemented)


def convolution(image, weight, bias, *how):
    """A convolution, then its bias."""
    if bias is None:
        return NotImplemented
    return aten.convolution(image, weight, None, *how) + bias.reshape(
        -1, *[1] * (weight.dim() - 2))


def convolution_backward(gradient, image, weight, sizes, *how):
    """Its gradients; that of the bias is a sum, which fuses."""
    *how, (of_image, of_weight, of_bias) = how
    if not of_bias:
        return NotImplemented
    made = aten.convolution_backward(gradient, image, weight, sizes, *how,
                                     [of_image, of_weight, False])
    return *made[:2], gradient.sum(
        [k for k in range(image.dim()) if k != 1])


def im2col(image, size, apart, margin, step):
    """The blocks that windows show, each as a column."""
    if apart != [1, 1] or image.dim() != 4 or not (
            image.is_floating_point()):
        return NotImplemented
    rows, columns = margin
    blocks = F.pad(image, (columns, columns, rows, rows)).unfold(
        2, size[0], step[0]).unfold(3, size[1], step[1])
    return blocks.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2)


def smaller(gradient, _, old, aligned, *scales, reach):
    """The gradient of a resized image: along one dimension at a time, an
    element adds up the places that were made of it. Those lie less than
    `reach` elements away: 1 if the resizing was linear, 2 if cubic."""
    made = gradient.to(accurate(gradient.dtype))
    for dim, scale in zip(range(2, made.dim()), (*scales, *[None] * 3)):
        step = _compute_scale(old[dim], made.size(dim), aligned, scale)
        if not step:
            return NotImplemented  # one place, made of the first element
        made = along_one(made, dim, old[dim], aligned, step, reach)
    return made.to(gradient.dtype)


def along_one(gradient, dim, size, aligned, step, reach):
    """The same along one dimension; from each place to the next it is
    `step` elements. An element asks a few neighbouring places, of which
    those at the ends may have been made of others."""
    count, middle = gradient.size(dim), 0 if aligned else 0.5
    here = torch.arange(size, dtype=gradient.dtype, device=gradient.device
                        )[:, None]
    first = (here - reach + middle) / step - middle - ROUNDED
    asked = ceil(2 * reach / step + 2 * ROUNDED) + 1
    places = first.floor().long() + torch.arange(asked, device=here.device)
    inside = (places >= 0) & (places < count)
    places = places.clamp(0, count - 1)
    source = _compute_source_index(step, places.to(here.dtype), aligned)
    if reach == 1:
        source = source.clamp(min=0)
    near = source.floor()
    share = (source - near).clamp(0, 1)
    weights = (1 - share, share) if reach == 1 else (
        _upsample_get_cubic_coefficients(share))
    made_of = [inside & ((near + k).clamp(0, size - 1) == here)
               for k in range(1 - reach, reach + 1)]
    weight = sum(map(partial(torch.where, other=0), made_of, weights))
    shape = [size, asked] + [1] * (gradient.dim() - dim - 1)
    found = gradient.index_select(dim, places.flatten()).unflatten(
        dim, (size, asked)) * weight.view(shape)
    return torch.where(reduce(torch.logical_or, made_of).view(shape), found,
                       0).sum(dim + 1)


def scatter(into, dim, places, given):
    """One element of each row replaced, as the gradient of a maximum is:
    a choice for each element."""
    size, one = [*into.shape], [*places.shape]
    if not into.dim() or one.pop(dim) != 1 or (
            size.pop(dim) < 1 or one != size):
        return NotImplemented
    if (given.shape, given.dtype) != (places.shape, into.dtype) if (
            torch.is_tensor(given)) else not (
                abs(given) <= torch.finfo(into.dtype).max):
        return NotImplemented
    here = along(dim, into, torch.arange(
        into.size(dim), device=into.device))
    return torch.where(here == bounded(into.size(dim), places), given, into)


DECOMPOSITIONS[aten.im2col.default] = im2col
DECOMPOSITIONS |= {op: partial(there, formula) for op, formula in {
    **{op: decomposition_table[op] for name in BY_FORMULA.split()
       for op in operators(name) if op in decomposition_table},
    aten.scatter.src: scatter, aten.scatter.value: scatter,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    **{op: partial(smaller, reach=reach)
       for reach, names in {1: "linear1d bilinear2d trilinear3d",
                            2: "bicubic2d"}.items()
       for name in names.split()
       for op in operators(f"upsample_{name}_backward")}}.items()}
