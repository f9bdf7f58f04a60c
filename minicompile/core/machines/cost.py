"""The cost of an ATen op in seconds: one table for the whole compiler.

In: an FX node with fake values. Out: an estimate, by the roofline: the
longer of the time to move its bytes and the time to do its arithmetic,
plus a launch. An op without a price is never free: it is charged its
bytes many times over. PyTorch's are torch/utils/flop_counter.py and
torch/_inductor/analysis/device_info.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf

import torch
from torch import fx

from ..graph import (holds_graphs, is_number, nbytes, operators, tensors_of,
                     value)
from ..sizes import hint

aten = torch.ops.aten


@dataclass(frozen=True)
class Machine:
    """A device's work in one second, and the time to start a kernel."""

    bandwidth: float  # bytes moved
    arithmetic: dict[torch.dtype, float]  # operations of a matmul
    launch: float  # seconds


#: The dtypes of the matrix products that are timed, one for both halves.
TIMED = torch.bfloat16, torch.float32, torch.float64


def rated(bandwidth: float, halves: float, single: float, double: float,
          launch: float = 2e-6) -> Machine:
    """A machine by its work in tera-units, and the seconds of a launch.

    ValueError or TypeError if it is none.
    """
    row = [float(each) for each in (bandwidth, halves, single, double)]
    if not all(0 < each < inf for each in (*row, launch)):
        raise ValueError
    moved, *speeds = (1e12 * each for each in row)
    return Machine(moved, dict(zip((torch.float16, *TIMED), (
        speeds[0], *speeds))), float(launch))


#: By the name that a device's driver has for it, or by its type: one H200
#: as measured in this book, one core's share of a CPU. Terabytes a second;
#: teraflops in halves, float32 and float64.
MACHINES = {"cuda": rated(4.2, 780, 50, 30),
            "cpu": rated(0.012, 0.02, 0.1, 0.05, 1e-6)}

#: The types of devices whose kernels walk along rows in chunks, and how
#: many registers hold what is read and summed up of a row.
WALKING: dict[str, int] = {}

#: The factor by which an op in no table is slower than its bytes.
UNKNOWN = 8.0


@cache
def name_of(device: torch.device) -> str:
    """The name that a device's driver has for it, or else its type."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return device.type


def machine(device: torch.device) -> Machine:
    """The machine that a device is, or that is typical of its type."""
    return MACHINES.get(name_of(device)) or MACHINES.get(
        device.type, MACHINES["cpu"])


def machine_of(node: fx.Node) -> Machine:
    """The machine a node runs on."""
    for tensor in tensors_of(value(node)):
        return machine(tensor.device)
    return MACHINES["cpu"]


def seconds(node: fx.Node) -> float:
    """The time of the node run by itself, memory to memory."""
    if kind(node) == "free":
        return 0.0
    at, made = machine_of(node), tensors_of(value(node))
    read = sum(nbytes(tensor) for source in node.all_input_nodes
               for tensor in tensors_of(value(source)))
    moving = (read + sum(map(nbytes, made))) / at.bandwidth
    speed = at.arithmetic.get(made[0].dtype if made else None,
                              min(at.arithmetic.values()))
    if kind(node) == "unknown":
        moving *= UNKNOWN
    return at.launch + max(moving, flops(node) / speed)


def one_pass(node: fx.Node) -> float:
    """The time to read or write the node's value once."""
    return sum(map(nbytes, tensors_of(value(node)))) / (
        machine_of(node).bandwidth)


def flops(node: fx.Node) -> float:
    """Multiplications and additions of a matmul-like op; 0 for others."""
    formula = work_of(node.target)
    return float(hint(formula(
        *fx.node.map_arg(node.args, value), out_val=value(node),
        **fx.node.map_arg(node.kwargs, value)))) if formula else 0.0


def work_of(op: object) -> Callable[..., int] | None:
    """The formula for the op's arithmetic: PyTorch's, or its author's."""
    from torch.utils.flop_counter import flop_registry  # takes long
    packet = getattr(op, "overloadpacket", None)
    return flop_registry.get(COUNTED_AS.get(packet, packet))


#: Ops that PyTorch does not count, each with one that computes as much.
COUNTED_AS = {
    aten._int_mm: aten.mm,
    aten._scaled_dot_product_flash_attention_for_cpu:
        aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward:
        aten._scaled_dot_product_flash_attention_backward}

#: The kinds of ops that have no tag, or not in every torch.
OP_KINDS: dict[object, str] = {op: kind for kind, names in {
    "pointwise": """_to_copy copy cat constant_pad_nd embedding gather
        index index_select select_scatter slice_scatter diagonal_scatter
        flip roll repeat tril triu full full_like arange scalar_tensor
        empty empty_strided empty_like eye linspace""",
    "reduction": "sum mean amax amin prod any all argmax argmin var"
                 " std var_mean std_mean",
    "copying": """scatter scatter_add index_put index_add index_copy
        as_strided_scatter embedding_dense_backward mv""",
}.items() for name in names.split() for op in operators(name)}

#: The kinds of nodes that a loop of chapter 4 expresses.
LOOPS = ("pointwise", "reduction")
#: Those of nodes that run as the ATen op, memory to memory.
EXTERN = ("copying", "counted", "unknown")
TAGS = {getattr(torch.Tag, kind, None): kind for kind in LOOPS}


def kind(node: fx.Node) -> str:
    """How the node is run.

    "free" if it moves nothing: inputs, numbers, views, parts; one of
    LOOPS; "copying" if it takes the time of its bytes, "counted" if there
    is a formula for its arithmetic; else "unknown".
    """
    op = node.target
    computes = isinstance(op, torch._ops.OpOverload) or holds_graphs(op)
    if node.op != "call_function" or is_number(node) or (
            not computes or getattr(op, "is_view", False)):
        return "free"
    found = OP_KINDS.get(op) or next(filter(None, map(
        TAGS.get, getattr(op, "tags", ()))), None)
    return found or ("counted" if work_of(op) else "unknown")


def is_foreign(op: object) -> bool:
    """Whether the op is neither PyTorch's nor ours."""
    return getattr(op, "namespace", "aten") not in (
        "aten", "prims", "minicompile")


def is_opaque(node: fx.Node) -> bool:
    """Whether the node's cost and its side effects are unknown."""
    return kind(node) == "unknown" and is_foreign(node.target)
