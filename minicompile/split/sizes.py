"""Symbolic sizes as nodes of the joint graph, and at run time as ints.

In: SymInts. Out: nodes that compute them from the inputs that are
symbols, each written down when an operator first needs it. PyTorch
records what made them, in torch/fx/experimental/proxy_tensor.py.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from ..core.errors import BackendError
from ..core.graph import value
from ..core.sizes import SYMBOLIC, computed
from .joint import Joint


def written(graph: fx.Graph, known: dict[Expr, fx.Node], number) -> object:
    """The number as a node of `graph`; or what it is, if it is constant.

    `known` are the nodes there are, by formula; each symbol needs one.
    """
    formula = number.node.expr
    if not formula.free_symbols:
        return number.node.pytype(formula)
    if not formula.free_symbols <= known.keys():
        raise BackendError(f"a size ({formula}) is not decided by the sizes"
                           " of the inputs")
    if formula not in known:
        known[formula] = computed(graph, formula, known)
    return known[formula]


def at_run_time(joint: Joint, values: object) -> Callable[[list], object]:
    """A function from a call's inputs to `values`, sizes as plain ints."""
    graph = fx.Graph()
    copies = [graph.node_copy(primal) for primal in joint.primals]
    known = {value(node).node.expr: node for node in copies
             if isinstance(value(node), SYMBOLIC)}
    filled = tree_map_only(
        SYMBOLIC, lambda number: written(graph, known, number), values)
    if not any(isinstance(leaf, fx.Node) for leaf in tree_leaves(filled)):
        return lambda inputs: filled
    graph.output(filled)
    formulas = fx.GraphModule({}, graph).forward
    return lambda inputs: formulas(*inputs)
