"""Sizes that are symbols: numbers that know a formula, not a value.

In: `torch.SymInt`s, whose formulas PyTorch's ShapeEnv keeps. Out: nodes of
a graph that compute them, and what they were when they were traced. The
idea: arithmetic on sizes need not be recorded, its result knows what it
is. PyTorch records it, in torch/fx/experimental/proxy_tensor.py.
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

from .errors import BackendError, Where

#: The stand-ins of numbers and truths that are not constants.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: Functions that may return their input, of which Python's form is a copy.
AS_IN_CPP = {"dropout"}


def hint(number):
    """The number, or what a symbolic one was when it was traced."""
    return number.node.hint if isinstance(number, SYMBOLIC) else number


def formula(number) -> Expr:
    """What a symbolic number is made of.

    That a float is equal to another one does not give it its sign.
    """
    expr = number.node.expr
    return number.node._expr if expr.free_symbols and isinstance(
        number, torch.SymFloat) else expr


def called(function: Callable) -> Callable:
    """The same as a function of proxies, which becomes a node."""
    return staticmethod(lambda x, *rest: x.tracer.create_proxy(
        "call_function", function, (x,), {}))


class Nodes(PythonReferenceAnalysis):
    """What each kind of expression is, on proxies."""

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


def written(graph: fx.Graph, known: dict[Expr, fx.Node], number) -> object:
    """The number as a node of `graph`; or what it is, if it is constant.

    `known` are the nodes there are, by formula; each symbol needs one.
    """
    expr = number.node.expr
    if not expr.free_symbols:
        return number.node.pytype(expr)
    if not expr.free_symbols <= known.keys():
        raise BackendError(f"a size ({expr}) is not decided by the sizes"
                           " of the inputs")
    if expr not in known:
        known[expr] = computed(graph, expr, known)
    return known[expr]
