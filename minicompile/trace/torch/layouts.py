"""Results that eager lays out otherwise than PyTorch's fake tensors do.

In: an operator's fake result. Out: one that has eager's strides: a program
may view it, or hand it on. The rows were found by running 160 operators and
their gradients beside eager, on tensors of all orders of strides, on a CPU
and on a GPU. Without this file these results have other strides than in
eager. PyTorch's rows are those of torch/_meta_registrations.py and
torch/_refs, some of which eager does not follow.
"""

from functools import partial

import torch
from torch import contiguous_format as rows, preserve_format as kept
from torch._prims_common import suggest_memory_format as image

from ...core.graph import operators
from ..recorder import FAKED

#: Operators -> what their result, or the first of several, is laid out as:
#: a tensor, here itself or an operand, and how. An image may have its
#: channels innermost.
LAYOUTS = {
    """mse_loss_backward huber_loss_backward smooth_l1_loss_backward
    rrelu_with_noise rrelu_with_noise_functional isin""":
        lambda made, *_: (made, rows),
    "pow": lambda made, base, _: (
        made, kept if isinstance(base, torch.Tensor) else rows),
    "log_sigmoid_forward":
        lambda made, _: (made, rows if made.is_cpu else kept),
    "log_sigmoid_backward": lambda made, tangent, *_: (tangent, kept),
    """floor_divide copysign xlogy heaviside logaddexp logaddexp2
    logical_and logical_or logical_xor""":  # as a sum of the two
        lambda made, given, other: (given + other, kept),
    "index_fill": lambda made, given, *_: (given, kept),
    "roll channel_shuffle": lambda made, given, *_: (
        made, image(given) if made.is_cpu else rows),
    """native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training""": lambda made, given, *_: (
        made, image(given) if made.is_cpu else kept),
    "native_batch_norm_backward": lambda made, tangent, given, *_: (
        made, image(given))}


def laid_out(layout, mode, make, args: tuple):
    """The fake result of an operator in eager's layout."""
    made = make()
    first, *rest = made if isinstance(made, tuple) else (made,)
    like, form = layout(first, *args)
    if like is first and form is kept:
        return made
    first = mode.dispatch(torch.ops.aten.empty_like.default, (), (like,), {
        "dtype": first.dtype, "memory_format": form})
    return (first, *rest) if rest else first


FAKED |= {op: partial(laid_out, layout) for names, layout in LAYOUTS.items()
          for name in names.split() for op in operators(name)
          if not op._schema.is_mutable}
