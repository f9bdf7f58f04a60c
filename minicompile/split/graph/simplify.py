"""Small clean-ups of the joint graph, each true for any functional graph.

In and out: an FX graph; the input is left alone. One walk copies the graph
and asks of each node: does it do nothing, was it computed before? What is
dead by then is dropped. The node that makes the memory of a result stays
as it is: results that eager keeps apart are never merged. PyTorch's are
in torch/_functorch/compile_utils.py and torch/_inductor/fx_passes.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...core.graph import has_effect, results, value
from ..joint import root
from ..record import PASSES, without_dead

aten = torch.ops.aten


def simplify(raw: fx.Graph, mode: FakeTensorMode,
             forward_outputs: int) -> fx.Graph:
    """The joint graph without dead, idle and repeated work."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    computed: dict[tuple, fx.Node] = {}
    pinned = {root(node) for node in results(raw)[:forward_outputs]}
    for node in raw.nodes:
        copied = graph.node_copy(node, copies.__getitem__)
        earlier = None if node in pinned else (
            idle(copied) or repeated(copied, computed))
        if earlier is not None:
            graph.erase_node(copied)
        copies[node] = copied if earlier is None else earlier
    return without_dead(graph)


def idle(node: fx.Node) -> fx.Node | None:
    """The node that this one returns unchanged, or None."""
    rule = IDLE.get(node.target)
    source = rule(node) if rule else None
    return source if isinstance(source, fx.Node) and _alike(
        node, source) else None


def _alike(node: fx.Node, source: fx.Node) -> bool:
    """Whether two nodes hold tensors of one shape, layout and dtype.

    Symbolic sizes that merely happen to be equal do not count.
    """
    one, two = value(node), value(source)
    return (one.dtype == two.dtype and one.device == two.device
            and one.dim() == two.dim() and all(
                a is b or statically_known_true(a == b) for a, b in
                zip((*one.shape, *one.stride()),
                    (*two.shape, *two.stride()))))


def _first(node: fx.Node) -> fx.Node:
    """The first argument."""
    return node.args[0]


def _read_back(node: fx.Node) -> fx.Node | None:
    """What was just written there, as in `select(select_scatter(a, b))`."""
    written = node.args[0]
    scatter = SCATTER.get(node.target)
    same = (written.op == "call_function" and written.target == scatter
            and written.args[2:] == node.args[1:]
            and written.kwargs == node.kwargs)
    return written.args[1] if same else None


def _unstacked(node: fx.Node) -> fx.Node | None:
    """What was stacked there, as in `unbind(stack([a, b]))[1]`."""
    parts, place = node.args
    if parts.target is not aten.unbind.int:
        return None
    stack, *dim = parts.args
    same = stack.target is aten.stack.default and stack.args[1:] == (*dim,)
    return stack.args[0][place] if same else None


#: Each reading view with the op that writes through it.
SCATTER = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}

#: Ops that may do nothing, and what they then return.
IDLE = {
    aten.clone.default: _first, aten._to_copy.default: _first,
    aten.view.default: _first, aten.expand.default: _first,
    aten.permute.default: _first,
    aten.copy.default: lambda node: node.args[1],
    aten.slice_scatter.default: lambda node: node.args[1],
    **dict.fromkeys(SCATTER, _read_back), operator.getitem: _unstacked,
}
IDLE[aten.slice.Tensor] = lambda node: _read_back(node) or _first(node)


def repeated(node: fx.Node, computed: dict) -> fx.Node | None:
    """The earlier node that computes the same, or None."""
    if node.op != "call_function" or has_effect(node):
        return None
    key = node.target, repr((node.args, node.kwargs))  # tells 0.0 from -0.0
    earlier = computed.setdefault(key, node)
    return earlier if earlier is not node else None


PASSES.insert(0, simplify)
