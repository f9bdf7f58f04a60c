"""Expressions of symbolic sizes, as Python: their text and their nodes.

In: an expression of sympy's. Out: its text; and for each of its
operations, a node of a graph that knows the symbols. Arithmetic on sizes
is not recorded while it runs, because a symbolic number knows its
formula. The formula is written into a graph once an operator needs the
number. PyTorch records the arithmetic, in
torch/fx/experimental/proxy_tensor.py.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import reduce
from types import SimpleNamespace

import torch
from sympy import Expr
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from ..sizes import EXPRESSIONS, Numbers


def text_of(expr: Expr) -> str:
    """The expression in Python; torch 2.11 writes NaN bare."""
    return re.sub(r"(?<!\.)\bnan\b", "math.nan",
                  PythonPrinter().doprint(expr))


def sizes_of(values: Iterable) -> ShapeEnv | None:
    """All that is known of sizes that vary, if some do."""
    return next((each.node.shape_env for each in values
                 if isinstance(each, (torch.SymInt, torch.SymFloat))), None)


def as_node(function: Callable) -> Callable:
    """The same as a function of proxies, which becomes a node."""
    return lambda x, *rest: x.tracer.create_proxy(
        "call_function", function, (x, *rest), {})


#: The functions in a text -> what they are to proxies.
ON_PROXIES = {
    "torch": torch, "round": as_node(round),
    "max": lambda *given: reduce(torch.sym_max, given),
    "min": lambda *given: reduce(torch.sym_min, given),
    "math": SimpleNamespace(
        floor=as_node(math.floor), ceil=as_node(math.ceil),
        trunc=as_node(math.trunc))}


def written_out(known: Numbers, expr: Expr) -> fx.Node:
    """A node that computes an expression of the symbols in `known`."""
    last = known.graph._root.prev
    appending = fx.proxy.GraphAppendingTracer(known.graph)
    node = eval(text_of(expr), ON_PROXIES | {
        str(symbol): fx.Proxy(known[symbol], appending)
        for symbol in expr.free_symbols}).node
    while last is not node:
        last = last.next
        last.meta["where"] = known.where()
        last.meta["val"] = last.target(*fx.map_arg(
            last.args, lambda node: node.meta["val"]))
    return node


EXPRESSIONS.append(written_out)
