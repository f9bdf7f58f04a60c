"""Floats that vary: symbols, computed as Python computes them.

In: a float from outside that was another one before. Out: a symbol. sympy
takes floats for real numbers, so no expression is built of such symbols.
A float that Python computes of them is a symbol of its own; its place is
the text of that computation. PyTorch's is `wrap_symfloat` in
torch/_dynamo/variables/builder.py.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ...core.guard import Computed, Relation, Source
from ...core.sizes import SYMBOLIC, hint
from ...core.torch.symbols import formula
from ..reasons import unsupported
from ..recorder import NUMBERS, settled
from ..torch.dimensions import SYMBOLIC_FORMS, SymbolicSizes

#: How Python writes arithmetic: a sign between operands, or a name.
WRITTEN = {getattr(operator, kind + name): f" {sign} "
           for kind in ("", "i") for name, sign in (
               ("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"),
               ("floordiv", "//"), ("mod", "%"), ("pow", "**"))} | {
    operator.neg: "-", operator.pos: "+", operator.abs: "abs"} | {
    each: f"math.{name}" for name, each in vars(math).items()
    if callable(each)} | {
    each: each.__name__ for each in (abs, round, pow, sum, *SYMBOLIC_FORMS)
    if each.__module__ == "builtins"} | {int: "math.trunc"}
WRITTEN |= {form: WRITTEN[each] for each, form in SYMBOLIC_FORMS.items()}

#: Of numbers beyond it, and of longer texts, symbols are not made.
LARGEST, LONGEST = sys.float_info.max, 2000


def floating(sizes: SymbolicSizes, value: float, source: Source):
    """The symbol of a float; None if it is infinite, NaN, or constant.

    One that turns out to be a constant zero keeps its sign.
    """
    if not (sizes.history.floats and math.isfinite(value)):
        return None
    made = sizes.env.create_symfloatnode(sizes.symbol(value, source),
                                         hint=value)
    sizes.ranges.append(Relation("math.isfinite({0})", (source,)))

    def sign():
        if made.node.expr.is_number:
            yield Relation("math.copysign(1, {0}) == "
                           f"{math.copysign(1, value)}", (source,))
    sizes.late.append(sign)
    sizes.compute = functools.partial(run_floats, sizes)
    return made


NUMBERS[float] = floating


def run_floats(sizes: SymbolicSizes, call: Callable, function, args,
               kwargs):
    """The result of a C function that is given floats that vary."""
    made = compute_floats(sizes, function, args, kwargs)
    if made is not None:
        return made
    value = SymbolicSizes.compute(sizes, call, function, args, kwargs)
    if varies(value) and not formula(value).is_Symbol:
        raise unsupported("builtin", "arithmetic inside a C function")
    return value


def compute_floats(sizes: SymbolicSizes, function, args: tuple,
                   kwargs: dict):
    """The floats that Python computes: the text says it, not sympy.

    A float made of floats is a symbol of its own, with the value that the
    text has now; None if a function is no arithmetic. A value that is
    not finite is not computed of symbols.
    """
    given = args
    if function is sum or getattr(function, "__module__", None) == "math":
        args = [tuple(a) if type(a) is list else a for a in args]
        given = tree_leaves(args)
    if not any(map(varies, given)):
        return None
    form, kinds = WRITTEN.get(function), {*map(type, given)}
    if not any(type(a) is int and abs(a) > 2**53 for a in given):
        if form is None or kwargs or not kinds <= {
                int, float, bool, torch.SymInt, torch.SymFloat}:
            return None
        text = spelled(form, [spelt(sizes, each) for each in args])
        value = outcome(spelled(form, map(repr, tree_map(hint, args))))
        if type(value) in (int, float) and (
                abs(value) <= LARGEST) and len(text) < LONGEST:
            source = Computed(text)
            if source not in sizes.numbers:
                sizes.ranges.append(Relation(
                    f"type({{0}}) is type({type(value)()})", (source,)))
            return sizes.number(value, source)
    return function(*settled(tuple(args)), **kwargs)


def varies(value) -> bool:
    """Whether this is a float made of floats that vary."""
    return type(value) is torch.SymFloat and any(
        symbol_is_type(symbol, SymT.FLOAT)
        for symbol in value.node.expr.free_symbols)


def spelt(sizes: SymbolicSizes, value) -> str:
    """A number, or a tuple of numbers, as Python text."""
    if type(value) is tuple:
        return f"({', '.join([spelt(sizes, each) for each in value])},)"
    return sizes.text(value) if isinstance(value, SYMBOLIC) else re.sub(
        "(?=nan|inf)", "math.", repr(value))


def spelled(form: str, parts: Iterable[str]) -> str:
    """Arithmetic on these parts, as Python text."""
    if form.strip() == form and len(form) > 1:
        return f"{form}({', '.join(parts)})"
    first, *rest = (f"({part})" for part in parts)
    return f"({first}{form}{rest[0]})" if rest else f"({form}{first})"


def outcome(text: str):
    """The result of the arithmetic; None if it raises."""
    try:
        return eval(text, {"math": math})
    except (ArithmeticError, TypeError, ValueError):
        return None
