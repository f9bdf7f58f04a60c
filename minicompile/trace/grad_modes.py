"""Torch's switches while tracing: turned as eager would, put back.

In: nothing, or what a switch is to be. Out: a switch turned, now and by a
node of the graph; and contexts that undo it. A switch that the program
turns is really turned, so fake operators see it. PyTorch's is
torch/_dynamo/utils.py (preserve_rng_state and its like).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

#: The kinds of devices that programs name in autocast.
_KINDS = {"cpu", "cuda", torch._C._get_accelerator().type}


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


def autocast(kind: str) -> tuple:
    """What turn_autocast sets, as it is now."""
    return (kind, torch.get_autocast_dtype(kind),
            torch.is_autocast_enabled(kind),
            torch.is_autocast_cache_enabled())


def _depth() -> int:
    """How many regions of autocast we are in."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


@contextlib.contextmanager
def autocast_kept():
    """Put autocast back as it was."""
    before, depth = [*map(autocast, _KINDS)], _depth()
    try:
        yield
    finally:
        turn_autocast(*before[0], depth - _depth())
        for each in before[1:]:
            turn_autocast(*each, 0)


#: What turns switches, and what puts them back as they were.
KEPT: dict[Callable, Callable] = {turn_autocast: autocast_kept}


@contextlib.contextmanager
def kept():
    """Put the switches back as they were."""
    grad = torch.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        for keep in KEPT.values():
            stack.enter_context(keep())
        stack.callback(torch._C._set_grad_enabled, grad)
        if torch.is_inference_mode_enabled():  # it hides what is written
            stack.enter_context(torch.inference_mode(False))
            torch._C._set_grad_enabled(False)
        yield
