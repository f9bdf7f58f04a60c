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
        return index_of(number.node.expr, number.node.shape_env)
    return index(int(number))


def number_of(given: object) -> object:
    """A number that depends on sizes as an Index; anything else as is."""
    if isinstance(given, torch.SymInt):
        found = size_of(given)
        return found if found.constant is None else int(found)
    if isinstance(given, (torch.SymFloat, torch.SymBool)):
        return index(symbol_of(given.node.expr, given.node.shape_env))
    return given


def index_of(expr: sympy.Expr, env: ShapeEnv) -> Index:
    """A whole number's expression as an Index."""
    if expr.is_Integer:
        return index(int(expr))
    if all(part.is_integer for part in expr.args):
        parts = (index_of(part, env) for part in expr.args)
        match expr:
            case sympy.Add():
                return sum(parts, index(0))
            case sympy.Mul():
                return product(parts)
            case sympy.Pow(base=base, exp=power) if (
                    power.is_Integer and power > 0):
                return product([index_of(base, env)] * int(power))
            case FloorDiv() | Mod() | PythonMod():
                a, b = parts
                if least_of(b) > 0:
                    return a // b if isinstance(expr, FloorDiv) else a % b
    return index(symbol_of(expr, env))


def symbol_of(expr: sympy.Expr, env: ShapeEnv) -> Symbol:
    """The Symbol of an expression; made once, for all graphs."""
    known = SYMBOLS.setdefault(env, {})
    if expr not in known:
        formula, of, name = "", (), str(expr)
        if not expr.is_Symbol:
            of = tuple(symbol_of(part, env) for part in sorted(
                expr.free_symbols, key=str))
            formula, name = PythonPrinter().doprint(expr), f"z{len(known)}"
        formula = f"int({formula})" if expr.is_Boolean else formula
        values = getattr(env, "backed_var_to_val", None) or env.var_to_val
        hint = expr.xreplace(values)
        ends = env.bound_sympy(expr)
        least, most = (
            int(end) if end.is_Integer else unknown
            for end, unknown in ((ends.lower, -inf), (ends.upper, inf)))
        known[expr] = Symbol(name, int(hint) if hint.is_number else 64,
                             least, most, formula, of)
    return known[expr]
