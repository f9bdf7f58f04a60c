"""Tensors of a user's class: only their parts are recorded.

In: an operator on a tensor that was put together. Out: the operators on
plain tensors that its class runs instead. Without this file the graph runs
as it was traced. PyTorch's is
torch/_functorch/_aot_autograd/subclass_utils.py.
"""

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from ...core.errors import BackendError
from ...core.graph import tensors_of
from ...core.torch.subclasses import Together
from ..aliases import storage_of
from ..record import INSTEAD, Player
from ..recorder import CLASSES, RecordingMode, unwrapped


def put_together(player: Player, node: fx.Node) -> torch.Tensor | None:
    """The tensor that a node makes of its parts, which it only reads."""
    if not isinstance(node.target, Together):
        return None
    parts, _ = player.fetch_args_kwargs_from_env(node)
    values = [*map(unwrapped, parts)]
    player.recorder.lent |= zip(parts, map(storage_of, values))
    return node.target(*values)


def by_its_class(recorder: RecordingMode, op, types: tuple, args: tuple,
                 kwargs: dict):
    """The answer of a tensor's class. The recorder sees all it runs."""
    lent = recorder.lent
    if any(map(torch._functionalize_has_data_mutation, lent)):
        raise BackendError("a part of a tensor is written to")
    made = NotImplemented
    for kind in types:
        if made is NotImplemented and kind is not FakeTensor:
            with recorder:
                made = kind.__torch_dispatch__(op, types, args, kwargs)
    if any(type(each) is FakeTensor and storage_of(each) in lent.values()
           for each in tensors_of(made)):
        raise BackendError(f"{op} gives a part of a tensor")
    return made


INSTEAD.append(put_together)
CLASSES.append(by_its_class)
