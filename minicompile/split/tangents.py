"""The backward of a call in which some results pass no gradient back.

In: a node of a backward, and the nodes that are absent, as they need none
of the tangents that come. Out: a copy of the node without them. The idea: a
tangent that does not come is nothing, rather than zeros, and so is what is
computed from it alone. This is what autograd does, which runs no step for
it: zero times infinity would be NaN. In PyTorch's
torch/_functorch/_aot_autograd/runtime_wrappers.py it is zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
from torch import fx

from ..core.graph import placeholders, value
from ..core.sizes import SYMBOLIC, Numbers

aten = torch.ops.aten


def copied_without(absent: Set[fx.Node], node: fx.Node, graph: fx.Graph,
                   copies: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """A copy of the node at the end of a graph that has no nodes for those
    `absent`: of a sum one term may be left, all else is given zeros."""
    given = node.all_input_nodes
    terms = [each for each in given if each not in absent]
    if node.target is aten.add.Tensor and len(terms) == 1 < len(given) and (
            form(terms[0]) == form(node)):
        return copies[terms[0]]
    return graph.node_copy(node, lambda each: zeros(graph, value(each))
                           if each in absent else copies[each])


def form(node: fx.Node) -> tuple[torch.Size, torch.dtype]:
    """The shape and the dtype of a node's tensor."""
    return value(node).shape, value(node).dtype


def zeros(graph: fx.Graph, like: torch.Tensor) -> fx.Node:
    """Zeros laid out as a fake tensor, at the end of the graph."""
    numbers = Numbers(graph)
    for node in placeholders(graph):
        numbers.given(node)
    empty = graph.call_function(aten.empty_strided.default, tuple(
        [numbers.written(each) if isinstance(each, SYMBOLIC) else each
         for each in measures] for measures in (like.shape, like.stride())),
        {"dtype": like.dtype, "device": like.device})
    made = graph.call_function(aten.full_like.default, (empty, 0))
    empty.meta["val"] = made.meta["val"] = like
    return made
