"""A kernel's expressions, in the words of one language.

In: an operation of the loop language, a number or an index; operands are
texts already. Out: the text of one value, in the type that holds it. The
rules are PyTorch's and stand here once; a Target is the table of words
that C++ or Triton has for them. Inductor has a class for each language:
torch/_inductor/codegen/cpp_utils.py and torch/_inductor/codegen/triton.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import c_float
from dataclasses import dataclass, field

import torch

from ..core.index import Division, Index, enclosed, not_negative
from ..core.loops import REDUCTIONS, Const, Expression, Op, neutral
from .operations import FORMS, HALVES, form_of, held, rounded_already
from .stages import Local


@dataclass(frozen=True)
class Target:
    """The words of a language; `{0}` is a text, `{type}` a type's name.

    `cast` converts, `truth` makes a bool, `truth_as_float` a float of it,
    `rounded` rounds a float32 to 16 bits. Floats become one of the types
    in `detour` by way of a wide integer. Arithmetic leaves the types in
    `promoted`. `numbers` are the forms of literals by dtype, `special`
    those of some; `scalar` makes a value of a literal. `quotient` is the
    sign that divides whole numbers. Those that are `reduced_as` another
    type are accumulated in it. `named` is a line that
    names a value; a block is `opened` and `closed`.
    """

    language: str
    types: Mapping[torch.dtype, str]
    cast: str
    truth: str
    rounded: str
    quotient: str
    special: Mapping[str, str]
    truth_as_float: str = ""
    detour: tuple[torch.dtype, ...] = ()
    promoted: tuple[torch.dtype, ...] = ()
    single: Callable[[float], str] = repr
    number: str = "{0}"
    numbers: Mapping[torch.dtype, str] = field(default_factory=dict)
    scalar: str = "{0}"
    scalars: tuple[torch.dtype, ...] = ()
    reduced_as: Mapping[torch.dtype, torch.dtype] = field(
        default_factory=dict)
    named: str = "{0} = {1}"
    opened: str = ""
    closed: tuple[str, ...] = ()

    def type_of(self, dtype: torch.dtype) -> str:
        """The type that holds a value of this dtype."""
        return self.types[held(dtype)]

    def operation(self, op: Op, operands: list[str],
                  rough: bool = False) -> str:
        """The text of an operation on operands that are written already.

        If `rough`, its last bits need not be eager's.
        """
        form, work = form_of(op)
        text = form.text(self.language, work, rough)
        wanted = [work] * len(operands)
        if op.name == "where":
            wanted[0] = torch.bool
        alone = all(isinstance(part, Const) for part in op.operands)
        texts = [self._operand(*each, alone or "device." in text)
                 for each in zip(op.operands, operands, wanted)]
        text = text.format(
            *texts, type=self.type_of(work),
            f="" if work == torch.float64 else "f",
            round=f"rounded<{self.types[work]}>" * (work in HALVES)
        ).replace("--", "- -")
        if work in self.promoted and form.made is None:
            text = self._as(f"({text})", work)
        if op.dtype in HALVES and rounded_already(form, op):
            return text
        return self.convert(text, form.made or held(work), op.dtype)

    def _operand(self, part: Expression, text: str, wanted: torch.dtype,
                 value: bool) -> str:
        """An operand as `wanted`; a number as a `value`, if need be."""
        if isinstance(part, Const):
            return enclosed(self.literal(part.value, wanted, value))
        return enclosed(self.convert(text, part.dtype, wanted))

    def convert(self, text: str, given: torch.dtype,
                wanted: torch.dtype) -> str:
        """A value of one dtype as another, by PyTorch's rules."""
        source = held(given)
        if wanted in (given, source):
            return text
        if wanted in HALVES:
            return self.rounded.format(
                self.convert(text, source, torch.float32),
                type=self.types[wanted])
        if wanted == torch.bool:
            return self.truth.format(enclosed(text))
        if given == torch.bool and wanted.is_floating_point and (
                self.truth_as_float):
            return self.truth_as_float.format(enclosed(text))
        if source.is_floating_point and wanted in self.detour:
            text = self._as(text, torch.int64)
        return self._as(text, wanted)

    def _as(self, text: str, wanted: torch.dtype) -> str:
        """The text converted as the language does it."""
        return self.cast.format(enclosed(text), type=self.types[wanted])

    def literal(self, value: bool | int | float, dtype: torch.dtype,
                scalar: bool = False) -> str:
        """A number in the type that holds `dtype`."""
        dtype = held(dtype)
        if dtype == torch.bool:
            text = repr(bool(value))
        elif dtype.is_floating_point:
            text = (repr if dtype == torch.float64 else self.single)(
                float(value))
        else:
            low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            text = repr((int(value) - low) % (high - low + 1) + low)
        kind = self.types[dtype]
        text = self.special.get(text) or self.numbers.get(
            dtype, self.number).format(text, type=kind)
        return self.scalar.format(text, type=kind) if (
            scalar or dtype in self.scalars) else text

    def accumulator(self, fold: Local) -> torch.dtype:
        """The dtype in which a reduction is accumulated."""
        given = held(fold.operands[0].dtype)
        return self.reduced_as.get(given, given)

    def neutral(self, fold: Local) -> str:
        """What changes no result of the reduction."""
        dtype = self.accumulator(fold)
        return self.literal(neutral(fold.node.reduction, dtype), dtype)

    def combined(self, fold: Local, *partial: str) -> str:
        """Two partial results as one: what the reduction repeats."""
        form = FORMS[REDUCTIONS[fold.node.reduction][1]]
        dtype = self.accumulator(fold)
        return form.text(self.language, dtype).format(
            *partial, type=self.types[dtype])

    def index(self, where: Index) -> str:
        """An index of elements."""
        return where.text(self._division)

    def _division(self, atom: Division) -> str:
        """A division that rounds down, even if it may be negative."""
        sides = self.index(atom.dividend), self.index(atom.divisor)
        if not_negative(atom.dividend):
            sign = self.quotient if atom.sign == "//" else atom.sign
            return sign.join(map(enclosed, sides))
        form = "div_floor" if atom.sign == "//" else "remainder"
        return FORMS[form].text(self.language, torch.int64).format(
            *map(enclosed, sides), type=self.types[torch.int64])


def shortest(value: float) -> str:
    """The fewest digits that mean this number as a float32."""
    single = c_float(value).value
    texts = (repr(float(f"{single:.{digits}g}")) for digits in range(1, 10))
    return next((text for text in texts
                 if c_float(float(text)).value == single), "nan")


_NAMES = {torch.float64: "double", torch.float32: "float",
          torch.bool: "bool"}
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

#: C++ computes with narrow integers as int, and leaves open what a
#: negative float is as an unsigned number.
CPP = Target(
    "cpp", _NAMES | {dtype: str(dtype)[6:] for dtype in _WHOLE},
    cast="({type}){0}", truth="{0} != 0",
    truth_as_float="{0} ? 1.0f : 0.0f", rounded="rounded<{type}>({0})",
    quotient="/", detour=(torch.int16, torch.int8, torch.uint8),
    promoted=(torch.int16, torch.int8, torch.uint8, torch.bool),
    single=shortest, number="({type}){0}",
    numbers={torch.float64: "{0}", torch.float32: "{0}f",
             torch.int64: "{0}ll"},
    special={"True": "true", "False": "false", "inf": "infinity",
             "-inf": "-infinity", "nan": "not_a_number",
             str(-2 ** 63): "least"},
    named="const {type} {0} = {1};", opened=" {", closed=("}",))

#: Triton takes a literal for a float32, even beside a float64.
TRITON = Target(
    "triton", {dtype: f"tl.{str(dtype)[6:]}" for dtype in (
        *_NAMES, *_WHOLE, *HALVES)} | {torch.bool: "tl.int1"},
    cast="{0}.to({type})", truth="({0} != 0)",
    rounded="device.rounded({0}, {type})", quotient="//",
    detour=(torch.uint8,), scalars=(torch.float64,),
    reduced_as=dict.fromkeys(CPP.promoted, torch.int32),
    scalar="tl.full((), {0}, {type})",
    special={text: f"float('{text}')" for text in ("inf", "-inf", "nan")})
