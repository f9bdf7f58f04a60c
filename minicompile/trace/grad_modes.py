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

#: What turns switches, and what puts them back as they were.
KEPT: dict[Callable, Callable] = {}


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
