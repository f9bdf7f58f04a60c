"""Which ATen ops are taken apart while recording, and why each is.

In: nothing. Out: a table from op to a Python function that computes the
same with smaller ops. The formulas are PyTorch's (torch/_decomp); ours is
the choice. What is not listed is recorded whole: chapter 4 makes loops of
it if it can, and otherwise it runs as the ATen op itself. PyTorch chooses
in torch/_inductor/decomposition.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch._decomp import decomposition_table

from .random import AS_EAGER

aten = torch.ops.aten

#: Why, and the ops it holds for. No overload named: all of them.
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
        binary_cross_entropy binary_cross_entropy_backward
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


def overloads(names: str) -> Iterator[torch._ops.OpOverload]:
    """The ops of a row of REASONS that this torch has."""
    for name in names.split():
        packet = getattr(aten, name, None)
        if packet is None:
            continue
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if op in decomposition_table:
                yield op


def nll_loss_backward(grad_output, self, target, weight, reduction,
                      ignore_index, total_weight):
    """The gradient of nll_loss, each element on its own.

    PyTorch's formula scatters; this one compares, and so it fuses.
    """
    dim = min(1, self.dim() - 1)
    shape = [1] * self.dim()
    shape[dim] = self.size(dim)
    classes = torch.arange(self.size(dim), device=self.device).view(shape)
    if self.dim() > 1 or target.dim() == 0:
        target = target.unsqueeze(dim)
    if reduction == 1:  # the mean
        grad_output = grad_output / total_weight
    elif self.dim() > 1 and grad_output.dim():
        grad_output = grad_output.unsqueeze(dim)
    if weight is not None:
        grad_output = grad_output * weight.view(shape)
    chosen = (classes == target) & (target != ignore_index)
    return torch.where(chosen, -grad_output, 0).to(self.dtype)


def unscale(gradients, found_inf, inverse):
    """A GradScaler's gradients divided by its scale, and if any overflowed.

    As an operator on lists it would be one call that fuses with nothing.
    """
    for each in gradients:
        overflowed = each.isfinite().all().logical_not()
        found_inf = torch.where(overflowed, 1.0, found_inf)
    return [each * inverse for each in gradients], found_inf


DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable] = {
    **{op: decomposition_table[op]
       for names in REASONS.values() for op in overloads(names)},
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._amp_foreach_non_finite_check_and_unscale.default:
        unscale,
    **AS_EAGER,
}


def is_share(x: torch.Tensor) -> torch.Tensor:
    """Which elements are between 0 and 1."""
    return (x >= 0) & (x <= 1)


#: Where PyTorch's own kernel checks the elements that it reads: what holds
#: of each. The formula that replaces the operator would take any.
DEMANDS: dict[torch._ops.OpOverload, Callable] = {
    aten.binary_cross_entropy.default:
        lambda x, target, *_: is_share(x) & is_share(target),
    aten.bernoulli.default: is_share,
    aten.bernoulli.Tensor: lambda _, p: is_share(p),
    **dict.fromkeys((aten.normal.float_Tensor, aten.normal.Tensor_Tensor),
                    lambda _, deviation: deviation >= 0),
}


@cache
def rule_of(op: torch._ops.OpOverload) -> Callable | None:
    """How `op` is taken apart, or None if it is recorded whole."""
    if op in DECOMPOSITIONS:
        return DECOMPOSITIONS[op]
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    composite = op.has_kernel_for_dispatch_key(implicit)
    return op.decompose if composite else None
