"""What functions of libraries mean in a trace: more rules.

In: a function of torch or of the standard library. Out: its rule: how it
is asked, guarded, recorded, refused or run. A switch of torch's is
turned, and a node says so. Classes are made here: the interpreter runs
their bodies. PyTorch's are torch/_dynamo/variables/torch.py and others.
"""

from __future__ import annotations

import abc
import builtins
import collections
import contextlib
import copyreg
import dataclasses
import functools
import inspect
import logging
import operator
import re
import sys
import types
import weakref

import torch
from torch.utils.checkpoint import checkpoint, noop_context_fn
from torch.utils.hooks import BackwardHook

from ..core.source import Call
from . import attributes, switches
from .frame import Frame
from .marks import is_compiling
from .reasons import unsupported
from .rules import rule


@rule(id)
def _id(tracer, value):
    if tracer.frames[-1].globals.get("__name__") != "copy":
        raise unsupported("builtin", "id")
    return id(value)


def ask(tracer, owner, name: str, question):
    """The constant answer to a question about an object, guarded."""
    answer, source = question(owner), tracer.outside.source(owner)
    if source is not None:
        tracer.outside.guard(Call(tracer.outside.constant(
            question, name).code(), source), "equal", answer)
    return answer


@rule(logging.Logger.isEnabledFor)
def _is_enabled(tracer, logger, level):
    return ask(tracer, logger, f"listens_{level}", _listens(level))


@functools.cache
def _listens(level: int):
    return operator.methodcaller("isEnabledFor", level)


@rule(weakref.ref.__call__)
def _referent(tracer, reference):
    value, source = reference(), tracer.outside.source(reference)
    if source is None or value is None:
        raise unsupported("builtin", "weakref.ref")
    call = tracer.outside.constant(operator.call, "call").code()
    return tracer.outside.admit(value, Call(call, source))


@rule(set.pop)
def _pop(tracer, owner):
    if tracer.outside.source(owner) is not None:
        raise unsupported("builtin", "pop of a set from outside")
    return tracer.native(set.pop, (owner,))


@rule(types.MethodType)
def _method(tracer, function, owner):
    return types.MethodType(function, owner)


@rule(sys.exception)
def _exception(tracer):
    error = tracer.handled()
    if error is None and tracer.frames[-1].globals is not vars(contextlib):
        raise unsupported("builtin", "sys.exception")
    return error


@rule(sys.exc_info)
def _exc_info(tracer):
    error = _exception(tracer)
    return error and type(error), error, error and error.__traceback__


@rule(inspect.signature)
def _signature(tracer, function):
    plain = getattr(function, "__func__", function)
    if type(plain) is not types.FunctionType:
        raise unsupported("library", "inspect.signature of an object")
    return tracer.native(inspect.signature, (function,))


@rule(object.__reduce_ex__)
def _reduce(tracer, owner, protocol):
    parts = [owner, "__getstate__"], [owner, "__reduce__"], [
        owner, "__getnewargs__"], [owner, "__getnewargs_ex__"]
    if any(tracer.python_method(*part) for part in parts):
        raise unsupported("builtin", "__reduce_ex__")
    return (copyreg.__newobj__, (type(owner),),
            dict(tracer.mapping(attributes.load(
                tracer, owner, "__dict__"))))


# Regions that the backward computes once more


@rule(checkpoint)
def _checkpoint(tracer, function, *args, use_reentrant=None,
                preserve_rng_state=True, context_fn=noop_context_fn,
                determinism_check="default", debug=False, early_stop=True,
                **kwargs):
    if use_reentrant is not False or context_fn is not noop_context_fn:
        raise unsupported("library", "checkpoint with use_reentrant=True, "
                          "or with a context_fn,")
    recorder, outer = tracer.recorder, tracer.recorder.region
    if outer is None:
        recorder.region = tracer.clock
    try:
        return tracer.call(function, args, kwargs)
    finally:
        recorder.region = outer


# Hooks that autograd calls: what they are set on must be real


@rule(BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)
def _backward_hook(tracer, *args):
    raise unsupported("library", "a module's backward hook")


# torch's switches


@rule(torch._C._set_grad_enabled)
def _set_grad_enabled(tracer, mode):
    turn = torch._C._set_grad_enabled
    tracer.turn((turn, mode), (turn, torch.is_grad_enabled()))


@rule(torch.autocast.__enter__)
def _enter_autocast(tracer, manager):
    kind = attributes.load(tracer, manager, "device")
    for name, now in zip(_BEFORE[1:], switches.autocast(kind)[1:]):
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
    before = switches.autocast(settings[0])
    turn = switches.turn_autocast
    tracer.turn((turn, *settings, deeper), (turn, *before, -deeper))


#: Where a region keeps its settings, and those it was entered under.
_INSIDE = ("device", "fast_dtype", "_enabled", "_cache_enabled")
_BEFORE = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")


#: What tells how a switch stands; the answer is guarded.
SWITCHES = [getattr(torch, name, None) or getattr(torch._C, name, None)
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


def _read_switch(tracer, switch, *args):
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


for _switch in filter(None, SWITCHES):
    rule(_switch)(lambda tracer, *args, _switch=_switch: _read_switch(
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


# Classes made while tracing

#: Metaclasses that only keep books.
PLAIN_METACLASSES = (type, abc.ABCMeta, type(torch.autograd.Function))


@rule(builtins.__build_class__)
def _build_class(tracer, body, name, *bases, **more):
    frame = Frame(tracer, body, {})
    frame.run()
    names = frame.space
    hooks = [k for k in bases if tracer.python_method(
        k, "__init_subclass__") or type(k) not in PLAIN_METACLASSES]
    if more or hooks or any(tracer.python_method(value, "__set_name__")
                            for value in names.values()):
        raise unsupported("builtin", f"the class {name}, being made,")
    return tracer.own(tracer.native(types.new_class, (
        name, bases, {}, lambda space: space.update(names))))


@rule(dataclasses._process_class)
def _dataclass(tracer, kind, *args):
    if not tracer.is_made(kind):
        raise unsupported("effect", f"dataclass of {kind.__qualname__}")
    return tracer.native(dataclasses._process_class, (kind, *args))


# Functions of Python that make something new, run as they are

for _make in (torch.autocast, collections.namedtuple, re._compile,
              torch._C._group_tensors_by_device_and_dtype):
    rule(_make)(lambda tracer, *args, _make=_make, **kwargs: tracer.own(
        tracer.native(_make, args, kwargs)))
