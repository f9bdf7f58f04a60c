"""Functions that need a rule: modes, settings, lists of tensors.

In: a function that turns a mode, such as grad mode or autocast, or reads
one. Out: the mode switched, and a node that switches it; or its value, and
a guard that reads it again. Modes that change an operator's result are
guarded in every graph. An operator on lists, which torch.optim calls,
becomes one for each tensor, so that they fuse. PyTorch's are torch.py,
ctx_manager.py and optimizer.py in torch/_dynamo/variables/.
"""

import contextlib
import enum
import functools
import itertools
import operator

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.nn import attention
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves, tree_map

from ...core.graph import operators, tensors_of
from ...core.sizes import SCALARS, SYMBOLIC
from ...core.guard import Attribute, Call, is_a, is_constant
from ...core.state import KEPT, function_modes, kept
from .. import attributes
from ..python.callbacks import asking, really
from ..reasons import WAYS, refusing, unsupported
from ..recorder import CONVERSIONS, settled, storage
from ..rules import means, rule
from ..tracer import begin

# Modules

#: nn.Module's own hooks; with none set, a call is its forward.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
         "_backward_pre_hooks")
GLOBAL_HOOKS = [f"_global{name}" for name in HOOKS]


@rule(nn.Module.__call__)
def _module(tracer, module: nn.Module, /, *args, **kwargs):
    """A module's call: its forward, if no hook is set; guarded."""
    outside, own, every = tracer.outside, vars(module), vars(
        nn.modules.module)
    for name in GLOBAL_HOOKS:
        outside.guard(outside.constant(every[name], name), "length",
                      len(every[name]))
    for name in HOOKS if outside.is_outside(module) else ():
        outside.guard(Attribute(outside.source(module), name), "length",
                      len(own[name]))
    hooks = [*map(own.get, HOOKS), *map(every.get, GLOBAL_HOOKS)]
    spaces = [outside.overlays.get((id(each), kind)) for each in (
        module, *hooks) for kind in ("attributes", "items")]
    if any(hooks) or any(each and each.written for each in spaces):
        return begin(tracer, nn.Module.__call__, (module, *args), kwargs)
    forward = attributes.load_attr(tracer, module, "forward")
    return tracer.enter(forward, args, kwargs)

# Modes


@functools.cache
def choose_once() -> None:
    """Let PyTorch choose a kernel of attention. It puts them in order when
    it first chooses; an order read before would be put back after it."""
    one = torch.empty(1, 1, 1, 8, dtype=torch.float16, device="cuda")
    torch._fused_sdp_choice(one, one, one)


def priority() -> tuple[int, ...]:
    """The kernels that attention may choose from, the preferred first."""
    if torch.cuda.is_initialized():
        choose_once()
    return (*torch._C._get_sdp_priority_order(),)


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


DEVICES = {"cpu", "cuda", torch._C._get_accelerator().type}

KEPT |= {(torch._C._set_sdp_priority_order,): priority,
         (set_autocast_depth,): autocast_depth,
         **{(getattr(torch._C, f"_set_sdp_use_{name}"),): getattr(
             torch._C, f"_get_{name}_sdp_enabled")
            for name in attention._backend_names},
         **{(setter, kind): read for kind in DEVICES for setter, read in (
             (torch.set_autocast_enabled, torch.is_autocast_enabled),
             (torch.set_autocast_dtype, torch.get_autocast_dtype))}}


def turn(tracer, function, *args) -> None:
    """A call that turns something, here and in the graph."""
    node = tracer.recorder.graph.call_function(function, args)
    node.meta["where"] = tracer.where()
    function(*args)


means(turn, *{setter for setter, *_ in KEPT}, torch.clear_autocast_cache)

# Autocast: a region's own code is followed, which turns these modes.


def nest(tracer, step) -> int:
    """Enter a region of autocast, or leave one: how many there are."""
    turn(tracer, step)
    return ask_mode(tracer, autocast_depth)


means(nest, DEEPER, LESS_DEEP)


# Questions

#: The getters of modes; most of these modes can be set, too.
GETTERS = {*KEPT.values()} - {torch.is_grad_enabled, priority} | {
    getattr(torch._C, name) for name in dir(torch._C)
    if name.startswith("_get_") and hasattr(
        torch._C, f"_set_{name[5:]}") or name in """
    is_anomaly_enabled is_anomaly_check_nan_enabled get_num_threads
    get_num_interop_threads _get_deterministic_algorithms_warn_only
    _get_fp32_precision_getter _is_autocast_available""".split()}


def ask_mode(tracer, read, *args):
    """A mode's value; a guard compares its value before the call."""
    question = asking(read, *args)
    with kept(tracer.settings):
        before = tracer.native(question)
    if not is_constant(before):
        raise unsupported("builtin", read.__name__)
    outside = tracer.outside
    outside.guard(Call(outside.found_at(operator.call), outside.constant(
        question, read.__name__)), "equal", before)
    return tracer.native(question)


means(ask_mode, *GETTERS, torch.cuda.current_device)
rule(torch._C._get_sdp_priority_order)(
    lambda tracer: [*ask_mode(tracer, priority)])


#: Questions about the machine, and about the device that is current.
MACHINE = (torch.cuda.is_available, torch.cuda.device_count,
           torch.backends.mps.is_available, torch.accelerator.is_available,
           torch.accelerator.device_count,
           torch.accelerator.current_accelerator)
CURRENT = (torch.cuda.is_bf16_supported, torch.cuda.get_device_capability,
           torch.cuda.get_device_name)


def of_machine(tracer, function, *args, **kwargs):
    """PyTorch's answer about a machine, which stays the same."""
    if function in CURRENT and torch.cuda.is_initialized():
        ask_mode(tracer, torch.cuda.current_device)
    return really(tracer, function, args, kwargs)


means(of_machine, *MACHINE, *CURRENT)
rule(torch.is_inference)(refusing("disabled", "torch.is_inference"))
rule(torch.is_inference_mode_enabled)(lambda tracer: tracer.inference)

rule(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
     torch._utils.is_compiling)(
    lambda tracer: tracer.recorder.sizes.history.compiling)

# Questions that a trace answers as a compiler does.
rule(torch.compiler.is_exporting, torch.jit.is_scripting,
     torch.jit.is_tracing, torch._C._is_tracing,
     torch._C._len_torch_dispatch_stack)(lambda tracer: False)
rule(torch._C._log_api_usage_once,
     torch.compiler.cudagraph_mark_step_begin)(lambda tracer, *args: None)

# A trace's own answers: of modes, a default device alone may be in force.
means(lambda tracer, read: read(), torch._C._len_torch_function_stack,
      torch._C._is_torch_function_mode_enabled, torch.get_default_device,
      torch._C._are_functorch_transforms_active)

# A default device, results that are given, numbers, and lists of tensors

#: Functions that make tensors on the default device; `range` does not ask.
CONSTRUCTORS = _device_constructors() - {torch.range}


def on_default_device(recorder, function, kwargs: dict) -> dict:
    """The keywords of a call, with the device if the call names none: the
    graph runs under the default device of its beginning."""
    modes = function_modes()
    if not (modes or recorder.default) or function not in CONSTRUCTORS or (
            kwargs.get("device") is not None):
        return kwargs
    return {**kwargs, "device": modes[-1] if modes else "cpu"}


def fill(recorder, target, function, args, kwargs) -> None:
    """Refuse an `out=` that does not take the results as they are.

    It is no view, and what is also read is read point by point.
    """
    out = tensors_of(kwargs.pop("out"))
    read = {*map(storage, tensors_of((args, kwargs)))} if not any(
        torch.Tag.pointwise in op.tags for op in operators(
            getattr(target, "__name__", target))) else set()
    made = tensors_of(recorder.compute(target, function, args, kwargs))
    if len(made) != len({*map(storage, out)} - read) or any(
            (into.shape, into.dtype, into._is_view())
            != (each.shape, each.dtype, False)
            for into, each in zip(out, made)):
        raise unsupported("effect", "out=")


WAYS |= {"device": on_default_device, "out": fill}

#: Functions that look at the class of a number, not only at its value.
BY_CLASS = {torch.tensor, torch.as_tensor, torch.asarray, "__setitem__",
            operator.setitem}


def plain(recorder, value) -> int | float | str | torch.dtype:
    """PyTorch's form of a number of NumPy's, or of an enumeration; of
    a class of Python's numbers; or of torch.FloatTensor, say."""
    kind = type(value)
    if kind in SCALARS and recorder.target not in BY_CLASS:
        return SCALARS[kind](value)
    if is_a(value, enum.Enum) and is_a(value, (int, str)):
        return value.value
    if kind is type(torch.FloatTensor):
        return f"{value.__module__}.{value.__name__}"
    if kind is type and value in (bool, int, float, complex):
        return torch.empty(0, dtype=value).dtype
    raise unsupported("argument", kind.__name__)


CONVERSIONS[type, enum.Enum, *SCALARS] = plain
CONVERSIONS[range] = lambda _, numbers: [*numbers]


#: Elements of these classes may be any number.
WIDE = {None, torch.int64, torch.float32, torch.float64}


def of_numbers(tracer, function, data, dtype=None, **more):
    """A tensor; a number that varies fills its place in a stack."""
    record, more = tracer.recorder.function, {"dtype": dtype, **more}
    if dtype not in WIDE or more.get("requires_grad"):
        data = tree_map(settled, data)  # C++ takes 32 bits of a symbol
    if {*map(type, tree_leaves(data))}.isdisjoint(SYMBOLIC):
        return record(function, (data,), more)
    if not is_a(data, (list, tuple)):
        return record(torch.full, ((), data), more)
    return record(torch.stack, ([
        of_numbers(tracer, function, each, **more) for each in data],), {})


means(of_numbers, torch.tensor, torch.as_tensor)
rule(torch.Tensor.new_tensor)(
    lambda tracer, like, data, dtype=None, device=None, **more: of_numbers(
        tracer, torch.tensor, data, dtype or like.dtype,
        device=device or like.device, **more))
#: A node has tuples in place of sizes, and a tuple is data to `new`.
rule(torch.Tensor.new)(
    lambda tracer, like, *given, **more: tracer.recorder.method(
        "new_empty" if {*map(type, given)} == {torch.Size} else "new",
        (like, *given), more))


def spread(tracer, function, *args, **kwargs):
    """Numbers made of places. PyTorch's kernels know no symbols; formulas
    of its own do, of which those for numbers of these classes are right.
    """
    kwargs = on_default_device(tracer.recorder, function, kwargs)
    known = {*map(type, (*args, *kwargs.values()))}.isdisjoint(SYMBOLIC)
    if known or tensors_of((args, kwargs)) or (
            kwargs.get("dtype") not in WIDE - {torch.int64}):
        return tracer.recorder.function(function, args, kwargs)
    return tracer.recorder.function(getattr(
        torch._refs, function.__name__), args, kwargs)


means(spread, torch.linspace, torch.tril_indices, torch.triu_indices)


def drawn(tracer, function, *args, **kwargs):
    """Random numbers; the overload with a generator knows no symbols."""
    if kwargs.get("generator", 0) is None:
        del kwargs["generator"]
    return tracer.recorder.function(function, args, kwargs)


means(drawn, torch.rand, torch.randn, torch.randint, torch.randperm)


class Unrecorded(contextlib.nullcontext, contextlib.ContextDecorator):
    """Stands for a record_function, which changes no result."""


@rule(record_function)
def _record_function(tracer, name, args=None):
    return tracer.own(Unrecorded(name))


@rule(torch._C._group_tensors_by_device_and_dtype)
def _grouped(tracer, *args, **kwargs):
    """Fake tensors answer for their devices, so it runs unwatched."""
    return tracer.own(
        torch._C._group_tensors_by_device_and_dtype(*args, **kwargs))


@rule(torch._native_multi_head_attention)
def _attention(tracer, *given):
    """The results; eager gives None for weights that are not wanted."""
    result, weights = tracer.recorder.function(
        torch._native_multi_head_attention, given, {})
    return result, weights if all(given[10:11]) else None


#: So many steps of a recurrent layer become operators of one graph.
UNROLLED = 64


def recurrent(tracer, function, data, *args):
    """A layer's results, unless eager has one kernel for all steps.

    cuDNN wants the weights in one piece of memory, which the values of a
    trace do not have. oneDNN's LSTM keeps nothing for a split backward.
    """
    name, steps = function.__name__, data.shape[args[-1] is True] * args[3]
    if torch.backends.cudnn.is_acceptable(data):
        raise unsupported("library", f"cuDNN's {name}")
    if name == "lstm" and torch._C._get_mkldnn_enabled() and (
            data.device.type, data.dtype) == ("cpu", torch.float32):
        if torch.is_grad_enabled():
            raise unsupported("library", "oneDNN's lstm")
    elif steps > UNROLLED:
        raise unsupported("builtin", f"{name}, of {steps} steps,")
    return tracer.recorder.function(function, (data, *args), {})


means(recurrent, torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


def foreach(tracer, function, *args, **kwargs):
    """An operator on lists, one tensor after the other if that can be."""
    name = function.__name__.removeprefix("_foreach_")
    for other, ours in ("maximum", "clamp_min"), ("minimum", "clamp_max"):
        name = name.replace(other, ours)  # it takes numbers, too
    home = torch.Tensor if name.endswith("_") else torch
    one = torch.linalg.vector_norm if name == "norm" else getattr(
        home, name, None)
    args = [tracer.unpacked(a) if k > 2 and torch.is_tensor(a) else a
            for k, a in enumerate(args)]  # the factors of addcdiv
    lists = [a for a in args if is_a(a, (list, tuple))]
    if one is None or len({*map(len, lists)}) != 1:
        return tracer.recorder.function(function, args, kwargs)
    made = []
    for each in zip(*(a if is_a(a, (list, tuple))
                      else itertools.repeat(a) for a in args)):
        factor = {"value": each[3]} if len(each) > 3 else {}  # of addcdiv
        made.append(tracer.call(one, each[:3], kwargs | factor))
    if name.endswith("_"):
        return args[0] if RETURNS_ITS_LIST else None
    return tuple(made)


#: Whether an operator that writes to a list returns it, in this torch.
RETURNS_ITS_LIST = torch._foreach_neg_([torch.zeros(1)]) is not None

def scaled_product(tracer, function, *args, **kwargs):
    """`x.addcdiv_(a, b, value=v)` and its like, where v may be a tensor."""
    name, value = function.__name__, kwargs.get("value")
    if not isinstance(value, torch.Tensor) or len(args) != 3:
        return tracer.recorder.method(name, args, kwargs)
    owner, one, other = args
    return tracer.recorder.method(name, (
        owner, tracer.binary(operator.mul, value, one), other), {})


means(foreach, *(getattr(torch, name) for name in dir(torch)
                 if name.startswith("_foreach_")))
means(scaled_product, torch.Tensor.addcmul, torch.Tensor.addcmul_,
      torch.Tensor.addcdiv, torch.Tensor.addcdiv_)

# Optimizers


@rule(("torch.optim.optimizer", "_get_value"))
def counted(tracer, number):
    """An optimizer's step, as precise as the float it is to eager.

    It is a float32, which has too few digits for `1 - beta ** step`.
    """
    if not torch.is_tensor(number) or not number.is_cpu:
        return number
    return tracer.recorder.method("double", (number,), {})


#: Updates that ask for a number of each parameter, to decide by it.
ASKING_UPDATES = {"adafactor", "asgd", "radam"}


@rule(("torch.optim.optimizer", "_disable_dynamo_if_unsupported.<locals>."
       "wrapper.<locals>.maybe_fallback"))
def updated(function, tracer, *args, **kwargs):
    """An optimizer's update, in one break if it would have many."""
    name = function.__name__
    if name in ASKING_UPDATES and not kwargs.get("capturable"):
        raise unsupported("data-dependent", f"torch.optim's {name}")
    return begin(tracer, function, args, kwargs)
