"""Floats that vary: symbols, computed as Python computes them.

In: a float from outside that was another one before, such as a learning
rate. Out: a symbol. sympy takes floats for real numbers, so no expression
is built of them. A number that Python computes of floats, by one of the
rows here, or by `math`, is a symbol of its own; its place is the text of
that computation. Any other function but a comparison gets a constant.
PyTorch's is `wrap_symfloat` in torch/_dynamo/variables/builder.py.
"""

import math
import operator
from collections.abc import Callable

import torch
from torch.utils._pytree import tree_map
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ...core.guard import Source, is_a
from ...core.sizes import SYMBOLIC, formula, hint
from ..reasons import unsupported
from ..recorder import SIZES, settled
from ..rules import INPLACE
from ..torch.dimensions import NUMBERS, Computed, SymbolicSizes

#: How Python writes arithmetic: the sign before the last operand; a call.
SIGNS = {operator.neg: "-", operator.add: "+", operator.sub: "-",
         operator.mul: "*", operator.truediv: "/", operator.pow: "**",
         operator.floordiv: "//", operator.mod: "%"}
CALLED = {abs, int, max, min, round}

#: No number with a longer text is a symbol.
LONGEST = 2000

#: Larger integers are not all floats.
EXACT = 2**53


def floating(sizes: SymbolicSizes, value: float, source: Source):
    """The symbol of a float; None if it is infinite, NaN, or constant.

    One that turns out to be a constant zero keeps its sign.
    """
    if not (sizes.history.floats and math.isfinite(value)):
        return None
    made = sizes.env.create_symfloatnode(sizes.symbol(value, source),
                                         hint=value)
    sizes.require("math.isfinite({0})", source)

    def sign() -> None:
        if made.node.expr.is_number:
            sizes.require("math.copysign(1, {0}) == "
                          f"{math.copysign(1, value)}", source)
    sizes.late.append(sign)
    return made


NUMBERS[float] = floating


class ExactSizes(SymbolicSizes):
    """Symbols of which Python's floats are computed as Python does."""

    def compute(self, call: Callable, function, args, kwargs):
        """The result of a C function that may be given floats."""
        if not self.history.floats:  # a graph may take none
            return super().compute(call, function, args, kwargs)
        args = tuple(
            settled(each) if type(each) is torch.SymFloat
            and each.node.expr.is_number else each for each in args)
        made = None if kwargs else arithmetic(self, function, args)
        if made is not None:
            return made
        if of_math(function):
            args = tree_map(settled, args)
        elif any(type(each) is int and abs(each) > EXACT for each in args):
            args = settled(args)  # a list stays the one it is
        value = super().compute(call, function, args, kwargs)
        if holds_floats(value) and not formula(value).is_Symbol:
            value = call(function, settled(args), kwargs)
            if holds_floats(value):
                raise unsupported("builtin",
                                  "arithmetic inside a C function")
        return value


SIZES.append(ExactSizes)


def arithmetic(sizes: SymbolicSizes, function, args: tuple):
    """The symbol of a number that Python computes of floats.

    None if no row is about the function, if the number is not finite, or
    if one is given that sympy's text might not give back.
    """
    sign = SIGNS.get(INPLACE.get(function, function))
    kinds = {*map(type, args)}
    if not (sign or of_math(function) or function in CALLED) or not (
            torch.SymFloat in kinds or torch.SymInt in kinds and (
                float in kinds or of_math(function))) or not all(
            is_a(each, SYMBOLIC) or type(each) in (int, float)
            and abs(each) <= EXACT for each in args):
        return None
    parts = [f"({sizes.text(each)})" if is_a(each, SYMBOLIC)
             else f"({each!r})" for each in args]
    text = f"({' '.join([*parts[:-1], sign, parts[-1]])})" if sign else (
        f"{'math.' * of_math(function)}{function.__name__}"
        f"({', '.join(parts)})")
    try:
        value = function(*map(hint, args))
        fits = type(value) is float and math.isfinite(value) or (
            type(value) is int and abs(value) < EXACT)
    except ArithmeticError:
        return None
    if not fits or len(text) > LONGEST:
        return None
    source = Computed(text)
    if source not in sizes.numbers:
        sizes.require(f"type({{0}}) is {type(value).__name__}" + (
            f" and abs({{0}}) < {EXACT}" * (type(value) is int)), source)
    return sizes.number(value, source)


def of_math(function) -> bool:
    return getattr(function, "__module__", None) == "math"


def holds_floats(value) -> bool:
    """Whether this is a number made of floats that vary."""
    return is_a(value, SYMBOLIC) and any(
        symbol_is_type(symbol, SymT.FLOAT)
        for symbol in formula(value).free_symbols)
