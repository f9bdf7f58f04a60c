"""What every operation of the loop language is in Triton: one table.

A row gives the text for floats and, where it differs, for doubles,
integers and bools. Values of 16-bit float types are held as float32 and
rounded after each operation, so that the results are eager's, bit for
bit. Inductor's table is TritonOverrides in
torch/_inductor/codegen/triton.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import isfinite

import torch

from ..core.loops import Const, Expression, Op

#: Triton's name of each dtype.
TYPES = {torch.float64: "tl.float64", torch.float32: "tl.float32",
         torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16",
         torch.int64: "tl.int64", torch.int32: "tl.int32",
         torch.int16: "tl.int16", torch.int8: "tl.int8",
         torch.uint8: "tl.uint8", torch.bool: "tl.int1"}
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Form:
    """How one operation is written; `{0}`, `{1}`, … are its operands.

    `given` says what the operands are converted to first: the type of
    the "result"; or, of a question, their "common" type or "bool".
    `exact`: of 16-bit floats it makes a 16-bit float, without rounding.
    """

    text: str
    given: str = "result"
    double: str | None = None
    integer: str | None = None
    boolean: str | None = None
    exact: bool = False

    def written(self, dtype: torch.dtype) -> str:
        """The text for operands of this type."""
        if dtype == torch.bool and self.boolean:
            return self.boolean
        if not dtype.is_floating_point and self.integer:
            return self.integer
        if dtype == torch.float64 and self.double:
            return self.double
        return self.text


def _libdevice(names: str) -> dict[str, Form]:
    """Functions of one float that libdevice has under the same name."""
    return {name: Form(f"libdevice.{name}({{0}})")
            for name in names.split()}


def _infix(given: str, **signs: str) -> dict[str, Form]:
    """Operators that stand between their operands."""
    return {name: Form(f"{{0}} {sign} {{1}}", given)
            for name, sign in signs.items()}


FORMS: dict[str, Form] = {
    **_libdevice("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin
        acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma
        rsqrt"""),
    **_infix("common", eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">="),
    **_infix("bool", logical_and="&", logical_or="|", logical_xor="^"),
    **_infix("result", bitwise_and="&", bitwise_or="|", bitwise_xor="^",
             sub="-"),
    "logical_not": Form("{0} == 0", "bool"),
    "isnan": Form("{0} != {0}", "common"),
    "isinf": Form("tl.abs({0}) == float('inf')", "common",
                  integer="{0} != {0}"),
    "signbit": Form("device.signbit({0})", "common", integer="{0} < 0"),
    "cast": Form("{0}"),
    "neg": Form("-{0}", exact=True),
    "abs": Form("tl.abs({0})", boolean="{0}", exact=True),
    "sign": Form("device.sign({0})", boolean="{0}", exact=True),
    "relu": Form("device.maximum({0}, 0.0)", integer="tl.maximum({0}, 0)",
                 exact=True),
    "sqrt": Form("tl.sqrt_rn({0})", double="tl.sqrt({0})"),
    "reciprocal": Form("tl.div_rn(1.0, {0})", double="1.0 / {0}"),
    "sigmoid": Form("tl.div_rn(1.0, 1.0 + libdevice.exp(-{0}))",
                    double="1.0 / (1.0 + libdevice.exp(-{0}))"),
    "floor": Form("tl.floor({0})", integer="{0}", exact=True),
    "ceil": Form("tl.ceil({0})", integer="{0}", exact=True),
    "trunc": Form("libdevice.trunc({0})", integer="{0}", exact=True),
    "round": Form("libdevice.rint({0})", integer="{0}", exact=True),
    "bitwise_not": Form("-{0} - 1", boolean="{0} == 0"),
    "add": Form("{0} + {1}", boolean="{0} | {1}"),
    "mul": Form("{0} * {1}", boolean="{0} & {1}"),
    "div": Form("tl.div_rn({0}, {1})", double="{0} / {1}"),
    "div_floor": Form("device.float_floor_divide({0}, {1})",
                      integer="device.floor_divide({0}, {1})"),
    "div_trunc": Form("libdevice.trunc(device.divide({0}, {1}))",
                      integer="{0} // {1}"),
    "remainder": Form("device.float_modulo({0}, {1})",
                      integer="device.modulo({0}, {1})"),
    "fmod": Form("libdevice.fmod({0}, {1})", integer="{0} % {1}"),
    "pow": Form("libdevice.pow({0}, {1})",
                integer="device.integer_power({0}, {1})"),
    "atan2": Form("libdevice.atan2({0}, {1})"),
    "hypot": Form("libdevice.hypot({0}, {1})"),
    "copysign": Form("libdevice.copysign({0}, {1})", exact=True),
    "maximum": Form("device.maximum({0}, {1})", boolean="{0} | {1}",
                    integer="tl.maximum({0}, {1})", exact=True),
    "minimum": Form("device.minimum({0}, {1})", boolean="{0} & {1}",
                    integer="tl.minimum({0}, {1})", exact=True),
    "fmax": Form("libdevice.fmax({0}, {1})", boolean="{0} | {1}",
                 integer="tl.maximum({0}, {1})", exact=True),
    "fmin": Form("libdevice.fmin({0}, {1})", boolean="{0} & {1}",
                 integer="tl.minimum({0}, {1})", exact=True),
    "bitwise_left_shift": Form("device.shift_left({0}, {1})"),
    "bitwise_right_shift": Form("device.shift_right({0}, {1})"),
    "where": Form("tl.where({0}, {1}, {2})", exact=True),
    "uniform": Form("device.uniform({0}, {1}, {2})", "common"),
}

#: Where eager rounds a number to the other operand's 16-bit type first.
ROUNDS_NUMBERS = {"pow", "fmod", "remainder", "lt", "le", "gt", "ge"}


def operation(node: Op, texts: list[str], exact: bool = True) -> str:
    """The Op on operands of these texts, rounded to its dtype.

    The texts are names of values, each held as `held` says. Unless
    `exact`, a quotient may be off by two units in the last place.
    """
    form, work = FORMS[node.name], working_type(FORMS[node.name], node)
    text, parts = form.written(work), node.operands
    if node.name == "div" and not exact:
        text = form.double
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
    made = work if form.given == "result" else torch.bool
    if form.exact and node.dtype in HALVES and _all_halves(node):
        return text
    return convert(text, made, node.dtype)


def _inverse(number: float, work: torch.dtype) -> float:
    """What eager multiplies by, on a GPU, instead of dividing."""
    return (1 / torch.tensor(number, dtype=work)).item()


def _power(value: Expression, power: int, dtype: torch.dtype,
           text: str) -> str:
    """A square or cube as eager computes it: rounded at every step."""
    square = Op("mul", (value, value), dtype)
    squared = operation(square, [text, text])
    return squared if power == 2 else operation(
        Op("mul", (square, value), dtype), [_whole(squared), text])


def _number(node: Op, number: Const, work: torch.dtype, block: bool) -> str:
    """A number as an operand."""
    value = number.value
    if node.name in ROUNDS_NUMBERS and number.dtype in HALVES:
        value = torch.tensor(value, dtype=number.dtype).item()
    return literal(value, work, block)


def working_type(form: Form, node: Op) -> torch.dtype:
    """The type in which an operation is computed."""
    if form.given == "bool":
        return torch.bool
    parts = node.operands[node.name == "where":]
    kinds = [p.dtype for p in parts if not isinstance(p, Const)] or [
        p.dtype for p in parts]
    if form.given == "result":
        kinds.append(node.dtype)
    return held(reduce(torch.promote_types, kinds))


def held(dtype: torch.dtype) -> torch.dtype:
    """The type in which a value of `dtype` is held between operations."""
    return torch.float32 if dtype in HALVES else dtype


def convert(text: str, given: torch.dtype, wanted: torch.dtype) -> str:
    """A held value of one type as a held value of another, rounded."""
    source = held(given)
    if wanted in HALVES and given != wanted:
        single = _as(text, source, torch.float32)
        return f"device.rounded({single}, {TYPES[wanted]})"
    if wanted == torch.uint8 and source.is_floating_point:
        return f"{_whole(text)}.to(tl.int64).to(tl.uint8)"
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
        return f"({_whole(text)} != 0)"
    return f"{_whole(text)}.to({TYPES[wanted]})"


def _whole(text: str) -> str:
    """`text` so that what follows applies to all of it."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and not (letter.isalnum() or letter in "._)"):
            return f"({text})"
    return text


def _all_halves(node: Op) -> bool:
    """Whether all operands are numbers that the Op's dtype can hold."""
    def fits(part: Expression) -> bool:
        if isinstance(part, Const):
            rounded = torch.tensor(part.value, dtype=node.dtype).item()
            return rounded == part.value or part.value != part.value
        return part.dtype == node.dtype
    return all(map(fits, node.operands[node.name == "where":]))
