"""Operations, conversions and numbers as Triton text.

In: operands that are written already, as names of values. Out: the text
of a value held as `held` says. What eager does on a GPU otherwise than
elsewhere, we do. Inductor's is torch/_inductor/codegen/triton.py.
"""

from __future__ import annotations

from math import isfinite

import torch

from ..core.loops import Const, Expression, Op
from .operations import (HALVES, enclosed, form_of, held,
                         rounded_already)

#: Triton's name of each dtype.
TYPES = {dtype: f"tl.{str(dtype)[6:]}" for dtype in (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)}
TYPES[torch.bool] = "tl.int1"

#: Where eager rounds a number to the other operand's 16-bit type first.
ROUNDS_NUMBERS = {"pow", "fmod", "remainder", "lt", "le", "gt", "ge"}


def operation(node: Op, texts: list[str], exact: bool = True) -> str:
    """The Op on operands of these texts, rounded to its dtype.

    The texts are names of values, each held as `held` says. Unless
    `exact`, a quotient may be off by two units in the last place.
    """
    form, work = form_of(node)
    work, parts = held(work), node.operands
    text = form.triton or form.cpp
    if not work.is_floating_point:
        text = form.triton_integer or text
    if node.name == "div" and not exact:
        text = "{0} / {1}"
    if work.is_floating_point and not isinstance(parts[0], Const):
        match node:
            case Op("div", (value, Const(number, _))):
                text = "{0} * {1}"
                parts = value, Const(_inverse(number, work), work)
            case Op("pow", (value, Const(2 | 3 as power, _))):
                return _power(value, power, node.dtype, texts[0])
    alone = all(isinstance(part, Const) for part in parts)
    operands = [
        _number(node, part, work, alone or "device." in text)
        if isinstance(part, Const) else convert(shown, part.dtype, work)
        for part, shown in zip(parts, texts, strict=True)]
    if node.name == "where":
        operands[0] = convert(texts[0], parts[0].dtype, torch.bool)
    text = text.format(*operands)
    if node.dtype in HALVES and rounded_already(form, node):
        return text
    return convert(text, form.made or work, node.dtype)


def _inverse(number: float, work: torch.dtype) -> float:
    """What eager multiplies by, on a GPU, instead of dividing."""
    return (1 / torch.tensor(number, dtype=work)).item()


def _power(value: Expression, power: int, dtype: torch.dtype,
           text: str) -> str:
    """A square or cube as eager computes it: rounded at every step."""
    square = Op("mul", (value, value), dtype)
    squared = operation(square, [text, text])
    return squared if power == 2 else operation(
        Op("mul", (square, value), dtype), [enclosed(squared), text])


def _number(node: Op, number: Const, work: torch.dtype, block: bool) -> str:
    """A number as an operand."""
    value = number.value
    if node.name in ROUNDS_NUMBERS and number.dtype in HALVES:
        value = torch.tensor(value, dtype=number.dtype).item()
    return literal(value, work, block)


def convert(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """A held value of one type as a held value of another, rounded."""
    source = held(given)
    if wanted in HALVES and given != wanted:
        single = _as(text, source, torch.float32)
        return f"device.rounded({single}, {TYPES[wanted]})"
    if wanted == torch.uint8 and source.is_floating_point:
        return f"{enclosed(text)}.to(tl.int64).to(tl.uint8)"
    return _as(text, source, held(wanted))


def literal(value: bool | int | float, dtype: torch.dtype,
            block: bool = False) -> str:
    """A number of this type; as a Triton value if `block`."""
    if dtype.is_floating_point:
        value = float(value)
        text = repr(value) if isfinite(value) else f"float('{value}')"
    elif dtype == torch.bool:
        text = repr(bool(value))
    else:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        text = repr((int(value) - low) % (high - low + 1) + low)
    if block or dtype == torch.float64:
        return f"tl.full((), {text}, {TYPES[dtype]})"
    return text


def _as(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """`text` converted, unless it has the type already."""
    if given == wanted:
        return text
    if wanted == torch.bool:
        return f"({enclosed(text)} != 0)"
    return f"{enclosed(text)}.to({TYPES[wanted]})"
