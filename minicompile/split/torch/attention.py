"""Attention that is written in parts, or has a mask that hides nothing.

In: calls of a torch-level graph while it is recorded. Out: calls of
PyTorch's attention. Its kernels keep the weights of a few rows and never
write them to memory. That pays if rows are long, and nothing masks them:
with a mask our own softmax, between two products, takes less time. Without
this file attention is recorded as it is written. PyTorch's patterns are in
torch/_inductor/fx_passes/fuse_attention.py.
"""

from __future__ import annotations

from math import inf

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional as F

from ...core.errors import BackendError
from ...core.graph import tensors_of
from ..record import CALLS, INSTEAD, Player
from ..recorder import RecordingMode, aten, unwrapped

#: How many weights a row has at least for one call to be faster, by the
#: type of the device; of which numbers, and how many a query may have.
LONG, NUMBERS = {"cuda": 256}, {torch.float16, torch.bfloat16}
WIDEST = 256
PRODUCTS = "matmul", "bmm"
#: Operators that only choose among the elements of their first operand.
SAME_ELEMENTS = (aten.expand, aten.unsqueeze, aten.slice, aten.select,
                 aten.permute, aten.index, aten.clone)


def name_of(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    return getattr(node.target, "__name__", node.target)


def inside(node: object, *names: str) -> tuple:
    """The arguments of a call, if its name is one of these and only one
    other call reads its result; else nothing."""
    if not isinstance(node, fx.Node) or len(node.users) != 1 or (
            name_of(node) not in names):
        return ()
    return *node.args, *node.kwargs.values()


def in_parts(player: Player, node: fx.Node) -> torch.Tensor | None:
    """`softmax(query @ key * scale) @ value` as one call, or None.

    The nodes recorded for its parts are dead then. Weights and scores may
    be converted to other floats on the way, as the one kernel does.
    """
    def uncast(part: object) -> object:
        given = inside(part, "to", "float", "type_as")
        return uncast(given[0]) if given and (
            player.env[part].is_floating_point()) else part

    if name_of(node) not in PRODUCTS or node.kwargs or len(node.args) != 2:
        return None
    weights, value = node.args
    scores, *along = inside(uncast(weights), "softmax") or [None]
    scores, scale = uncast(scores), 1.0
    for name, sign in ("mul", 1), ("div", -1), ("truediv", -1):
        match inside(scores, name):
            case part, int() | float() as number if number:
                scores, scale = uncast(part), number ** sign
    parts = tensors_of([player.env.get(each) for each in (
        *inside(scores, *PRODUCTS), value)])
    if len(parts) != 3 or not pays(*parts) or along[:1] not in (
            [-1], [parts[0].dim() - 1]):
        return None
    query, key, value = (each if each.dim() == 4 else each.unsqueeze(0)
                         for each in parts)
    made = F.scaled_dot_product_attention(
        query, key.transpose(-1, -2), value, scale=scale)
    return made.clone(memory_format=torch.contiguous_format).reshape(
        parts[0].shape)


def pays(*parts: torch.Tensor) -> bool:
    """Whether one call takes less time than these parts.

    A part that is ever written to may have had another value in them.
    """
    query, _, value = parts
    device, dtype, width = value.device, value.dtype, value.shape[-1]
    if torch.is_autocast_enabled(device.type) and dtype is torch.float32:
        dtype = torch.get_autocast_dtype(device.type)
    alike = all(
        each.device == device and each.dtype is value.dtype
        and each.dim() == value.dim() and not each._version
        for each in parts)
    return alike and dtype in NUMBERS and value.dim() in (3, 4) and all(
        map(statically_known_true, (
            value.shape[-2] >= LONG.get(device.type, inf),
            width <= WIDEST, width % 8 == 0, query.shape[-1] == width,
            *(one == two for each in parts for one, two in zip(
                each.shape[:-2], value.shape)))))


def attention(recorder: RecordingMode, query, key, value, attn_mask=None,
              *given, **named):
    """Attention, without a mask that is known to hold everywhere.

    Libraries make such a mask only while they are compiled, and many
    kernels of attention take none.
    """
    weights = *query.shape[:-1], key.shape[-2]
    if attn_mask is not None and (
            torch.broadcast_shapes(attn_mask.shape, weights) != weights):
        raise BackendError("a mask is larger than the weights it masks")
    if attn_mask is not None and attn_mask.dtype is torch.bool and (
            lowest(recorder.known(unwrapped(attn_mask))) >= 1):
        attn_mask = None
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, *given, **named)


def lowest(node: fx.Node | float) -> float:
    """No element of the node's value is below this; -inf if unknown."""
    if not isinstance(node, fx.Node):
        return node if isinstance(node, int) else -inf
    op, args = getattr(node.target, "overloadpacket", None), node.args
    if op in SAME_ELEMENTS:
        return lowest(args[0])
    if op is aten.arange:
        start, _, step = args if len(args) == 3 else (*args, None, 1)[:3]
        return 0 if len(args) == 1 else min(
            lowest(start), inf * lowest(step))
    if op is aten.full:
        return lowest(args[1])
    if op is aten.ge:
        least = args[1]
        return isinstance(least, int) and lowest(args[0]) >= least
    if op is aten.add and not node.kwargs and (
            node.meta["val"].dtype is torch.int64):
        return lowest(args[0]) + lowest(args[1])
    if op in (aten.bitwise_and, aten.logical_and) and (
            node.meta["val"].dtype is torch.bool):
        return min(lowest(args[0]) > 0, lowest(args[1]) > 0)
    return -inf


CALLS[F.scaled_dot_product_attention] = attention
INSTEAD.append(in_parts)
