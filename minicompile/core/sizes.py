"""Numbers that are not Python's own: symbolic sizes, and NumPy's.

In: `torch.SymInt`s, whose formulas PyTorch's ShapeEnv keeps. Out: their
values when they were traced, and nodes of a graph. A row of the reference
makes the nodes of an expression of several symbols. A NumPy number is a
constant, which operators treat as a Python number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy
import torch
from sympy import Expr
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from .errors import BackendError

#: The class of a number of NumPy's -> what it is to an operator, whatever
#: its width; truths are floats.
SCALARS = {numpy.dtype(name).type: kind for kind, names in (
    (float, "float16 float32 float64 bool"),
    (int, "int8 int16 int32 int64 uint8 uint16 uint32"))
    for name in names.split()}

#: The stand-ins of numbers and truths that are not constants.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: What adds the node of an expression of symbols; the last is in use.
EXPRESSIONS: list[Callable[[Numbers, Expr], fx.Node]] = []

#: Functions of which Python's form is another: a copy, where C++ may return
#: the input; a loss that counts what follows the -1 behind the labels; a
#: formula for integers, too.
AS_IN_CPP = {"dropout", "multilabel_margin_loss",
             "multilabel_margin_loss_forward", "hardshrink", "softshrink"}


def python_forms(needed: object, name: str = "") -> AbstractContextManager:
    """A context of Python's forms of operators, which symbols need."""
    return enable_python_dispatcher() if needed and (
        name not in AS_IN_CPP) else nullcontext()


def hint(number):
    """The number, or a symbolic number's value when it was traced."""
    return number.node.hint if isinstance(number, SYMBOLIC) else number


def formula(number) -> Expr:
    """The expression of a symbolic number.

    No equality replaces a float that varies: 0.0 and -0.0 are equal.
    """
    expr = number.node._expr
    return expr if expr.is_Symbol and isinstance(
        number, torch.SymFloat) else number.node.expr


class Numbers(dict[Expr, fx.Node]):
    """The nodes of a graph that are numbers, by formula; `where` gives the
    user's line of those to come."""

    def __init__(self, graph: fx.Graph, where: Callable = lambda: None):
        self.graph, self.where = graph, where

    def given(self, node: fx.Node) -> None:
        """Know a graph input, if it is a symbol."""
        if isinstance(node.meta["val"], SYMBOLIC):
            self[formula(node.meta["val"])] = node

    def written(self, number) -> object:
        """The number as a node; or its value, if it is constant."""
        expr = formula(number)
        if not expr.free_symbols:
            return number.node.pytype(expr)
        if expr not in self:
            if not (EXPRESSIONS and expr.free_symbols <= self.keys()):
                raise BackendError(f"a size ({expr}) is not decided by the"
                                   " sizes of the inputs")
            self[expr] = EXPRESSIONS[-1](self, expr)
        return self[expr]
