"""torch.nn.attention: the kernels that a region lets attention choose.

In: `sdpa_kernel`, entered or left. Out: PyTorch's switches turned, here
and by a node of the graph. Attention chooses its kernel while the graph
is traced or split, so the choice is the region's. PyTorch's is
torch/_dynamo/variables/ctx_manager.py:SDPAKernelVariable.
"""

from __future__ import annotations

import contextlib

import torch
from torch.nn import attention

from ..grad_modes import KEPT
from .modes import read_switch
from ..rules import rule


def kernels() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the kernels allowed, and all by their priority."""
    allowed = attention._cur_sdpa_kernel_backends()
    return (*map(int, allowed),), (*torch._C._get_sdp_priority_order(),)


def turn_attention(allowed: tuple, order: tuple) -> None:
    """Allow attention these kernels, preferred in this order."""
    attention._sdpa_kernel([*map(attention.SDPBackend, allowed)])
    torch._C._set_sdp_priority_order([*order])


@contextlib.contextmanager
def attention_kept():
    """Put attention's switches back as they were."""
    before = kernels()
    try:
        yield
    finally:
        turn_attention(*before)


KEPT[turn_attention] = attention_kept


@rule(attention._cur_sdpa_kernel_backends)
def _current(tracer, with_priority=False):
    read_switch(tracer, kernels)
    return attention._cur_sdpa_kernel_backends(with_priority)


@rule(attention._sdpa_kernel)
def _allow(tracer, backends, set_priority=False):
    before = kernels()
    attention._sdpa_kernel(backends, set_priority)
    tracer.turn((turn_attention, *kernels()), (turn_attention, *before))
