"""Names, indices and single values as C++ text."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from ..core.index import Atom, Division, Index, not_negative
from ..core.loops import OPS, Const, Load, Op, Position
from .cpp_ops import convert, enclosed, literal, operation
from .header import HEADER
from .operations import HALVES
from .stages import Local, Store

#: What a buffer must not be called in C++: functions, types, macros.
WORDS = frozenset(re.findall(r"\w+(?=[(<;]| value)", HEADER)) | frozenset(
    name + suffix for name in OPS for suffix in ("", "f")) | frozenset(
    """alignas and asm auto bool break case catch char class const
    continue default delete do double else enum extern float for friend
    goto if infinity int long namespace new not not_a_number or part
    private protected public register return short signed sizeof static
    struct switch template this throw true false try typedef typename
    union unsigned using virtual void volatile while xor""".split())
#: The names that values and loop variables have.
TAKEN = re.compile(r"([tkawp]i?|nan|better|[a-z])\d+[hl]*_*")


def is_taken(name: str) -> bool:
    """Whether a buffer must not be called so in C++."""
    return name in WORDS or bool(TAKEN.fullmatch(name))


def place(where: Index) -> str:
    """An index as C++."""
    terms = []
    for atoms, number in where.terms:
        factors = [_atom(atom) for atom in atoms]
        if number != 1 or not factors:
            factors.append(str(number))
        terms.append("*".join(factors))
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _atom(atom: Atom) -> str:
    """A variable, or a division that rounds down."""
    if not isinstance(atom, Division):
        return str(atom)
    sides = place(atom.dividend), place(atom.divisor)
    if not_negative(atom.dividend):
        sign = atom.sign[0]
        return f"({enclosed(sides[0])} {sign} {enclosed(sides[1])})"
    name = "divide_floor" if atom.sign == "//" else "modulo"
    return f"{name}<int64>({sides[0]}, {sides[1]})"


def element(buffer: str, where: Index, dtype: torch.dtype,
            names: Mapping[str, str]) -> str:
    """An element of memory, in the type that holds it."""
    text = f"{names[buffer]}[{place(where)}]"
    return f"load({text})" if dtype in HALVES else text


def stored(store: Store, value: str, names: Mapping[str, str]) -> str:
    """The statement that puts a value into memory."""
    text = f"{names[store.buffer]}[{place(store.index)}]"
    if store.local.dtype in HALVES:
        return f"store({text}, {value});"
    return f"{text} = {value};"


def read(local: Local, texts: Mapping[Local, str]) -> str:
    """How a local is read; a number is written out."""
    if isinstance(local.node, Const):
        return literal(local.node.value, local.dtype)
    return texts[local]


def expression(local: Local, texts: Mapping[Local, str],
               names: Mapping[str, str]) -> str:
    """The text that computes a local from its operands."""
    operands = [read(operand, texts) for operand in local.operands]
    match local.node:
        case Op() as op:
            return operation(op, operands)
        case Position(where, dtype):
            return convert(enclosed(place(where)), torch.int64, dtype)
        case Load(buffer, where, dtype, mask, other):
            text = element(buffer, where, dtype, names)
            if mask is None:
                return text
            return (f"{enclosed(operands[0])} ? {text} : "
                    f"{literal(other, dtype)}")
