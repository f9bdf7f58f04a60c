"""Nodes that compute an expression of symbolic sizes.

In: an expression of sympy's, and the nodes of its symbols. Out: a node for
each of its operations. Arithmetic on sizes is not recorded while it runs,
because a symbolic number knows its formula. The formula is written into a
graph once an operator needs the number. PyTorch records the arithmetic, in
torch/fx/experimental/proxy_tensor.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import torch
from sympy import Expr, Symbol
from torch import fx
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from ..errors import Where
from ..sizes import EXPRESSIONS


def formula(number) -> Expr:
    """The expression of a symbolic number.

    No equality replaces a float's symbols: 0.0 and -0.0 are equal.
    """
    expr = number.node.expr
    return number.node._expr if expr.free_symbols and isinstance(
        number, torch.SymFloat) else expr


def called(function: Callable) -> Callable:
    """The same as a function of proxies, which becomes a node."""
    return staticmethod(lambda x, *rest: x.tracer.create_proxy(
        "call_function", function, (x,), {}))


class Nodes(PythonReferenceAnalysis):
    """The meaning of each kind of expression on proxies."""

    int_truediv = staticmethod(operator.truediv)
    floor_to_int, ceil_to_int = called(math.floor), called(math.ceil)
    trunc_to_int, round_to_int = called(math.trunc), called(round)
    expr_cond_pair = staticmethod(lambda value, holds: (value, holds))
    piecewise = staticmethod(lambda first, last: torch.sym_ite(
        first[1], first[0], last[0]))


def computed(graph: fx.Graph, expr: Expr, nodes: dict[Symbol, fx.Node],
             where: Where | None = None) -> fx.Node:
    """A node that computes an expression of the symbols at `nodes`."""
    appending = fx.proxy.GraphAppendingTracer(graph)
    names = {symbol: fx.Proxy(node, appending)
             for symbol, node in nodes.items()}
    last = graph._root.prev
    node = sympy_interp(Nodes, names, expr).node
    while last is not node:
        last = last.next
        last.meta["where"] = where
        last.meta["val"] = last.target(*fx.map_arg(
            last.args, lambda node: node.meta["val"]))
    return node


EXPRESSIONS.append(computed)
