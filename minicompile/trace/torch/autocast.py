"""torch.autocast: regions that the traced program enters and leaves.

In: an autocast object. Out: its switches turned, here and by a node of
the graph, and kept on the object as eager keeps them. PyTorch's is
torch/_dynamo/variables/ctx_manager.py:AutocastModeVariable.
"""

from __future__ import annotations

import torch

from .. import attributes, grad_modes
from ..rules import rule


@rule(torch.autocast)
def _autocast(tracer, *args, **kwargs):
    return tracer.own(tracer.native(torch.autocast, args, kwargs))


@rule(torch.autocast.__enter__)
def _enter_autocast(tracer, manager):
    kind = attributes.load(tracer, manager, "device")
    for name, now in zip(_BEFORE[1:], grad_modes.autocast(kind)[1:]):
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
    before = grad_modes.autocast(settings[0])
    turn = grad_modes.turn_autocast
    tracer.turn((turn, *settings, deeper), (turn, *before, -deeper))


#: Where a region keeps its settings, and those it was entered under.
_INSIDE = ("device", "fast_dtype", "_enabled", "_cache_enabled")
_BEFORE = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")
