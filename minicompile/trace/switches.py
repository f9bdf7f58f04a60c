"""Torch's switches while tracing: turned as eager would, put back.

In: nothing. Out: a context in which a trace may turn them. A switch that
the program turns is really turned, so fake operators see it; `kept`
undoes that. PyTorch's is torch/_dynamo/utils.py (preserve_rng_state and
its like).
"""

from __future__ import annotations

import contextlib

import torch


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
        stack.callback(leave_autocast,
                       torch.autocast_increment_nesting() - 1)
        torch.autocast_decrement_nesting()
        stack.callback(torch._C._set_grad_enabled, grad)
        if torch.is_inference_mode_enabled():  # it hides what is written
            stack.enter_context(torch.inference_mode(False))
            torch._C._set_grad_enabled(False)
        yield


def leave_autocast(depth: int) -> None:
    """Forget regions of autocast entered since they were `depth` deep.

    The casts that they keep are forgotten when the last one is left.
    """
    torch.autocast_increment_nesting()
    while torch.autocast_decrement_nesting() > depth:
        pass
    if not depth:
        torch.clear_autocast_cache()
