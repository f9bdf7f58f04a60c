"""Index arithmetic: where in a buffer the element of a loop nest lies.

An Index is a polynomial with integer coefficients over atoms: a loop
variable, a symbolic size, or a floor division or remainder that could
not be simplified away. Reshapes and transposes are nothing but such
arithmetic, so that what simplifies here costs nothing later. Inductor
uses sympy for this (torch/_inductor/sizevars.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite, prod
from weakref import WeakValueDictionary


class Interned(type):
    """A class of which equal parts make one object: compared by `is`."""

    made: WeakValueDictionary = WeakValueDictionary()
    lock = threading.RLock()

    def __call__(cls, *given, **named):
        """A new object, or the one of these parts that there is."""
        made = super().__call__(*given, **named)
        key = cls, *map(cls.identity, vars(made).values())
        with Interned.lock:
            return Interned.made.setdefault(key, made)


@dataclass(frozen=True)
class Symbol:
    """A whole number known only at run time, such as a size.

    It is never below `least` nor above `most`; it was `hint` when the
    graph was traced. With `formula`, Python computes it from the other
    symbols in `of`.
    """

    name: str
    hint: int = 64
    least: float = 1
    most: float = inf
    formula: str = ""
    of: tuple[Symbol, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether it is one number at all times."""
        return bool(self.formula) and not self.of

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Variable:
    """A loop variable, running from 0 to `size` - 1."""

    name: str
    size: Index

    __str__ = Symbol.__str__


@dataclass(frozen=True)
class Division:
    """`dividend // divisor` or, if the sign is "%", what is left of it;
    the divisor is at least 1."""

    sign: str
    dividend: Index
    divisor: Index

    @lru_cache(maxsize=100_000)  # noqa: B019
    def __str__(self) -> str:
        return self.sign.join(
            enclosed(str(side)) for side in (self.dividend, self.divisor))

    def moved(self, values: Mapping[Atom, object]):
        """The number where atoms in it are replaced."""
        given, by = (evaluate_index(side, values)
                     for side in (self.dividend, self.divisor))
        given = index(given) if isinstance(by, Index) else given
        return given // by if self.sign == "//" else given % by


Atom = Symbol | Variable | Division


class Index:
    """A sum of `coefficient * atom * atom …`; immutable, hashable."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: Mapping[tuple[Atom, ...], int]):
        kept = [item for item in terms.items() if item[1]]
        if len(kept) > 1:  # constants last, others by name
            kept.sort(key=lambda term: (not term[0], [*map(str, term[0])]))
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
        atoms, coefficient = self.terms[0] if self.terms else ((), 0)
        return None if atoms else coefficient  # it would come last

    def __int__(self) -> int:
        if self.constant is None:
            raise TypeError(f"{self} is not a constant")
        return self.constant

    @lru_cache(maxsize=100_000)  # noqa: B019
    def __add__(self, other: Index | int) -> Index:
        terms = dict(self.terms)
        for atoms, coefficient in index(other).terms:
            terms[atoms] = terms.get(atoms, 0) + coefficient
        return _rejoin(Index(terms))

    @lru_cache(maxsize=100_000)  # noqa: B019
    def __mul__(self, other: Index | int) -> Index:
        terms: dict[tuple[Atom, ...], int] = {}
        for mine, m in self.terms:
            for theirs, n in index(other).terms:
                atoms = tuple(sorted(mine + theirs, key=str))
                terms[atoms] = terms.get(atoms, 0) + m * n
        return Index(terms)

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + index(other) * -1

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Index | int) -> Index:
        return divided(self, index(other))[0]

    def __mod__(self, other: Index | int) -> Index:
        return divided(self, index(other))[1]

    def __repr__(self) -> str:
        return self.text(str)

    def text(self, division: Callable[[Division], str]) -> str:
        """`3*i0 + i1`, the divisions as they are written elsewhere."""
        terms = []
        for atoms, factor in self.terms:
            names = [division(atom) if isinstance(atom, Division)
                     else str(atom) for atom in atoms]
            if len(names) != 1 or factor != 1:
                names = [str(factor), *map(enclosed, names)]
            terms.append(re.sub(r"^(-?)1\*", r"\1", "*".join(names)))
        return " + ".join(terms).replace("+ -", "- ") or "0"


@lru_cache(maxsize=10_000)
def index(value: Index | Atom | int) -> Index:
    """An Index that is a constant, one atom, or `value` itself."""
    if isinstance(value, Index):
        return value
    return Index({(): value} if isinstance(value, int) else {(value,): 1})


def product(sizes: Iterable[Index | int]) -> Index:
    """The product of sizes; 1 for none."""
    return prod(sizes, start=index(1))


def fold(where: Index, value_of: Callable[[Atom], object]):
    """The value of `where`, with `value_of(atom)` for each atom."""
    total: object = 0
    for atoms, coefficient in where.terms:
        term: object = coefficient
        for atom in atoms:
            term = term * value_of(atom)
        total = total + term
    return total


class Known(dict):
    """The values of atoms; a division's is computed once."""

    def __missing__(self, atom: Atom) -> object:
        self[atom] = value = atom.moved(self) if hasattr(
            atom, "moved") else index(atom)
        return value


def evaluate_index(where: Index, values: Mapping[Atom, object]):
    """`where` with atoms given as numbers, tensors of them or Indices."""
    return fold(where, (values if type(values) is Known else Known(
        values)).__getitem__)


def substitute(where: Index, values: Mapping[Atom, Index]) -> Index:
    """`where` with variables or symbols replaced, simplified again."""
    return index(evaluate_index(where, values))


@lru_cache(maxsize=100_000)
def atoms_of(where: Index) -> frozenset[Atom]:
    """Every variable and symbol in `where`, at any depth."""
    return frozenset().union(*(
        atoms_of(atom.dividend) | atoms_of(atom.divisor)
        if isinstance(atom, Division) else {atom}
        for atoms, _ in where.terms for atom in atoms))


def guess(where: Index) -> int:
    """The value at the sizes that were traced: for decisions only."""
    return evaluate_index(where, {
        atom: atom.hint for atom in atoms_of(where)})


@lru_cache(maxsize=100_000)
def coefficient(where: Index, variable: Variable) -> Index | None:
    """By how much `where` grows with `variable`; None if unevenly."""
    step = substitute(where, {variable: index(variable) + 1}) - where
    even = all(isinstance(atom, Symbol) for atom in atoms_of(step))
    return step if even else None


@lru_cache(maxsize=100_000)
def below(where: Index, moving: bool = False) -> Index | None:
    """A number that `where` is never below, or if only loop variables are
    replaced, an Index of symbols; None if nothing is known.

    One atom after the other becomes one of its ends. The sign of what one
    step of the atom adds tells which. Symbols come last, because variables
    end at them.
    """
    found = [atom for atoms, _ in where.terms for atom in atoms]
    atom = next(filter(varies, found), found[0] if found else None)
    if atom is None or moving and not varies(atom):
        return where

    def at(value: Index) -> Index:
        return index(fold(where, lambda each: value if each == atom
                          else index(each)))
    step, (low, high) = at(index(atom) + 1) - where, ends_of(atom)
    end = low if not_negative(step) else (
        high if not_negative(-step) else None)
    return end and below(at(end), moving)


def varies(atom: Atom) -> bool:
    """Whether a loop variable is in it."""
    return any(isinstance(a, Variable) for a in atoms_of(index(atom)))


def ends_of(atom: Atom) -> tuple[Index | None, Index | None]:
    """Bounds of an atom from below and above; None: not known."""
    match atom:
        case Variable(_, size) | Division("%", _, size):
            return index(0), size - 1
        case Symbol(_, _, least, most):
            return tuple(index(int(end)) if isfinite(end) else None
                         for end in (least, most))
        case Division(_, dividend, by) if by.constant or varies(atom):
            low, high = (below(d, varies(atom))
                         for d in (dividend, -dividend))
            return low and low // by, high and -high // by
    found = not_negative(atom.dividend)
    return (index(0), atom.dividend) if found else (None, None)


def least_of(where: Index) -> float:
    """A number that `where` is never below, for all sizes; else -inf."""
    found = below(where)
    return -inf if found is None else int(found)


def most_of(where: Index) -> float:
    """A number that `where` is never above, for all sizes; else inf."""
    return -least_of(-where)


def not_negative(where: Index) -> bool:
    """Whether `where` can be shown to be at least 0, for all sizes."""
    return least_of(where) >= 0


def in_range(where: Index, size: Index) -> bool:
    """Whether 0 <= `where` < `size` can be shown."""
    return not_negative(where) and not_negative(size - 1 - where)


def enclosed(text: str) -> str:
    """The text in brackets, unless it is one name, number or call."""
    depth = 0
    for letter in re.sub(r"^-(?=\d)|e-", "", text):  # -1e-05
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and not (letter.isalnum() or letter in "._<>)]"):
            return f"({text})"
    return text


#: Ways to simplify a division. Each gives quotient and remainder, or None.
DIVISIONS: list[Callable[[Index, Index], tuple[Index, Index] | None]] = []


@lru_cache(maxsize=100_000)
def divided(where: Index, divisor: Index) -> tuple[Index, Index]:
    """`where // divisor` and `where % divisor`. The terms that are
    multiples of a number are taken out; if the rest is in its range, it
    contributes nothing. By 0, the size of a loop that never runs, nothing
    is divided.
    """
    by = divisor.constant
    if by == 0:
        return divisor, where
    whole = Index({} if by is None else {
        atoms: factor // by for atoms, factor in where.terms
        if not atoms or factor % by == 0})
    rest = where - whole * divisor
    if in_range(rest, divisor):
        return whole, rest
    quotient, left = next(
        filter(None, (way(rest, divisor) for way in DIVISIONS)),
        [index(Division(sign, rest, divisor)) for sign in ("//", "%")])
    return whole + quotient, left


def _rejoin(where: Index) -> Index:
    """`d * (a // d) + a % d` put together again as `a`, and `a % (d * e)`
    where the quotient is only known as its remainder by `e`."""
    left = dict(where.terms)
    rests = [(atoms, place, atom) for atoms in left
             for place, atom in enumerate(atoms)
             if isinstance(atom, Division) and atom.sign == "%"]
    for atoms, place, atom in rests:
        dividend, divisor = atom.dividend, atom.divisor
        scale = Index({atoms[:place] + atoms[place + 1:]: left[atoms]})
        quotient = dividend // divisor
        for high, joined in [(quotient, dividend)] + [
                (index(other), dividend % (other.divisor * divisor))
                for *_, other in rests if other.dividend == quotient]:
            whole = scale * high * divisor
            if whole.terms and all(left.get(a) == n
                                   for a, n in whole.terms):
                part = Index({atoms: left[atoms]})
                return where - part - whole + scale * joined
    return where
