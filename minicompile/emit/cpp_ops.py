"""Operations, conversions and numbers as C++ text.

In: operands that are written already. Out: the text, of the type that
holds the result, with as few brackets as it can be read without. C++
computes with narrow integers as int and stops at no conversion, so types
are written out. Inductor's is torch/_inductor/codegen/cpp_utils.py.
"""

from __future__ import annotations

import re
from math import isfinite

import torch

from ..core.loops import Const, Expression, Op
from .operations import (
    FORMS,
    HALVES,
    converted,
    form_of,
    held,
    rounded_already,
)

#: C++'s name for an element in memory, by dtype.
TYPES = {torch.float64: "double", torch.float32: "float",
         torch.float16: "half", torch.bfloat16: "bfloat",
         torch.int64: "int64", torch.int32: "int32", torch.int16: "int16",
         torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool"}

#: Operations that cost far more than an access to the cache.
DEAR = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid pow
    atan2 hypot remainder fmod div_floor uniform""".split())


def repeated(node: Expression, place: int) -> int:
    """How often the text of a node repeats its operand at `place`."""
    if not isinstance(node, Op):
        return 1
    form, mark = FORMS[node.name], f"{{{place}}}"
    return max(form.cpp.count(mark), form.cpp_integer.count(mark))


def operation(op: Op, operands: list[str]) -> str:
    """The text of an operation on operands that are written already."""
    form, given = form_of(op)
    texts = [_operand(text, part, given) if part in converted(op) else text
             for text, part in zip(operands, op.operands, strict=True)]
    whole = not given.is_floating_point
    text = whole and form.cpp_integer or form.cpp
    kind = TYPES[held(given)]
    texts = [part if _is_argument(text, number) else enclosed(part)
             for number, part in enumerate(texts)]
    text = text.format(*texts, type=kind,
                       f="" if given == torch.float64 else "f",
                       round=f"round_{TYPES[given]}"
                       if given in HALVES else "")
    if given in _NARROW and form.made is None:
        text = f"({kind})({text})"
    if op.dtype in HALVES and rounded_already(form, op):
        return text
    return convert(text, form.made or held(given), op.dtype)


def _is_argument(text: str, number: int) -> bool:
    """Whether commas and brackets enclose this operand already."""
    mark = re.escape(f"{{{number}}}")
    return bool(re.search(rf"(\(|, ){mark}[,)]", text))


def _operand(text: str, part: Expression, given: torch.dtype) -> str:
    """An operand as the dtype given; a number is written as that."""
    if isinstance(part, Const):
        return literal(part.value, given)
    return convert(text, part.dtype, given)


#: Types that C++ computes with as int.
_NARROW = (torch.int8, torch.int16, torch.uint8, torch.bool)


def convert(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """A value of one dtype as another, by PyTorch's rules."""
    if given == wanted or held(given) == wanted:
        return text
    if wanted == torch.bool:
        return f"{enclosed(text)} != 0"
    if given == torch.bool and wanted.is_floating_point:
        return f"{enclosed(text)} ? 1.0f : 0.0f"
    if wanted in HALVES:
        return f"round_{TYPES[wanted]}({text})"
    if given.is_floating_point and wanted in _NARROW:
        return f"({TYPES[wanted]})(int64){enclosed(text)}"
    return f"({TYPES[wanted]}){enclosed(text)}"


def enclosed(text: str) -> str:
    """The text in parentheses, unless it is one name, number or call."""
    plain = re.fullmatch(r"\w+|[\d.]+(e[+-]?\d+)?f?", text)
    return text if plain or _is_call(text) else f"({text})"


def _is_call(text: str) -> bool:
    """Whether the text is `name(...)` or `name[...]` as a whole."""
    if not re.match(r"\w+(<\w+>)?[([]", text) or text[-1] not in ")]":
        return False
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in ")]":
            return place == len(text) - 1
    return False


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as C++ writes it, in the type that holds `dtype`."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        value = torch.tensor(value).to(dtype).item()
        if dtype != torch.int64:
            return f"({TYPES[dtype]}){value}"
        return f"{value}ll" if value > -2 ** 63 else "least<int64>()"
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
