"""The cost of an ATen op in seconds: one table for the whole compiler.

In: an FX node with fake values. Out: an estimate, by the roofline: the
longer of the time to move its bytes and the time to do its arithmetic,
plus a launch. An op without a price is never free: it is charged its
bytes many times over, and `is_priced` says so. PyTorch's are
torch/utils/flop_counter.py and torch/_inductor/analysis/device_info.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from .graph import (holds_graphs, is_number, nbytes, operators, tensors_of,
                    value)
from .sizes import hint

aten = torch.ops.aten


@dataclass(frozen=True)
class Machine:
    """A device's work in one second, and the time to start a kernel."""

    bandwidth: float  # bytes moved
    arithmetic: dict[torch.dtype, float]  # operations of a matmul
    launch: float  # seconds


#: One H200 as measured in this book; one core's share of a CPU.
MACHINES = {
    "cuda": Machine(4.2e12, {torch.bfloat16: 7.8e14, torch.float16: 7.8e14,
                             torch.float32: 5e13, torch.float64: 3e13},
                    2e-6),
    "cpu": Machine(1.2e10, {torch.float32: 1e11, torch.float64: 5e10,
                            torch.bfloat16: 2e10, torch.float16: 2e10},
                   1e-6),
}

#: The factor by which an op in no table is slower than its bytes.
UNKNOWN = 8.0


def machine_of(node: fx.Node) -> Machine:
    """The machine a node runs on."""
    for tensor in tensors_of(value(node)):
        return MACHINES.get(tensor.device.type, MACHINES["cpu"])
    return MACHINES["cpu"]


def seconds(node: fx.Node) -> float:
    """The time of the node run by itself, memory to memory."""
    if is_free(node):
        return 0.0
    machine, made = machine_of(node), tensors_of(value(node))
    read = sum(nbytes(tensor) for source in node.all_input_nodes
               for tensor in tensors_of(value(source)))
    moving = (read + sum(map(nbytes, made))) / machine.bandwidth
    speed = machine.arithmetic.get(made[0].dtype if made else None,
                                   min(machine.arithmetic.values()))
    if not is_priced(node):
        moving *= UNKNOWN
    return machine.launch + max(moving, flops(node) / speed)


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


def is_foreign(op: object) -> bool:
    """Whether the op is neither PyTorch's nor ours."""
    return getattr(op, "namespace", "aten") not in (
        "aten", "prims", "minicompile")


def is_opaque(node: fx.Node) -> bool:
    """Whether the node's cost and its side effects are unknown."""
    return is_foreign(node.target) and not is_priced(node)


#: Ops that PyTorch does not count, each with one that computes as much.
COUNTED_AS = {
    aten._int_mm: aten.mm,
    aten._scaled_dot_product_flash_attention_for_cpu:
        aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward:
        aten._scaled_dot_product_flash_attention_backward}

#: Ops without a tag that loops express all the same.
LIKE_POINTWISE = {op for name in """_to_copy copy cat constant_pad_nd
    embedding gather index index_select select_scatter slice_scatter
    diagonal_scatter flip roll repeat tril triu full full_like arange
    scalar_tensor empty empty_strided empty_like eye linspace""".split()
    for op in operators(name)}
#: Ops that fold elements, where an older torch does not tag them so.
FOLDS = {op for name in """sum mean amax amin prod any all argmax argmin
    var var_mean""".split() for op in operators(name)}
#: Ops that no loop expresses and whose time is that of their bytes.
COPYING = {op for name in """scatter scatter_add index_put index_add
    index_copy as_strided_scatter embedding_dense_backward mv""".split()
    for op in operators(name)}


def is_pointwise(op: object) -> bool:
    """Whether each element of the result needs a few elements read."""
    return op in LIKE_POINTWISE or (
        torch.Tag.pointwise in getattr(op, "tags", ()))


def is_reduction(op: object) -> bool:
    """Whether the op folds elements into fewer."""
    tag = getattr(torch.Tag, "reduction", None)
    return op in FOLDS or tag in getattr(op, "tags", ())


def is_free(node: fx.Node) -> bool:
    """Whether the node moves nothing: inputs, numbers, views, parts."""
    computes = isinstance(node.target, torch._ops.OpOverload) or (
        holds_graphs(node.target))
    return node.op != "call_function" or is_number(node) or (
        not computes or getattr(node.target, "is_view", False))


def is_priced(node: fx.Node) -> bool:
    """Whether some table says what the node costs."""
    return (is_loop(node) or node.target in COPYING
            or work_of(node.target) is not None)


def is_loop(node: fx.Node) -> bool:
    """Whether chapter 4 expresses the node as a loop."""
    return is_pointwise(node.target) or is_reduction(node.target)


def is_kernel_of_its_own(node: fx.Node) -> bool:
    """Whether the node runs as the ATen op, memory to memory."""
    return not is_free(node) and not is_loop(node)
