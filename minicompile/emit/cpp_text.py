"""Operations, conversions, numbers and indices as C++ text.

In: operands that are names or numbers. Out: the text of one line's value,
of the type that holds the result. C++ computes with narrow integers as int
and stops at no conversion, so types are written out. Inductor's is
torch/_inductor/codegen/cpp_utils.py.
"""

from __future__ import annotations

from math import isfinite

import torch

from ..core.index import Atom, Division, Index, not_negative
from ..core.loops import Const, Expression, Load, Op, Position
from .operations import (HALVES, converted, enclosed, form_of, held,
                         rounded_already)
from .stages import Local

#: C++'s name for an element in memory, by dtype.
TYPES = {torch.float64: "double", torch.float32: "float",
         torch.float16: "half", torch.bfloat16: "bfloat",
         torch.int64: "int64", torch.int32: "int32", torch.int16: "int16",
         torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool"}
#: Types that C++ computes with as int.
NARROW = (torch.int8, torch.int16, torch.uint8, torch.bool)


def type_of(local: Local) -> str:
    """C++'s type for a value between operations."""
    return TYPES[held(local.dtype)]


def expression(local: Local, operands: list[str]) -> str:
    """The text that computes a local from its operands."""
    match local.node:
        case Op() as op:
            return operation(op, operands)
        case Position(where, dtype):
            return convert(place(where), torch.int64, dtype)
        case Load(buffer, where, dtype, mask, other):
            text = element(buffer, where, dtype)
            return text if mask is None else (
                f"{operands[0]} ? {text} : {literal(other, dtype)}")


def operation(op: Op, operands: list[str]) -> str:
    """The text of an operation on operands that are written already."""
    form, given = form_of(op)
    texts = [_operand(text, part, given) if part in converted(op) else text
             for text, part in zip(operands, op.operands, strict=True)]
    kind = TYPES[held(given)]
    text = (form.cpp if given.is_floating_point else
            form.cpp_integer or form.cpp).format(
        *texts, type=kind, f="" if given == torch.float64 else "f",
        round=f"rounded<{TYPES[given]}>" if given in HALVES else "")
    if given in NARROW and form.made is None:
        text = f"({kind})({text})"
    if op.dtype in HALVES and rounded_already(form, op):
        return text
    return convert(text, form.made or held(given), op.dtype)


def _operand(text: str, part: Expression, given: torch.dtype) -> str:
    """An operand as the dtype given; a number is written as that."""
    if isinstance(part, Const):
        return enclosed(literal(part.value, given))
    return enclosed(convert(text, part.dtype, given))


def convert(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """A value of one dtype as another, by PyTorch's rules."""
    if given == wanted or held(given) == wanted:
        return text
    if wanted in HALVES:
        return f"rounded<{TYPES[wanted]}>({text})"
    text = enclosed(text)
    if wanted == torch.bool:
        return f"{text} != 0"
    if given == torch.bool and wanted.is_floating_point:
        return f"{text} ? 1.0f : 0.0f"
    if given.is_floating_point and wanted in NARROW:
        return f"({TYPES[wanted]})(int64){text}"
    return f"({TYPES[wanted]}){text}"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as C++ writes it, in the type that holds `dtype`."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        value = torch.tensor(value).to(dtype).item()
        if dtype != torch.int64:
            return f"({TYPES[dtype]}){value}"
        return f"{value}ll" if value > -2 ** 63 else "least"
    value = torch.tensor(value, dtype=held(dtype)).item()
    if not isfinite(value):
        sign = "-" if value < 0 else ""
        return sign + ("infinity" if value == value else "not_a_number")
    if dtype == torch.float64:
        return repr(value)
    return _shortest(value) + "f"


def _shortest(value: float) -> str:
    """The fewest digits that mean this float."""
    for digits in range(1, 10):
        text = repr(float(f"{value:.{digits}g}"))
        if torch.tensor(float(text)).item() == value:
            break
    return text


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


def element(buffer: str, where: Index, dtype: torch.dtype) -> str:
    """An element of memory, in the type that holds it."""
    text = f"{buffer}_ptr[{place(where)}]"
    return f"load({text})" if dtype in HALVES else text
