"""Which ATen ops are taken apart while recording, and why each is.

In: nothing. Out: a table from op to a Python function that computes the
same with smaller ops. The formulas are PyTorch's (torch/_decomp); ours is
the choice. What is not listed is recorded whole: chapter 4 makes loops of
it if it can, and otherwise it runs as the ATen op itself. PyTorch chooses
in torch/_inductor/decomposition.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch._decomp import decomposition_table

from ..core.errors import BackendError
from ..core.graph import dense, operators

aten = torch.ops.aten

#: Why, and the ops it holds for, with all their overloads.
REASONS: dict[str, str] = {
    "arithmetic on one element, written with simpler arithmetic": """
        celu elu elu_backward gelu gelu_backward glu glu_backward
        hardshrink hardsigmoid hardsigmoid_backward hardswish
        hardswish_backward hardtanh hardtanh_backward leaky_relu
        leaky_relu_backward log_sigmoid_backward log_sigmoid_forward
        logit logit_backward mish mish_backward _prelu_kernel
        _prelu_kernel_backward rrelu_with_noise_backward selu
        sigmoid_backward silu silu_backward softplus softplus_backward
        softshrink tanh_backward threshold threshold_backward
        addcdiv addcmul clamp_max clamp_min deg2rad rad2deg frac
        heaviside isneginf isposinf lerp logaddexp logaddexp2
        nan_to_num native_dropout_backward rsub sgn sinc special_entr
        special_log_ndtr special_xlog1py xlogy
        masked_fill tril triu fill zero""",
    "reductions with arithmetic around them, which fuse": """
        _fused_rms_norm _fused_rms_norm_backward _log_softmax
        _log_softmax_backward_data _native_batch_norm_legit
        _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training _batch_norm_with_update
        _batch_norm_with_update_functional _batch_norm_no_update
        _softmax _softmax_backward_data aminmax batch_norm_backward
        cudnn_batch_norm cudnn_batch_norm_backward dist
        linalg_vector_norm logsumexp nansum native_batch_norm
        native_batch_norm_backward native_group_norm
        native_group_norm_backward native_layer_norm
        native_layer_norm_backward norm std std_mean trace""",
    "losses: a choice of elements, arithmetic and a sum": """
        binary_cross_entropy_backward
        binary_cross_entropy_with_logits huber_loss
        huber_loss_backward mse_loss mse_loss_backward
        nll_loss2d_forward nll_loss_forward smooth_l1_loss
        smooth_l1_loss_backward soft_margin_loss
        soft_margin_loss_backward""",
    "gradients of views: zeros with a part filled in": """
        diagonal_backward select_backward slice_backward""",
    "other names of views, so that later stages know only a few": """
        _reshape_alias _unsafe_view t transpose""",
    "creation, so that only `full` and `empty` remain": """
        new_full new_ones new_zeros ones ones_like zeros zeros_like""",
}


def along_memory(x: torch.Tensor, p: float, generator=None):
    """Eager's own bernoulli_, which draws in the order of the memory.

    The operator without writing draws row by row.
    """
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    if order == [*range(x.dim())]:
        return NotImplemented
    drawn = torch.bernoulli(x.permute(order), p, generator=generator)
    return drawn.permute([*map(order.index, range(x.dim()))])


def without_gaps(x: torch.Tensor, *_, **__):
    """Eager's own normal_, which goes another way where there are gaps."""
    if x.device.type == "cpu" and not dense(x):
        raise BackendError("normal_ of memory with gaps draws otherwise")
    return NotImplemented


DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable] = {
    **{op: decomposition_table[op] for names in REASONS.values()
       for name in names.split() for op in operators(name)
       if op in decomposition_table},
    aten.bernoulli.p: along_memory,
    aten.normal_functional.default: without_gaps,
}

#: How an operator that draws is computed from a seed, given the recorder
#: and what the result looks like.
SEEDED: dict[torch._ops.OpOverload, Callable] = {}


@cache
def decomposition_of(op: torch._ops.OpOverload) -> Callable | None:
    """How `op` is taken apart, or None if it is recorded whole."""
    if op in DECOMPOSITIONS:
        return DECOMPOSITIONS[op]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeImplicitAutograd")  # PyTorch's own, in C++
    return op.decompose if composite else None
