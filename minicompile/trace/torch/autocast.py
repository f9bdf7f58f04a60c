"""torch.autocast: regions that the traced program enters and leaves.

In: an autocast object. Out: its switches turned, here and by a node of
the graph, and kept on the object as eager keeps them. PyTorch's is
torch/_dynamo/variables/ctx_manager.py:AutocastModeVariable.
"""

from __future__ import annotations

import contextlib

import torch

from .. import attributes
from ..grad_modes import KEPT
from ..rules import rule

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


def autocast_state(kind: str) -> tuple:
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
    before, depth = [*map(autocast_state, _KINDS)], _depth()
    try:
        yield
    finally:
        turn_autocast(*before[0], depth - _depth())
        for each in before[1:]:
            turn_autocast(*each, 0)


KEPT[turn_autocast] = autocast_kept


@rule(torch.autocast)
def _autocast(tracer, *args, **kwargs):
    return tracer.own(tracer.native(torch.autocast, args, kwargs))


@rule(torch.autocast.__enter__)
def _enter_autocast(tracer, manager):
    kind = attributes.load(tracer, manager, "device")
    for name, now in zip(_BEFORE[1:], autocast_state(kind)[1:]):
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
    before = autocast_state(settings[0])
    tracer.turn((turn_autocast, *settings, deeper),
                (turn_autocast, *before, -deeper))


#: Where a region keeps its settings, and those it was entered under.
_INSIDE = ("device", "fast_dtype", "_enabled", "_cache_enabled")
_BEFORE = ("device", "prev_fastdtype", "prev", "prev_cache_enabled")
