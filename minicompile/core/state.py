"""Torch's global switches: how to read them and how to put them back.

In: nothing. Out: the global state of this thread, now; and a context that
puts the switches back. An operator gives other results under another
default dtype, under autocast or without gradients, though its arguments
are the same. PyTorch's counterpart is GLOBAL_STATE in
torch/csrc/dynamo/guards.cpp.
"""

import contextlib
from collections.abc import Callable, Iterable

import torch
from torch.autograd import forward_ad
from torch.overrides import _pop_mode, _push_mode
from torch.utils._device import DeviceContext


def autocast() -> tuple[tuple[str, torch.dtype], ...]:
    """The device types under autocast, each with its dtype."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    kinds = {"cpu", torch._C._get_accelerator().type}
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind
                 in sorted(kinds) if torch.is_autocast_enabled(kind))


def function_modes() -> tuple[torch.device | str, ...] | None:
    """The modes that see each call of torch's functions, if any, the last
    one first: default devices, or the names of others."""
    if not torch._C._is_torch_function_mode_enabled():
        return None
    modes = map(torch._C._get_function_stack_at,
                range(torch._C._len_torch_function_stack()))
    return tuple(mode.device if type(mode) is DeviceContext
                 else type(mode).__name__ for mode in modes)


#: The switches that change what an operator does, and what reads each.
SWITCHES: dict[str, Callable[[], object]] = {
    "gradient mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast": autocast,
    "the default dtype": torch.get_default_dtype,
    "the default device or function mode": function_modes,
    "use_deterministic_algorithms": torch._C._get_deterministic_algorithms}


def is_forward_ad_active() -> bool:
    """Whether the program is inside a forward_ad.dual_level."""
    return forward_ad._current_level >= 0


#: Modes that a compiled graph would bypass: it never runs under them.
NEVER_ACTIVE: dict[str, Callable[[], object]] = {
    "a torch.func transform": torch._C._are_functorch_transforms_active,
    "a torch dispatch mode": torch._C._len_torch_dispatch_stack,
    "torch.jit.trace": torch._C._is_tracing,
    "forward-mode AD": is_forward_ad_active}


def global_state() -> tuple:
    """The values of torch's SWITCHES now, in this thread."""
    return tuple([read() for read in SWITCHES.values()])


def eager_is_watched() -> bool:
    """Whether someone records or transforms the operators of eager."""
    return torch.compiler.is_compiling() or str in map(
        type, function_modes() or ()) or any(
            active() for active in NEVER_ACTIVE.values())


def set_default_devices(devices: tuple[torch.device, ...] | None) -> None:
    """Enter or leave as many as it takes."""
    now, wanted = len(function_modes() or ()), devices or ()
    for _ in range(now - len(wanted)):
        _pop_mode()
    for device in wanted[now:]:
        _push_mode(DeviceContext(device))


#: The setter of each switch that a trace may turn, with the arguments
#: that the setter and the reader share -> the reader.
KEPT: dict[tuple, Callable[..., object]] = {
    (torch._C._set_grad_enabled,): torch.is_grad_enabled,
    (set_default_devices,): function_modes,
    (torch.set_autocast_cache_enabled,): torch.is_autocast_cache_enabled}


def settings() -> list[tuple]:
    """The setter of each switch, and the arguments that set it as now."""
    return [(*switch, read(*switch[1:])) for switch, read in KEPT.items()]


@contextlib.contextmanager
def kept(meanwhile: Iterable[tuple] = ()):
    """Put the switches back as they were; other settings may hold first."""
    before = settings()
    try:
        for turn, *how in meanwhile:
            turn(*how)
        yield
    finally:
        for turn, *how in before:
            turn(*how)


def turns(target: object) -> bool:
    """Whether a call of `target` turns a switch."""
    return target in next(zip(*KEPT))
