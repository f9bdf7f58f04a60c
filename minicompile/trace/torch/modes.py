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
from ..constant_types import is_constant
from ..marks import is_compiling
from ..reasons import unsupported
from ..recorder import storage
from ..rules import rule


def switch(turn, read, *kinds: str) -> None:
    """Let a trace call `turn`: how it stands is read by `read`.

    Both are told what it is for, if there are several `kinds`.
    """
    @rule(turn)
    def _turn(tracer, *given):
        *kind, value = given
        if type(value) is list:
            value = tuple(tracer.unpacked(value))
        tracer.turn((turn, *kind, value), (turn, *kind, read(*kind)))

    for kind in [*zip(kinds)] or [()]:
        KEPT[turn, *kind] = read


def priority() -> tuple[int, ...]:
    """The kernels that attention may choose from, the preferred first."""
    return (*torch._C._get_sdp_priority_order(),)


switch(torch._C._set_grad_enabled, torch.is_grad_enabled)
switch(torch._C._set_sdp_priority_order, priority)
for _name in attention._backend_names:
    switch(getattr(torch._C, f"_set_sdp_use_{_name}"),
           getattr(torch._C, f"_get_{_name}_sdp_enabled"))

# Autocast: a region's own code is followed, which turns these switches.

DEVICES = {"cpu", "cuda", torch._C._get_accelerator().type}
switch(torch.set_autocast_enabled, torch.is_autocast_enabled, *DEVICES)
switch(torch.set_autocast_dtype, torch.get_autocast_dtype, *DEVICES)
switch(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled)

DEEPER = torch.autocast_increment_nesting
LESS_DEEP = torch.autocast_decrement_nesting


def autocast_depth() -> int:
    """How many regions of autocast we are in."""
    DEEPER()
    return LESS_DEEP()


def set_autocast_depth(depth: int) -> None:
    """Be in so many regions; the casts kept go with the last one."""
    for _ in range(depth - autocast_depth()):
        DEEPER()
    for _ in range(autocast_depth() - depth):
        if not LESS_DEEP():
            torch.clear_autocast_cache()


KEPT[set_autocast_depth,] = autocast_depth


@rule(torch.autocast)
def _autocast(tracer, *args, **kwargs):
    return tracer.own(tracer.native(torch.autocast, args, kwargs))


@rule(DEEPER)
def _enter(tracer) -> int:
    tracer.turn((DEEPER,), (LESS_DEEP,))
    return read_switch(tracer, autocast_depth)


@rule(LESS_DEEP)
def _leave(tracer) -> int:
    tracer.turn((LESS_DEEP,), (DEEPER,))
    return read_switch(tracer, autocast_depth)


@rule(torch.clear_autocast_cache)
def _clear(tracer):
    tracer.recorder.effect(torch.clear_autocast_cache)
    torch.clear_autocast_cache()


# Questions


def answer_of(tracer, owner, name: str, question):
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
            answer_of(tracer, each.fake, "storage_offset", question)
    return question(tensor)


#: What tells how a switch stands; the answer is guarded. Most are those
#: that can be set, too.
GETTERS = [getattr(torch._C, name) for name in dir(torch._C)
           if name.startswith("_get_") and hasattr(
               torch._C, f"_set_{name[5:]}") or name in """
    get_autocast_dtype is_autocast_enabled is_autocast_cache_enabled
    is_anomaly_enabled is_anomaly_check_nan_enabled get_num_threads
    get_num_interop_threads _get_deterministic_algorithms_warn_only
    _get_fp32_precision_getter _get_flash_sdp_enabled
    _get_math_sdp_enabled _get_cudnn_sdp_enabled
    _get_mem_efficient_sdp_enabled _get_overrideable_sdp_enabled
    _is_autocast_available""".split()]

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
    if not is_constant(before):
        raise unsupported("builtin", switch.__name__)
    outside = tracer.outside
    call = outside.constant(operator.call, "call").code()
    outside.guard(Call(call, outside.constant(
        question, switch.__name__)), "equal", before)
    return tracer.native(question)


for _switch in GETTERS:
    rule(_switch)(lambda tracer, *args, _switch=_switch: read_switch(
        tracer, _switch, *args))


@rule(torch._C._get_sdp_priority_order)
def _priority(tracer) -> list[int]:
    return [*read_switch(tracer, priority)]


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
            torch._C._is_torch_function_mode_enabled,
            torch._C._len_torch_dispatch_stack,
            torch._C._len_torch_function_stack),
    None: (torch._C._log_api_usage_once, torch._C._get_tracing_state)}

for _answer, _questions in ANSWERS.items():
    rule(*_questions)(lambda tracer, *args, _answer=_answer: _answer)
