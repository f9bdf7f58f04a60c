"""Torch's switches while tracing: read, turned as eager would, put back.

In: nothing. Out: the GlobalState a trace starts from, for its "state"
guard. While a trace runs, a switch it turns is really turned, so fake
operators see it; `kept` undoes that. PyTorch's is
torch/_dynamo/utils.py (preserve_rng_state and its like).
"""

from __future__ import annotations

import contextlib

import torch

from ..core.guard import GlobalState


def autocast() -> tuple[tuple[str, torch.dtype], ...]:
    """The device types under autocast, each with its dtype."""
    if not torch._C._is_any_autocast_enabled():
        return ()
    kinds = {"cpu", torch._C._get_accelerator().type}
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in
                 sorted(kinds) if torch.is_autocast_enabled(kind))


def current_state() -> GlobalState:
    """What torch's switches are now, in this thread."""
    return GlobalState(
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        autocast(), torch.get_default_dtype(),
        torch._C._get_deterministic_algorithms())


@contextlib.contextmanager
def kept():
    """Put the switches back as they were."""
    grad = torch.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        for kind in {"cpu", torch._C._get_accelerator().type}:
            stack.callback(torch.set_autocast_enabled, kind,
                           torch.is_autocast_enabled(kind))
            stack.callback(torch.set_autocast_dtype, kind,
                           torch.get_autocast_dtype(kind))
        stack.callback(torch.set_autocast_cache_enabled,
                       torch.is_autocast_cache_enabled())
        stack.callback(torch._C._set_grad_enabled, grad)
        if torch.is_inference_mode_enabled():  # it hides what is written
            stack.enter_context(torch.inference_mode(False))
            torch._C._set_grad_enabled(False)
        yield
