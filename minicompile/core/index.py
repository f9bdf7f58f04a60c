"""Index arithmetic: where in a buffer the element of a loop nest lies.

An Index is a polynomial with integer coefficients over atoms: a loop
variable, a symbolic size, or a floor division or remainder that could
not be simplified away. Reshapes and transposes are nothing but such
arithmetic, so that what simplifies here costs nothing later. Inductor
uses sympy for this (torch/_inductor/sizevars.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import gcd


@dataclass(frozen=True)
class Symbol:
    """A whole number known only at run time, such as a size.

    It is never below `least` nor, if that is known, above `most`; it was
    `hint` when the graph was traced. With `formula`, Python computes it
    from the other symbols in `of`.
    """

    name: str
    hint: int = 64
    least: int | None = 1
    most: int | None = None
    formula: str = ""
    of: tuple[Symbol, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Variable:
    """A loop variable, running from 0 to `size` - 1."""

    name: str
    size: Index

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """`dividend // divisor`, the divisor being at least 1."""

    dividend: Index
    divisor: Index

    def __str__(self) -> str:
        return f"{_factor(self.dividend)}//{_factor(self.divisor)}"


@dataclass(frozen=True)
class Remainder:
    """`dividend % divisor`, the divisor being at least 1."""

    dividend: Index
    divisor: Index

    def __str__(self) -> str:
        return f"{_factor(self.dividend)}%{_factor(self.divisor)}"


Atom = Symbol | Variable | Quotient | Remainder


class Index:
    """A sum of `coefficient * atom * atom …`; immutable, hashable."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: Mapping[tuple[Atom, ...], int]):
        kept = [item for item in terms.items() if item[1]]
        if len(kept) > 1:
            kept.sort(key=_order)
        self.terms = tuple(kept)
        self._hash = hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Index) and self.terms == other.terms

    @property
    def constant(self) -> int | None:
        """The value, if it does not depend on anything; else None."""
        if not self.terms:
            return 0
        (atoms, coefficient), *more = self.terms
        return None if atoms or more else coefficient

    def __int__(self) -> int:
        if self.constant is None:
            raise TypeError(f"{self} is not a constant")
        return self.constant

    def __add__(self, other: Index | int) -> Index:
        terms = dict(self.terms)
        for atoms, coefficient in index(other).terms:
            terms[atoms] = terms.get(atoms, 0) + coefficient
        return _rejoin(Index(terms))

    def __mul__(self, other: Index | int) -> Index:
        terms: dict[tuple[Atom, ...], int] = {}
        for a, m in self.terms:
            for b, n in index(other).terms:
                atoms = tuple(sorted(a + b, key=str))
                terms[atoms] = terms.get(atoms, 0) + m * n
        return Index(terms)

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + index(other) * -1

    def __rsub__(self, other: int) -> Index:
        return index(other) - self

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Index | int) -> Index:
        divisor = index(other)
        whole, rest = _split(self, divisor)
        if in_range(rest, divisor):
            return whole
        rest, divisor = _reduce(rest, divisor)
        inner = _lone(rest, Quotient)
        if inner is not None:
            return whole + inner.dividend // (inner.divisor * divisor)
        return whole + index(Quotient(rest, divisor))

    def __mod__(self, other: Index | int) -> Index:
        divisor = index(other)
        _, rest = _split(self, divisor)
        if in_range(rest, divisor):
            return rest
        inner = _lone(rest, Remainder)
        if inner and not _split(inner.divisor, divisor)[1].terms:
            return inner.dividend % divisor
        return _factored_remainder(rest, divisor)

    def __str__(self) -> str:
        text = " + ".join(_term(*term) for term in self.terms) or "0"
        return text.replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"index({self})"


Size = Index


def index(value: Index | Atom | int) -> Index:
    """An Index that is a constant, one atom, or `value` itself."""
    return value if isinstance(value, Index) else _single(value)


@lru_cache(maxsize=10_000)
def _single(value: Atom | int) -> Index:
    """The Index that is a constant or one atom; made once for each."""
    return Index({(): value} if isinstance(value, int) else {(value,): 1})


def product(sizes: Iterable[Index | int]) -> Index:
    """The product of sizes; 1 for none."""
    total = index(1)
    for size in sizes:
        total = total * size
    return total


def flatten(indices: Iterable[Index],
            strides: Iterable[Index | int]) -> Index:
    """The sum of index times stride: a position in memory."""
    total = index(0)
    for i, stride in zip(indices, strides, strict=True):
        total = total + i * stride
    return total


def unflatten(position: Index,
              shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The row-major coordinates in `shape` of a flat position."""
    coordinates: list[Index] = []
    for size in reversed(shape[1:]):
        coordinates.append(position % size)
        position = position // size
    return (*([position] if shape else ()), *reversed(coordinates))


def row_major(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides = [index(1)]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[:len(shape)]))


def substitute(where: Index, values: Mapping[Atom, Index]) -> Index:
    """`where` with variables or symbols replaced, simplified again."""
    total = index(0)
    for atoms, coefficient in where.terms:
        term = index(coefficient)
        for atom in atoms:
            term = term * _replace(atom, values)
        total = total + term
    return total


def _replace(atom: Atom, values: Mapping[Atom, Index]) -> Index:
    """One atom after substitution."""
    if atom in values:
        return values[atom]
    match atom:
        case Quotient(dividend, divisor):
            return (substitute(dividend, values)
                    // substitute(divisor, values))
        case Remainder(dividend, divisor):
            return (substitute(dividend, values)
                    % substitute(divisor, values))
    return index(atom)


def atoms_of(where: Index) -> set[Atom]:
    """Every variable and symbol in `where`, at any depth."""
    found: set[Atom] = set()
    for atoms, _ in where.terms:
        for atom in atoms:
            if isinstance(atom, (Quotient, Remainder)):
                found |= atoms_of(atom.dividend) | atoms_of(atom.divisor)
            else:
                found.add(atom)
    return found


def evaluate_index(where: Index, values: Mapping[Atom, object]):
    """`where` with every atom given a number, or a tensor of numbers."""
    total: object = 0
    for atoms, term in where.terms:
        for atom in atoms:
            term = term * _evaluate_atom(atom, values)
        total = total + term
    return total


def _evaluate_atom(atom: Atom, values: Mapping[Atom, object]):
    """One atom's number."""
    if isinstance(atom, (Symbol, Variable)):
        return values[atom]
    dividend = evaluate_index(atom.dividend, values)
    divisor = evaluate_index(atom.divisor, values)
    return (dividend // divisor if isinstance(atom, Quotient)
            else dividend % divisor)


def guess(where: Index) -> int:
    """The value at the sizes that were traced: for decisions only."""
    if where.constant is not None:
        return where.constant
    return evaluate_index(where, {
        atom: atom.hint for atom in atoms_of(where)})


def symbols_of(*indices: Index) -> set[Symbol]:
    """Every symbol in these indices and in their variables' sizes."""
    found: set[Symbol] = set()
    for where in indices:
        for atom in atoms_of(where):
            found |= ({atom} if isinstance(atom, Symbol)
                      else symbols_of(atom.size))
    return found


@cache
def coefficient(where: Index, variable: Variable) -> Index | None:
    """By how much `where` grows with `variable`; None if unevenly."""
    total = index(0)
    for atoms, number in where.terms:
        others = tuple(atom for atom in atoms if atom != variable)
        if len(others) < len(atoms):
            if any(isinstance(atom, Variable)
                   for atom in atoms_of(Index({others: 1}))):
                return None
            total = total + Index({others: number})
        elif any(variable in atoms_of(index(atom)) for atom in atoms):
            return None
    return total


def upper(where: Index) -> Index:
    """An upper bound that has symbols only."""
    return _bound(where, True)


def lower(where: Index) -> Index:
    """A lower bound that has symbols only."""
    return _bound(where, False)


def _bound(where: Index, high: bool) -> Index:
    """The bound of each term; its coefficient's sign tells which end."""
    total = index(0)
    for atoms, coefficient in where.terms:
        end = high == (coefficient > 0)
        term = index(coefficient)
        for atom in atoms:
            term = term * _atom_bound(atom, end)
        total = total + term
    return total


def _atom_bound(atom: Atom, high: bool) -> Index:
    """The largest or smallest value of an atom."""
    match atom:
        case Symbol():
            return index(atom)
        case Variable(_, size):
            return size - 1 if high else index(0)
        case Remainder(_, divisor):
            return divisor - 1 if high else index(0)
        case Quotient(dividend, divisor):
            return _bound(dividend, high) // divisor


def not_negative(where: Index) -> bool:
    """Whether `where` can be shown to be at least 0, for all sizes."""
    least = least_of(where)
    return least is not None and least >= 0


def least_of(where: Index) -> int | None:
    """A number that `where` is never below, for all sizes; None: unknown.

    Each symbol is written as its least value and an excess, which is at
    least 0: if no coefficient is below 0 then, all excesses can be 0.
    """
    smallest = lower(where)
    if smallest.constant is not None:
        return smallest.constant
    total = index(0)
    for atoms, coefficient in smallest.terms:
        term = index(coefficient)
        for atom in atoms:
            least = _least(atom)
            if least is None:
                return None
            term = term * (index(atom) + least)
        total = total + term
    if any(atoms and n < 0 for atoms, n in total.terms):
        return None
    return dict(total.terms).get((), 0)


def _least(atom: Atom) -> int | None:
    """A number that a symbol or a division of symbols is never below."""
    if isinstance(atom, Symbol):
        return atom.least
    if isinstance(atom, Remainder):
        return 0
    least = least_of(atom.dividend)
    if least is None or least < 0:
        return None
    most = most_of(atom.divisor)
    return least // most if most else 0


def most_of(where: Index) -> int | None:
    """A number that `where` is never above, for all sizes; None: unknown.
    """
    total = 0
    for atoms, term in upper(where).terms:
        for atom in atoms:
            least = _least(atom)
            end = _most(atom) if term > 0 else least
            if end is None or least is None or least < 0:
                return None
            term *= end
        total += term
    return total


def _most(atom: Atom) -> int | None:
    """A number that a symbol or a division of symbols is never above."""
    if isinstance(atom, Symbol):
        return atom.most
    if isinstance(atom, Remainder):
        return most_of(atom.divisor - 1)
    most, least = most_of(atom.dividend), least_of(atom.divisor)
    return None if most is None or least is None else most // least


def in_range(where: Index, size: Index) -> bool:
    """Whether 0 <= `where` < `size` can be shown."""
    return not_negative(where) and not_negative(size - 1 - upper(where))


def may_exceed(where: Index, count: int) -> bool:
    """Whether `where` can be above `count`, as far as is known."""
    most = most_of(where)
    return most is None or most > count


def _order(term: tuple[tuple[Atom, ...], int]) -> tuple:
    """Sort key: constants last, others by name."""
    atoms, _ = term
    return (not atoms, [str(atom) for atom in atoms])


def _term(atoms: tuple[Atom, ...], coefficient: int) -> str:
    """`3*i0*s1`; the coefficient 1 is left out."""
    alone = len(atoms) == 1 and coefficient == 1
    factors = [str(atom) if alone or isinstance(atom, (Symbol, Variable))
               else f"({atom})" for atom in atoms]
    if coefficient == -1 and factors:
        return "-" + "*".join(factors)
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)


def _factor(where: Index) -> str:
    """A divisor, in parentheses unless it is a single name or number."""
    text = str(where)
    return text if text.isalnum() else f"({text})"


def _lone(where: Index, kind: type):
    """The atom of this kind that is all of `where`, or None."""
    if len(where.terms) == 1:
        atoms, coefficient = where.terms[0]
        if coefficient == 1 and len(atoms) == 1 and isinstance(
                atoms[0], kind):
            return atoms[0]
    return None


def _quotient(term: tuple, factor: tuple) -> Index | None:
    """`term / factor` if the division is exact by its form, else None."""
    (atoms, coefficient), (factors, number) = term, factor
    left = list(atoms)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    if coefficient % number:
        return None
    return Index({tuple(left): coefficient // number})


def _split(where: Index, divisor: Index) -> tuple[Index, Index]:
    """(whole, rest): `where` = whole * divisor + rest, by its terms."""
    if len(divisor.terms) > 1:
        return _divide(where, divisor)
    whole, rest = index(0), index(0)
    size = divisor.constant
    for atoms, n in where.terms:
        quotient = _quotient((atoms, n), divisor.terms[0])
        if quotient is not None:
            whole = whole + quotient
        elif size is not None and not atoms:
            whole, rest = whole + n // size, rest + n % size
        else:
            rest = rest + Index({atoms: n})
    return whole, rest


def _divide(where: Index, divisor: Index) -> tuple[Index, Index]:
    """`_split` for a divisor of several terms: by its longest one."""
    first = max(divisor.terms, key=lambda term: len(term[0]))
    for term in where.terms:
        quotient = _quotient(term, first)
        if quotient is not None:
            rest = where - quotient * divisor
            if len(rest.terms) < len(where.terms):
                more, rest = _divide(rest, divisor)
                return quotient + more, rest
    return index(0), where


def _common(where: Index, divisor: Index) -> tuple[int, Index, Index]:
    """(g, high, low): `where` = g * high + low, 0 <= low < g, g | divisor.

    g is the largest such factor found; 1 if there is none.
    """
    size = divisor.constant
    candidates = [] if size is None else sorted(
        {gcd(size, n) for atoms, n in where.terms if atoms}, reverse=True)
    for g in candidates:
        if g > 1:
            high, low = _split(where, index(g))
            if in_range(low, index(g)):
                return g, high, low
    return 1, where, index(0)


def _reduce(where: Index, divisor: Index) -> tuple[Index, Index]:
    """`where` and `divisor` with a common factor cancelled."""
    g, high, _ = _common(where, divisor)
    return (high, index(int(divisor) // g)) if g > 1 else (where, divisor)


def _factored_remainder(where: Index, divisor: Index) -> Index:
    """`where % divisor`, a common factor taken out in front."""
    g, high, low = _common(where, divisor)
    if g == 1:
        return index(Remainder(where, divisor))
    return (high % (int(divisor) // g)) * g + low


def _rejoin(where: Index) -> Index:
    """`d * (a // d) + a % d` put together again as `a`."""
    for atoms, coefficient in where.terms:
        for atom in atoms:
            if isinstance(atom, Remainder):
                others = tuple(a for a in atoms if a is not atom)
                scale = Index({others: coefficient})
                part = Index({atoms: coefficient})
                quotient = atom.dividend // atom.divisor
                whole = scale * quotient * atom.divisor
                left = dict(where.terms)
                if whole.terms and all(left.get(a) == n
                                       for a, n in whole.terms):
                    return (where - part - whole) + scale * atom.dividend
    return where
