"""Checkpoints: what is inside is computed again, never saved.

In: a joint graph whose forward nodes know the user's checkpoint that they
are in. Out: the values that the cut must not save. Without this file the
cut saves them, if that is faster. PyTorch's is
torch/_functorch/partitioners.py:must_recompute.
"""

from __future__ import annotations

import torch
from torch import fx

from ...core.graph import has_effect
from ..joint import Joint, ancestors
from ..recompute_costs import HIDDEN
from ..record import HIGHER_ORDER
from ..recorder import Recorder


def inside(joint: Joint) -> set[fx.Node]:
    """The values inside the user's checkpoints.

    What the forward reads after a checkpoint is its result, and has a
    price like any other value. What only the backward computes from the
    inside is inside. A random draw is kept: it could not be repeated.
    """
    returned = [n for n in joint.outputs if isinstance(n, fx.Node)]
    forward, hidden = {*ancestors(returned, set())}, set()
    for node in joint.early:
        region = node.meta.get("recompute")
        if has_effect(node) or node in returned:
            continue
        users = [user for user in node.users if user in forward]
        if region is not None and all(
                user.meta.get("recompute") == region for user in users
                ) if node in forward else (
                    not hidden.isdisjoint(node.all_input_nodes)):
            hidden.add(node)
    return hidden


def checkpoint(recorder: Recorder, function, *args, **_) -> object:
    """The results of a checkpoint that Dynamo found, as one region."""
    recorder.region = object()
    return function(*args)


HIDDEN.append(inside)
HIGHER_ORDER[torch.ops.higher_order.tag_activation_checkpoint] = checkpoint
