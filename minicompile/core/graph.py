"""Small questions about FX graphs, and a graph printed as Python.

FX is PyTorch's own graph container; we use it as it is. A node's
`meta["val"]` is the fake tensor it produces, `meta["where"]` the user's
line it came from, and `meta["of"]` the name of the traced node.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .sizes import SYMBOLIC, hint

#: A call on a list of inputs, which it may empty.
Boxed = Callable[[list], tuple]

#: Dtypes no fake tensor can have: it would be one of plain numbers.
QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2,
             torch.quint2x4}


def value(node: fx.Node):
    """The node's value at trace time: a fake tensor, a tuple, …"""
    return node.meta.get("val")


def reach(tensor: torch.Tensor) -> int:
    """How far the last element is from the first, in elements.

    -1 if two elements may be in one place.
    """
    last = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size > 1:
            if stride <= last:
                return -1
            last += stride * (size - 1)
    return last


def dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory, each place once."""
    return tensor.is_contiguous() or reach(tensor) + 1 == tensor.numel()


def row(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; if it is not in order, its memory as a single row."""
    if tensor.is_contiguous():
        return tensor
    span = 1 + sum((size - 1) * step for size, step in zip(
        tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,))


def holds_graphs(target: object) -> bool:
    """Whether a call of `target` runs graphs, as that of a cond does."""
    return hasattr(target, "graphs")


def is_number(node: fx.Node) -> bool:
    """Whether the node is a number, such as a symbolic size."""
    return isinstance(value(node), (int, float, *SYMBOLIC))


def nbytes(tensor: object) -> int:
    """Bytes of a (fake) tensor's elements; 0 for anything else."""
    if not isinstance(tensor, torch.Tensor):
        return 0
    return hint(tensor.numel()) * tensor.element_size()


def tensors_of(value: object) -> list[torch.Tensor]:
    """Every tensor in nested tuples, lists and dicts."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in tensors_of(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def boxed(graph: fx.GraphModule) -> Boxed:
    """The graph as a boxed call, without the hooks that all modules have.
    """
    def run(given: list) -> tuple:
        _LazyGraphModule.force_recompile(graph)
        return tuple(graph.forward(*given))
    return run


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The graph's inputs, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def results(graph: fx.Graph) -> tuple:
    """The graph's results, as a tuple of nodes and constants."""
    returned = graph.output_node().args[0]
    many = isinstance(returned, (tuple, list))
    return tuple(returned) if many else (returned,)


def operators(target) -> list[torch._ops.OpOverload]:
    """The ATen operators of an overload, of a packet of them, or a name."""
    if isinstance(target, torch._ops.OpOverload):
        return [target]
    packet = getattr(torch.ops.aten, target, None) if isinstance(
        target, str) else target
    found = [getattr(packet, name) for name in packet.overloads()] if (
        isinstance(packet, torch._ops.OpOverloadPacket)) else []
    return [op for op in found if torch._C._dispatch_has_kernel(op.name())]


@cache
def written_places(target) -> frozenset[int | str]:
    """The arguments that are written to, by position and by name."""
    return frozenset(["out"]).union(*(
        [argument.name, *[place] * (not argument.kwarg_only)]
        for op in operators(target) for place, argument
        in enumerate(op._schema.arguments) if argument.is_write
        and "Tensor" in str(argument.type)))


def written_by(target, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """The tensors that a call writes to, as its operator's schema says.

    A function of torch's is the operator of its name.
    """
    if not isinstance(target, (str, torch._ops.OpOverload,
                               torch._ops.OpOverloadPacket)):
        target = getattr(target, "__name__", "")
    given = {**dict(enumerate(args)), **kwargs}
    return tensors_of(list(map(given.get, written_places(target))))


def is_random(call) -> bool:
    """Whether a call, a node or a step, draws random numbers.

    Attention says that it may; with a dropout of zero it does not.
    """
    if torch.Tag.nondeterministic_seeded not in getattr(
            call.target, "tags", ()):
        return False
    names = [each.name for each in call.target._schema.arguments]
    given = {**dict(zip(names, call.args)), **call.kwargs}
    return "dropout_p" not in names or given.get("dropout_p", 0) != 0


#: The check of a graph's values, and how the message of one of ours begins.
CHECK, FAILED = torch.ops.aten._assert_async.msg, "a check failed: "


def has_effect(call) -> bool:
    """Whether a call matters even if its result is never read.

    A draw advances the generator, so that later draws equal eager's. A
    call that returns nothing writes or checks something. A choice of
    graphs may hold either.
    """
    schema = getattr(call.target, "_schema", None)
    inside = getattr(call.target, "graphs", ())
    return is_random(call) or schema is not None and (
        schema.is_mutable or not schema.returns) or any(
            has_effect(node) for graph in inside
            for node in graph.graph.nodes)


#: What prints a graph as a Python function of this name; the last one.
PRINTERS: list[Callable[[fx.GraphModule, str], str]] = [
    lambda graph, name: graph.code.replace("forward", name, 1).strip()]


def render(graph: fx.GraphModule, name: str = "forward") -> str:
    """The graph as a Python function."""
    return PRINTERS[-1](graph, name)
