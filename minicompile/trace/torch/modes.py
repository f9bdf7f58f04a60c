"""torch's modes and settings: turned in the graph, asked by a guard.

In: a function that turns a mode such as grad mode, or asks how one stands.
Out: the mode turned and a node that says so; or the answer, and a guard
that asks the same before each call. The modes that decide what an
operator does are guarded in every graph; the others only where a program
asks. PyTorch's are in torch/_dynamo/variables/torch.py.
"""

from __future__ import annotations

import functools
import operator

import torch

from ...core.source import Call
from ..marks import is_compiling
from ..reasons import unsupported
from ..recorder import storage
from ..rules import rule


@rule(torch._C._set_grad_enabled)
def _set_grad_enabled(tracer, mode):
    turn = torch._C._set_grad_enabled
    tracer.turn((turn, mode), (turn, torch.is_grad_enabled()))


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


@functools.cache
def asking(switch, *args) -> functools.partial:
    """The question that a guard asks."""
    return functools.partial(switch, *args)


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


@rule(torch.is_inference_mode_enabled)
def _is_inference_mode_enabled(tracer):
    return tracer.state.inference


@rule(torch.is_inference)
def _is_inference(tracer, value):
    raise unsupported("data-dependent", "torch.is_inference")


@rule(torch.is_tensor)
def _is_tensor(tracer, value):
    return isinstance(value, torch.Tensor)


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
