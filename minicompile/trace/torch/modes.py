"""torch's modes and settings: turned in the graph, asked by a guard.

In: a function that turns a mode, such as grad mode, autocast or the
kernels that attention may choose, or asks how one stands. Out: the mode
turned and a node that says so; or the answer, and a guard that asks the
same before each call. The modes that decide what an operator does are
guarded in every graph; the others only where a program asks. PyTorch's
are in torch/_dynamo/variables/torch.py and ctx_manager.py.
"""

from __future__ import annotations

import functools
import operator

import torch
from torch.nn import attention

from ...core.source import Call
from ...core.state import KEPT
from .. import attributes
from ..marks import is_compiling
from ..reasons import unsupported
from ..recorder import storage
from ..rules import rule


@rule(torch._C._set_grad_enabled)
def _set_grad_enabled(tracer, mode):
    turn = torch._C._set_grad_enabled
    tracer.turn((turn, mode), (turn, torch.is_grad_enabled()))


# Autocast

#: The kinds of devices that programs name in autocast.
_KINDS = {"cpu", "cuda", torch._C._get_accelerator().type}

#: Where a region keeps its settings, and those it was entered under.
_INSIDE = ("device", "fast_dtype", "_enabled", "_cache_enabled")
_BEFORE = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")


def turn_autocast(kind: str, dtype: torch.dtype, enabled: bool,
                  cached: bool, deeper: int) -> None:
    """Set autocast, and be that many regions deeper inside.

    The casts that regions keep are forgotten when the last one is left.
    """
    torch.set_autocast_enabled(kind, enabled)
    torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(cached)
    for _ in range(deeper):
        torch.autocast_increment_nesting()
    for _ in range(-deeper):
        if not torch.autocast_decrement_nesting():
            torch.clear_autocast_cache()


def autocast_state(kind: str) -> tuple:
    """What turn_autocast sets, as it is now."""
    return (kind, torch.get_autocast_dtype(kind),
            torch.is_autocast_enabled(kind),
            torch.is_autocast_cache_enabled())


def autocast_depth() -> int:
    """How many regions of autocast we are in."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def restore_autocast(depth: int, *states: tuple) -> None:
    """Set autocast for all devices, that many regions deep."""
    for state in states:
        turn_autocast(*state, depth - autocast_depth())


KEPT[turn_autocast] = (
    lambda: (autocast_depth(), *map(autocast_state, _KINDS)),
    restore_autocast)


@rule(torch.autocast)
def _autocast(tracer, *args, **kwargs):
    return tracer.own(tracer.native(torch.autocast, args, kwargs))


@rule(torch.autocast.__enter__)
def _enter_autocast(tracer, manager):
    kind = attributes.load(tracer, manager, "device")
    for name, now in zip(_BEFORE[1:], autocast_state(kind)[1:]):
        attributes.store(tracer, manager, name, now)
    _turn_autocast(tracer, manager, _INSIDE, 1)
    return manager


@rule(torch.autocast.__exit__)
def _exit_autocast(tracer, manager, *error):
    _turn_autocast(tracer, manager, _BEFORE, -1)
    return False


def _turn_autocast(tracer, manager, names, deeper: int) -> None:
    """Set autocast to what attributes of the manager say."""
    settings = [attributes.load(tracer, manager, n) for n in names]
    before = autocast_state(settings[0])
    tracer.turn((turn_autocast, *settings, deeper),
                (turn_autocast, *before, -deeper))


# The kernels that attention may choose: it does while a graph is made.


def kernels() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the kernels allowed, and all by their priority."""
    allowed = attention._cur_sdpa_kernel_backends()
    return (*map(int, allowed),), (*torch._C._get_sdp_priority_order(),)


def turn_attention(allowed: tuple, order: tuple) -> None:
    """Allow attention these kernels, preferred in this order."""
    attention._sdpa_kernel([*map(attention.SDPBackend, allowed)])
    torch._C._set_sdp_priority_order([*order])


KEPT[turn_attention] = kernels, turn_attention


@rule(attention._cur_sdpa_kernel_backends)
def _current(tracer, with_priority=False):
    read_switch(tracer, kernels)
    return attention._cur_sdpa_kernel_backends(with_priority)


@rule(attention._sdpa_kernel)
def _allow(tracer, backends, set_priority=False):
    before = kernels()
    attention._sdpa_kernel(backends, set_priority)
    tracer.turn((turn_attention, *kernels()), (turn_attention, *before))


# Questions


def ask(tracer, owner, name: str, question):
    """The constant answer to a question about an object, guarded."""
    answer, source = question(owner), tracer.outside.source(owner)
    if source is not None:
        tracer.outside.guard(Call(tracer.outside.constant(
            question, name).code(), source), "equal", answer)
    return answer


@rule(torch.Tensor.storage_offset)
def _offset(tracer, tensor: torch.Tensor) -> int:
    """Where a tensor starts in its memory, guarded for an input."""
    question = torch.Tensor.storage_offset
    for each in tracer.recorder.inputs:
        if each.storage == storage(tensor):
            ask(tracer, each.fake, "storage_offset", question)
    return question(tensor)


#: What tells how a switch stands; the answer is guarded.
GETTERS = [getattr(torch, name, None) or getattr(torch._C, name, None)
            for name in """get_autocast_dtype is_autocast_enabled
    is_autocast_cache_enabled is_anomaly_enabled
    is_anomaly_check_nan_enabled get_num_threads get_num_interop_threads
    _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
    _get_deterministic_fill_uninitialized_memory _get_warnAlways
    _get_float32_matmul_precision _get_fp32_precision_getter
    _get_cublas_allow_tf32 _get_cublas_allow_fp16_accumulation
    _get_cublas_allow_fp16_reduced_precision_reduction
    _get_cublas_allow_bf16_reduced_precision_reduction
    _get_cudnn_allow_tf32 _get_cudnn_benchmark _get_cudnn_deterministic
    _get_cudnn_enabled _get_mkldnn_enabled _get_mkldnn_deterministic
    _get_flash_sdp_enabled _get_math_sdp_enabled _get_cudnn_sdp_enabled
    _get_mem_efficient_sdp_enabled _get_overrideable_sdp_enabled
    _get_nnpack_enabled _is_autocast_available""".split()]

#: The question that a guard asks: one object for one question.
asking = functools.cache(functools.partial)


def read_switch(tracer, switch, *args):
    """How a switch stands; a guard asks how it stood before the call."""
    question = asking(switch, *args)
    for _, (back, *given) in reversed(tracer.turned):
        back(*given)
    before = tracer.native(question)
    for (turn, *given), _ in tracer.turned:
        turn(*given)
    outside = tracer.outside
    call = outside.constant(operator.call, "call").code()
    outside.guard(Call(call, outside.constant(
        question, switch.__name__)), "equal", before)
    return tracer.native(question)


for _switch in filter(None, GETTERS):
    rule(_switch)(lambda tracer, *args, _switch=_switch: read_switch(
        tracer, _switch, *args))


@rule(torch.is_inference)
def _is_inference(tracer, value):
    raise unsupported("data-dependent", "torch.is_inference")


rule(torch.is_inference_mode_enabled)(lambda tracer: tracer.state.inference)
rule(torch.is_tensor)(
    lambda tracer, value: isinstance(value, torch.Tensor))

#: Questions that a trace answers as a compiler does.
ANSWERS = {
    True: (is_compiling, torch.compiler.is_compiling,
           torch.compiler.is_dynamo_compiling, torch._utils.is_compiling),
    False: (torch.compiler.is_exporting, torch.jit.is_scripting,
            torch.jit.is_tracing, torch._C._is_tracing,
            torch._C._len_torch_dispatch_stack,
            torch._C._len_torch_function_stack),
    None: (torch._C._log_api_usage_once, torch._C._get_tracing_state)}

for _answer, _questions in ANSWERS.items():
    rule(*_questions)(lambda tracer, *args, _answer=_answer: _answer)
