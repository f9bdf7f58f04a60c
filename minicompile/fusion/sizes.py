"""Sizes of fake tensors as Indices: what a ShapeEnv's expressions say.

In: numbers, and SymInts of a ShapeEnv. Out: Indices with a Symbol for
each size that only the run will know. Sums, products, floor divisions
and remainders become index arithmetic; anything else is a Symbol of its
own, which Python computes before the kernels run. Inductor's is
torch/_inductor/sizevars.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.printers import PythonPrinter

from ..core.index import Index, Symbol, index, least_of, product
from ..core.loops import Const, Expression, Op, Position

#: The symbols that stand for a ShapeEnv's expressions. A range that is
#: learnt later is not looked at: what was shown before stays true.
SYMBOLS: WeakKeyDictionary[ShapeEnv, dict[sympy.Expr, Symbol]] = (
    WeakKeyDictionary())


def sizes_of(numbers: Iterable) -> tuple[Index, ...]:
    """Sizes or strides of a fake tensor as Indices."""
    return tuple(map(size_of, numbers))


def size_of(number: int | torch.SymInt | Index) -> Index:
    """One size: the only place that knows what a size may be."""
    if isinstance(number, Index):
        return number
    if isinstance(number, torch.SymInt):
        return _index(number.node.expr, number.node.shape_env)
    return index(int(number))


def number_of(given: object) -> object:
    """A number that depends on sizes as an Index; anything else as is."""
    if isinstance(given, torch.SymInt):
        found = size_of(given)
        return found if found.constant is None else int(found)
    if isinstance(given, (torch.SymFloat, torch.SymBool)):
        return index(_symbol(given.node.expr, given.node.shape_env))
    return given


def _index(expr: sympy.Expr, env: ShapeEnv) -> Index:
    """A whole number's expression as an Index."""
    match expr:
        case sympy.Integer():
            return index(int(expr))
        case sympy.Add() | sympy.Mul() if all(
                part.is_integer for part in expr.args):
            parts = (_index(part, env) for part in expr.args)
            return (product(parts) if expr.is_Mul
                    else sum(parts, index(0)))
        case sympy.Pow(base=base, exp=sympy.Integer() as power) if (
                base.is_integer and power > 0):
            return product([_index(base, env)] * int(power))
        case FloorDiv() | Mod() | PythonMod():
            a, b = (_index(part, env) for part in expr.args)
            if least_of(b) > 0:
                return a // b if isinstance(expr, FloorDiv) else a % b
    return index(_symbol(expr, env))


def _symbol(expr: sympy.Expr, env: ShapeEnv) -> Symbol:
    """The Symbol of an expression; made once, for all graphs."""
    known = SYMBOLS.setdefault(env, {})
    if expr not in known:
        formula, of, name = "", (), str(expr)
        if not expr.is_Symbol:
            of = tuple(_symbol(part, env) for part in sorted(
                expr.free_symbols, key=str))
            formula, name = PythonPrinter().doprint(expr), f"z{len(known)}"
        formula = f"int({formula})" if expr.is_Boolean else formula
        ends = env.bound_sympy(expr)
        least, most = (
            int(end) if end.is_Integer else unknown
            for end, unknown in ((ends.lower, -inf), (ends.upper, inf)))
        known[expr] = Symbol(name, _hint(expr, env), least, most,
                             formula, of)
    return known[expr]


def _hint(expr: sympy.Expr, env: ShapeEnv) -> int:
    """The value when the graph was traced, or some number."""
    values = getattr(env, "backed_var_to_val", None) or env.var_to_val
    value = expr.xreplace(values)
    return int(value) if value.is_number else 64


#: How kernels compute what a float made of sizes is made of.
OPERATIONS = {"Add": "add", "Mul": "mul", "IntTrueDiv": "div",
              "FloatTrueDiv": "div", "FloatPow": "pow",
              "OpaqueUnaryFn_sqrt": "sqrt", "OpaqueUnaryFn_exp": "exp",
              "OpaqueUnaryFn_log2": "log2"}


def expression_of(number: torch.SymFloat) -> Expression | None:
    """A float made of sizes as something a kernel can compute."""
    return _expression(number.node.expr, number.node.shape_env)


def _expression(expr: sympy.Expr, env: ShapeEnv) -> Expression | None:
    """The expression, as a double; None if a part is not known."""
    name = type(expr).__name__
    if expr.is_number:
        return Const(float(expr), torch.float64)
    if name == "ToFloat" or expr.is_integer:
        whole = expr.args[0] if name == "ToFloat" else expr
        position = Position(_index(whole, env), torch.int64)
        return Op("cast", (position,), torch.float64)
    parts = [_expression(part, env) for part in expr.args]
    if name not in OPERATIONS or None in parts:
        return None
    while len(parts) > 2:
        parts[:2] = [Op(OPERATIONS[name], tuple(parts[:2]), torch.float64)]
    return Op(OPERATIONS[name], tuple(parts), torch.float64)
