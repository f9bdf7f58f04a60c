"""Attention written in parts, with a needless mask, or with copied heads.

In: calls of a torch-level graph while it is recorded. Out: calls of
PyTorch's attention. Its kernels keep the weights of a few rows and never
write them to memory. That pays if rows are long, and nothing masks them:
with a mask our own softmax, between two products, takes less time. Keys and
values that serve several heads are read by all of them, where libraries
copy them for each head: a cache of 1024 words would become four. Without
this file attention is recorded as it is written. PyTorch's patterns are in
torch/_inductor/fx_passes/fuse_attention.py.
"""

from math import inf

import torch
from torch import fx
from torch._C._nn import scaled_dot_product_attention
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...core.errors import BackendError
from ...core.graph import is_random, tensors_of, value
from ..joint import ancestors
from ..record import CALLS, INSTEAD, Player
from ..recorder import RecordingMode, unwrapped
from .refused import eagerly

#: How many weights a row has at least for one call to be faster, by the
#: type of the device; of which numbers, and how many a query may have.
LONG, NUMBERS = {"cuda": 256}, {torch.float16, torch.bfloat16}
WIDEST = 256
PRODUCTS = "matmul", "bmm"
#: An index that adds a dimension for the copies of a head; and what may
#: stand between the copies and the call, since it writes to nothing.
ALL = slice(None)
COPIED = ALL, ALL, None, ALL, ALL
QUIET = "getitem", "expand", "reshape"
#: How many elements a mask has at most that is computed to look at it.
LARGEST_MASK = 2 ** 26


def name_of(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    return getattr(node.target, "__name__", node.target)


def arguments_of(node: object, *names: str) -> tuple:
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
        given = arguments_of(part, "to", "float", "type_as")
        return uncast(given[0]) if given and (
            player.env[part].is_floating_point()) else part

    if name_of(node) not in PRODUCTS or node.kwargs or len(node.args) != 2:
        return None
    weights, value = node.args
    scores, *along = arguments_of(uncast(weights), "softmax") or [None]
    scores, scale = uncast(scores), 1.0
    for name, sign in ("mul", 1), ("div", -1), ("truediv", -1):
        match arguments_of(scores, name):
            case part, int() | float() as number if number:
                scores, scale = uncast(part), number ** sign
    parts = tensors_of([player.env.get(each) for each in (
        *arguments_of(scores, *PRODUCTS), value)])
    if len(parts) != 3 or not pays(*parts) or along[:1] not in (
            [-1], [parts[0].dim() - 1]):
        return None
    query, key, value = (each if each.dim() == 4 else each.unsqueeze(0)
                         for each in parts)
    made = scaled_dot_product_attention(
        query, key.transpose(-1, -2), value, scale=scale)
    if made.is_contiguous() and made.shape == parts[0].shape:
        return made
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
              dropout_p=0.0, is_causal=False, **named):
    """Attention, without a mask that PyTorch's kernels need not read.

    That is one that hides nothing, or what is_causal hides. Libraries make
    it only while they are compiled. Where random numbers are to be eager's
    it stays: another kernel draws others.
    """
    weights = *query.shape[:-1], key.shape[-2]
    if attn_mask is not None and (
            torch.broadcast_shapes(attn_mask.shape, weights) != weights):
        raise BackendError("a mask is larger than the weights it masks")
    if attn_mask is not None and not is_causal and (
            recorder.seeded or not dropout_p):
        node = recorder.known(unwrapped(attn_mask))
        hides = node.meta.get("hidden") or node.meta.setdefault(
            "hidden", hidden(node))
        whole = (one == two for one, two in zip(
            attn_mask.shape[-2:], weights[-2:]))
        if hides == "nothing" or hides == "future" and all(
                map(statically_known_true, whole)):
            attn_mask, is_causal = None, hides == "future"
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, **named)


@eagerly()
def hidden(mask: fx.Node) -> str:
    """The places that a mask hides: "nothing", "future", or "unknown"."""
    held = constant(mask)
    if held is None:
        return "unknown"
    if held.dtype is not torch.bool:
        shown = held == 0
        if not (shown | (held <= torch.finfo(held.dtype).min)).all():
            return "unknown"
        held = shown
    if held.all():
        return "nothing"
    causal = held.dim() > 1 and held.equal(torch.ones_like(held).tril())
    return "future" if causal else "unknown"


def constant(node: fx.Node) -> torch.Tensor | None:
    """The value of a node that no input reaches, computed on the CPU.

    None for any other, or if one of its parts is large.
    """
    known = dict.fromkeys(ancestors([node], ()))
    if any(each.op != "call_function" or is_random(each) or not all(
            statically_known_true(part.numel() <= LARGEST_MASK)
            for part in tensors_of(value(each))) for each in known):
        return None
    for each in known:
        args, kwargs = fx.map_arg((each.args, each.kwargs), known.get)
        if "device" in kwargs:
            kwargs = kwargs | {"device": "cpu"}
        known[each] = each.target(*args, **kwargs)
    return known[node]


def grouped(player: Player, node: fx.Node) -> torch.Tensor | None:
    """Attention whose keys and values are copied for several heads, as a
    call that reads them where they lie, if PyTorch has a kernel for that.

    None for any other. None also where gradients are asked for: they would
    be laid out otherwise. The nodes of the way not taken are dead.
    """
    if node.target is not scaled_dot_product_attention:
        return None
    heads = [heads_of(player, each, node) for each in node.args[1:3]]
    args, kwargs = player.fetch_args_kwargs_from_env(node)
    if len(heads) < 2 or any(args[4:5]) or kwargs.get("dropout_p") or any(
            each is None or each.requires_grad
            for each in (args[0], *heads)):
        return None
    recorder = player.recorder
    plain = attention(recorder, *args, **kwargs)
    before = len(recorder.graph.nodes)
    made = attention(recorder, args[0], *heads, *args[3:], enable_gqa=True,
                     **kwargs)
    is_one = any("_scaled_dot_product" in node.name
                 for node in [*recorder.graph.nodes][before:])
    if made.stride() != plain.stride():
        made = made.contiguous()
    return made if is_one and made.stride() == plain.stride() else plain


def heads_of(player: Player, node: fx.Node, call: fx.Node
             ) -> torch.Tensor | None:
    """The tensor whose heads a node repeats for a call; None if that is not
    all it does, or something could write to it before the call."""
    between, whole = call.prev, player.env[node]
    while between is not node and name_of(between) in QUIET:
        between = between.prev
    part, *_ = arguments_of(node, "reshape") or [None]
    part, *_ = arguments_of(part, "expand") or [None]
    given, at = arguments_of(part, "getitem") or (None, None)
    if between is not node or at != COPIED:
        return None
    heads = player.env[given]
    alike = (heads.shape[0], *heads.shape[2:]) == (
        whole.shape[0], *whole.shape[2:])
    return heads if alike else None


CALLS[scaled_dot_product_attention] = attention
INSTEAD.extend((in_parts, grouped))
