"""Numbers that are not Python's own: symbolic sizes, and NumPy's.

In: `torch.SymInt`s, whose formulas PyTorch's ShapeEnv keeps. Out: their
values when they were traced, and nodes of a graph. A row of the reference
makes the nodes of an expression of several symbols. A NumPy number is a
constant, which operators treat as a Python number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import torch
from sympy import Expr
from torch import fx

from .errors import BackendError

#: The classes of NumPy's functions of numbers, such as `numpy.sqrt`.
UFUNCS = (numpy.ufunc,)

#: The class of a number of NumPy's -> what it is to an operator, whatever
#: its width; truths are floats.
SCALARS = {numpy.dtype(name).type: kind for kind, names in (
    (float, "float16 float32 float64 bool"),
    (int, "int8 int16 int32 int64 uint8 uint16 uint32"))
    for name in names.split()}

#: The stand-ins of numbers and truths that are not constants.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: What makes the node of an expression of symbols; the last is in use.
EXPRESSIONS: list[Callable] = []

#: Functions that may return their input, of which Python's form is a copy.
AS_IN_CPP = {"dropout"}


def hint(number):
    """The number, or a symbolic number's value when it was traced."""
    return number.node.hint if isinstance(number, SYMBOLIC) else number


def written(graph: fx.Graph, known: dict[Expr, fx.Node], number) -> object:
    """The number as a node of `graph`; or its value, if it is constant.

    `known` are the nodes there are, by formula; each symbol needs one.
    """
    expr = number.node.expr
    if not expr.free_symbols:
        return number.node.pytype(expr)
    if expr not in known:
        if not (EXPRESSIONS and expr.free_symbols <= known.keys()):
            raise BackendError(f"a size ({expr}) is not decided by the"
                               " sizes of the inputs")
        known[expr] = EXPRESSIONS[-1](graph, expr, known)
    return known[expr]
