"""Rules: numbers that are made of sizes, or lie in the host's memory.

In: SymInts and SymFloats of a ShapeEnv. Out: an Index with a Symbol for
each size that only the run will know. Sums, products, floor divisions and
remainders become index arithmetic. Anything else is a Symbol of its own,
which Python computes before the kernels run. A float, as in
`x * x.shape[0] ** -0.5`, is an operator's argument. Each symbol is an
input of its graph. Without this file a graph with symbols runs as traced.

Such numbers are divided as polynomials are. Without this file more
divisions are left in kernels. Inductor's is torch/_inductor/sizevars.py.

A GPU's kernel takes a float32 tensor of no dimensions on the host as a
number. Without this file an operator does.
"""

from collections import Counter
from dataclasses import replace
from math import gcd, inf
from weakref import WeakKeyDictionary

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import (ShapeEnv,
                                                   statically_known_true)
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ...core.errors import BackendError
from ...core.index import (DIVISIONS, Division, Index, Symbol, divided,
                           in_range, index, least_of, product)
from ...core.loops import accurate, symbols_of
from ...core.schedule import Extern, Step, made_by
from ...core.torch.symbols import text_of
from .. import SIZES
from ..lower import ABROAD, Lowering
from ..lowerings import SYMBOLS_READ, Value

#: The symbols that stand for a ShapeEnv's expressions. A range that is
#: learnt later is not looked at: what was shown before stays true.
SYMBOLS: WeakKeyDictionary[ShapeEnv, dict[sympy.Expr, Symbol]] = (
    WeakKeyDictionary())


def long_division(where: Index, divisor: Index) -> tuple[Index, Index]:
    """(whole, rest): `where` = whole * divisor + rest, by long division:
    multiples of the divisor's largest term are taken out, if that leaves
    fewer terms. The terms that this brings in are smaller."""
    factors, number = max(divisor.terms, key=lambda term: (
        len(term[0]), [*map(str, term[0])]))
    for atoms, factor in where.terms:
        left = Counter(atoms)
        left.subtract(factors)
        if min(left.values(), default=0) < 0 or (
                factor % number and (atoms or not factor // number)):
            continue
        part = Index({tuple(left.elements()): factor // number})
        more, rest = long_division(where - part * divisor, divisor)
        if len(rest.terms) < len(where.terms) or not atoms:
            return part + more, rest
    return index(0), where


def by_a_sum(where: Index, divisor: Index) -> tuple[Index, Index] | None:
    """Multiples of the divisor are taken out."""
    whole, rest = long_division(where, divisor)
    if whole != 0:
        more, rest = divided(rest, divisor)
        return whole + more, rest
    return None


def cancelled(where: Index, divisor: Index) -> tuple[Index, Index] | None:
    """A factor of both cancels, if what is left is in its range."""
    common = {gcd(divisor.constant or 1, n) for atoms, n in where.terms
              if atoms}
    for scale in sorted(common - {1}, reverse=True):
        high, low = long_division(where, index(scale))
        if in_range(low, index(scale)):
            quotient, left = divided(high, divisor // scale)
            return quotient, left * scale + low
    return None


def again(where: Index, divisor: Index) -> tuple[Index, Index] | None:
    """A quotient or a remainder is divided once more."""
    match where.terms:
        case [([Division("//", inner, by)], 1)]:
            return inner // (by * divisor), index(
                Division("%", where, divisor))
        case [([Division("%", inner, by)], 1)] if by % divisor == 0:
            return inner // divisor % (by // divisor), inner % divisor
    return None


def from_sizes(number: torch.SymInt | torch.SymFloat) -> Index | int:
    """A number made of sizes. Python computes those that are not whole.
    One that a guard holds at 1 is 1: a size of 1 is repeated."""
    expr, env = number.node.expr, number.node.shape_env
    if not isinstance(number, torch.SymInt):
        found = index(symbol_of(expr, env))
    elif number.node.hint == 1 and statically_known_true(number == 1):
        found = index(1)
    else:
        found = index_of(expr, env)
    return found if found.constant is None else int(found)


def index_of(expr: sympy.Expr, env: ShapeEnv) -> Index:
    """A whole number's expression as an Index."""
    if expr.is_Integer:
        return index(int(expr))
    if all(part.is_integer for part in expr.args):
        parts = [index_of(part, env) for part in expr.args]
        match expr:
            case sympy.Add():
                return sum(parts, index(0))
            case sympy.Mul():
                return product(parts)
            case sympy.Pow(exp=power) if power.is_Integer and power > 0:
                return product(parts[:1] * int(power))
            case FloorDiv() if least_of(parts[1]) > 0:
                return parts[0] // parts[1]
            case Mod() | PythonMod() if least_of(parts[1]) > 0:
                return parts[0] % parts[1]
    return index(symbol_of(expr, env))


def symbol_of(expr: sympy.Expr, env: ShapeEnv) -> Symbol:
    """The Symbol of an expression; made once, for all graphs."""
    known = SYMBOLS.setdefault(env, {})
    if expr not in known:
        formula, of, name = "", (), str(expr)
        if not expr.is_Symbol:
            of = tuple(symbol_of(part, env) for part in sorted(
                expr.free_symbols, key=str))
            formula, name = text_of(expr), f"z{len(known)}"
        values = getattr(env, "backed_var_to_val", None) or env.var_to_val
        hint = expr.xreplace(values)
        ends = env.bound_sympy(expr)
        least, most = (
            int(end) if end.is_Integer else unknown
            for end, unknown in ((ends.lower, -inf), (ends.upper, inf)))
        known[expr] = Symbol(name, int(hint) if hint.is_number else 64,
                             least, most, formula, of)
    return known[expr]


def host_number(lowering: Lowering, node: fx.Node, value: Value,
                result: torch.Tensor) -> Value | None:
    """A number in host memory as an operand of a GPU's kernels; a float64
    is rounded there, to the float32 that eager takes it for."""
    devices = value.device.type, result.device.type
    wide = value.dtype == torch.float64
    dtype = torch.float32 if wide else value.dtype
    if value.shape or devices != ("cpu", "cuda") or (
            dtype != result.dtype or accurate(dtype) != torch.float32):
        return None
    if wide:
        number = node, dtype
        if number not in lowering.values:
            lowering.values[number] = lowering.store(
                node, value.to(dtype), ())
        value = lowering.values[number]
    elif node.op == "call_function":
        alone = {b.name for step in lowering.steps for b in made_by(step)
                 if not b.shape}
        if getattr(value.element, "buffer", None) not in alone:
            lowering.values[node] = value = lowering.store(node, value, ())
    return Value((), result.device, replace(value.element, host=True))


def found_sizes(steps: list[Step], lowered: Lowering
                ) -> dict[Symbol, int | None]:
    """The input of each symbol that kernels, calls, buffers or results
    use; those in its formula come before it."""
    calls = [(s.args, s.kwargs) for s in steps if isinstance(s, Extern)]
    used = tree_leaves((calls, lowered.outputs, [*map(made_by, steps)]))
    parts = tree_leaves([getattr(leaf, "__dict__", leaf) for leaf in used])
    wanted = symbols_of(*(part for part in parts if isinstance(part, Index))
                        ).union(SIZES[0](steps, lowered))
    places = {given: number for number, given in enumerate(lowered.inputs)
              if isinstance(given, Index)}
    found = {part: places.get(index(part))
             for symbol in sorted(wanted, key=str)
             for part in (*symbol.of, symbol)}
    for symbol, place in found.items():
        if place is None and not symbol.formula:
            raise BackendError(f"the size {symbol} is no input of the "
                               "graph")
    return found


DIVISIONS.extend((by_a_sum, cancelled, again))
ABROAD.append(host_number)
SIZES.append(found_sizes)
SYMBOLS_READ.append(from_sizes)
