"""What every operation of the loop language is in C++: one table.

A row gives the text for floats and, where it differs, for integers.
16-bit floats are computed as float and rounded after each operation, as
eager does, so that results are eager's. Inductor's table is CppOverrides in
torch/_inductor/codegen/cpp.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import isfinite

import torch

from ..core.loops import Const, Expression, Op

#: C++'s name for an element in memory, by dtype.
TYPES = {torch.float64: "double", torch.float32: "float",
         torch.float16: "half", torch.bfloat16: "bfloat",
         torch.int64: "int64", torch.int32: "int32", torch.int16: "int16",
         torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool"}
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Form:
    """How an operation is written; `{0}`, `{1}`, … are its operands.

    They are first converted to `given`: their "common" type, the same but
    a "float" at least, or "bool". That is also the type of the text,
    unless it `asks`: then bool. `exact`: no rounding can be needed. Also
    filled in: `{f}`, the suffix of functions of floats; `{type}`, C++'s
    name for what is given; `{round}`, a rounding to 16 bits, or nothing.
    """

    text: str
    integer: str | None = None
    given: str = "common"
    asks: bool = False
    exact: bool = False


def _functions(names: str) -> dict[str, Form]:
    """Functions of floats that the C library has under the same name."""
    return {name: Form(f"{name}{{f}}({{0}})", given="float")
            for name in names.split()}


def _infix(given: str, asks: bool, **signs: str) -> dict[str, Form]:
    """Operators that stand between their operands."""
    return {name: Form(f"{{0}} {sign} {{1}}", None, given, asks)
            for name, sign in signs.items()}


FORMS: dict[str, Form] = {
    **_functions("""exp2 expm1 log log2 log10 log1p sqrt sin cos tan
        asin acos atan sinh cosh tanh asinh acosh atanh erfc
        lgamma"""),
    **_infix("common", False, add="+", sub="-", mul="*",
             bitwise_and="&", bitwise_or="|", bitwise_xor="^"),
    **_infix("common", True, eq="==", ne="!=", lt="<", le="<=", gt=">",
             ge=">="),
    **_infix("bool", True, logical_and="&", logical_or="|",
             logical_xor="^"),
    "exp": Form("vector_exp({0})", given="float"),
    "erf": Form("vector_erf({0})", given="float"),
    "div": Form("{0} / {1}", given="float"),
    "neg": Form("-{0}", exact=True),
    "abs": Form("fabs{f}({0})", "{0} < 0 ? -{0} : {0}", exact=True),
    "sign": Form("({type})(({0} > 0) - ({0} < 0))", exact=True),
    "relu": Form("{0} < 0 ? 0 : {0}", exact=True),
    "rsqrt": Form("1 / sqrt{f}({0})", given="float"),
    "reciprocal": Form("1 / {0}", given="float"),
    "sigmoid": Form("1 / (1 + vector_exp(-{0}))", given="float"),
    "floor": Form("floor{f}({0})", "{0}", exact=True),
    "ceil": Form("ceil{f}({0})", "{0}", exact=True),
    "trunc": Form("trunc{f}({0})", "{0}", exact=True),
    "round": Form("rint{f}({0})", "{0}", exact=True),
    "isnan": Form("{0} != {0}", asks=True),
    "isinf": Form("fabs{f}({0}) == infinity", "false", asks=True),
    "signbit": Form("sign_bit({0})", "{0} < 0", asks=True),
    "div_floor": Form("divide_floor<{type}>({0}, {1})"),
    "div_trunc": Form("trunc{f}({round}({0} / {1}))",
                      "divide_whole<{type}>({0}, {1})"),
    "remainder": Form("modulo<{type}>({0}, {1})"),
    "fmod": Form("fmod{f}({0}, {1})", "rest<{type}>({0}, {1})"),
    "pow": Form("pow{f}({0}, {1})", "integer_power<{type}>({0}, {1})"),
    "atan2": Form("atan2{f}({0}, {1})", given="float"),
    "hypot": Form("hypot{f}({0}, {1})", given="float"),
    "copysign": Form("copysign{f}({0}, {1})", given="float", exact=True),
    "maximum": Form("maximum<{type}>({0}, {1})", exact=True),
    "minimum": Form("minimum<{type}>({0}, {1})", exact=True),
    "fmax": Form("{0} >= {1} | {1} != {1} ? {0} : {1}", exact=True),
    "fmin": Form("{0} <= {1} | {1} != {1} ? {0} : {1}", exact=True),
    "logical_not": Form("!{0}", given="bool", asks=True),
    "bitwise_not": Form("~{0}"),
    "bitwise_left_shift": Form("shift_left<{type}>({0}, {1})"),
    "bitwise_right_shift": Form("shift_right<{type}>({0}, {1})"),
    "where": Form("{0} ? {1} : {2}", exact=True),
    "cast": Form("{0}", exact=True),
    "uniform": Form("uniform({0}, {1}, {2})", exact=True),
}

#: What is different for bools.
BOOLEAN = {"bitwise_not": "!{0}", "add": "{0} | {1}", "abs": "{0}"}

#: Operations that cost far more than an access to the cache.
DEAR = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid pow
    atan2 hypot remainder fmod div_floor uniform""".split())


def held(dtype: torch.dtype) -> torch.dtype:
    """The type in which a value of `dtype` is held between operations."""
    return torch.float32 if dtype in HALVES else dtype


def repeated(node: Expression, place: int) -> int:
    """How often the text of a node repeats its operand at `place`."""
    if not isinstance(node, Op):
        return 1
    form, mark = FORMS[node.name], f"{{{place}}}"
    return max(form.text.count(mark), (form.integer or "").count(mark))


def operation(op: Op, operands: list[str]) -> str:
    """The text of an operation on operands that are written already."""
    form = FORMS[op.name]
    converted = op.operands[op.name == "where":]
    given = _given(form, converted, op.dtype)
    texts = [_operand(text, part, given) if part in converted else text
             for text, part in zip(operands, op.operands, strict=True)]
    text = form.text
    if not given.is_floating_point:
        text = form.integer or text
    if given == torch.bool:
        text = BOOLEAN.get(op.name, text)
    kind = TYPES[held(given)]
    texts = [part if _is_argument(text, number) else enclosed(part)
             for number, part in enumerate(texts)]
    text = text.format(*texts, type=kind,
                       f="" if given == torch.float64 else "f",
                       round=f"round_{TYPES[given]}"
                       if given in HALVES else "")
    if form.asks:
        return convert(text, torch.bool, op.dtype)
    if given in _NARROW:
        text = f"({kind})({text})"
    made = op.dtype if form.exact and given == op.dtype else held(given)
    return convert(text, made, op.dtype)


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


def _given(form: Form, operands: tuple[Expression, ...],
           result: torch.dtype) -> torch.dtype:
    """The dtype that the operands are converted to."""
    if form.given == "bool":
        return torch.bool
    kinds = [type(o.value) if isinstance(o, Const) else o.dtype
             for o in operands]
    if all(isinstance(kind, type) for kind in kinds):
        kinds = [o.dtype for o in operands]
    dtype = _common(*kinds)
    if form.given == "float" and not dtype.is_floating_point:
        return result if result.is_floating_point else torch.float32
    return dtype


@cache
def _common(*kinds: type | torch.dtype) -> torch.dtype:
    """What Python numbers and elements of tensors promote to."""
    samples = [kind(1) if isinstance(kind, type) else
               torch.empty(1, dtype=kind, device="meta") for kind in kinds]
    return torch.result_type(samples[0], samples[-1])


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
