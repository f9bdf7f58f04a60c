"""A kernel's operations, in the words of one language.

In: an operation of the loop language, a number or an index; operands are
texts already. Out: the text of one value, in the type that holds it. A
row of FORMS is an operation in C++ and in Triton; a Target is the rest of
a language's words. PyTorch's rules stand here once. Values of 16-bit float
types are held as float32 and rounded after each operation, so that sums,
products and quotients are eager's, bit for bit. Inductor has a class for
each language: CppOverrides in torch/_inductor/codegen/cpp.py, and
TritonOverrides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce

import torch

from ..core.errors import CompileError
from ..core.index import Division, Index, enclosed, not_negative
from ..core.loops import (HALVES, REDUCTIONS, Const, Expression, Op,
                          accurate, neutral)


@dataclass(frozen=True)
class Form:
    """How one operation is written; `{0}`, `{1}`, … are its operands.

    These are first converted to `given`: the type of the "result", their
    "common" type, or "bool". The text is of that type, or of `made`.
    `exact`: of 16-bit floats it makes a 16-bit float, without rounding.
    Other fields: `{f}` is the suffix of functions of floats, `{type}` the
    name of the operands' type, `{last}` the number of its last bit;
    `{round}` rounds to 16 bits if need be.
    """

    cpp: str = ""
    triton: str = ""  # the same, if not given
    given: str = "result"
    made: torch.dtype | None = None
    exact: bool = False

    def text(self, language: str) -> str:
        """The text in this language."""
        return getattr(self, language) or self.cpp


Exact = partial(Form, exact=True)
Question = partial(Form, given="common", made=torch.bool)


def functions(names: str, given: str = "{0}", form: Callable = Form
              ) -> dict[str, Form]:
    """Functions of floats that both have under the same name."""
    return {name: form(f"{name}{{f}}({given})",
                       f"libdevice.{name}({given})")
            for name in names.split()}


def infix(form: type, given: str = "result", **signs: str
          ) -> dict[str, Form]:
    """Operators that stand between their operands."""
    return {name: form(f"{{0}} {sign} {{1}}", given=given)
            for name, sign in signs.items()}


FORMS: dict[str, Form] = {
    **functions("exp erf log sin cos tanh"),
    **infix(Form, add="+", sub="-", mul="*", bitwise_and="&",
            bitwise_or="|"),
    **infix(Question, "common", eq="==", ne="!=", lt="<", le="<=",
            gt=">", ge=">="),
    **infix(Question, "bool", logical_and="&", logical_or="|"),
    "cast": Exact("{0}", given="common"),
    "neg": Exact("-{0}", "device.negated({0})"),
    "relu": Exact("{0} < 0 ? 0 : {0}", "device.maximum({0}, 0)"),
    "sqrt": Form("sqrt{f}({0})", "device.sqrt({0})"),
    "rsqrt": Form("1 / sqrt{f}({0})", "libdevice.rsqrt({0})"),
    "reciprocal": Form("1 / {0}", "device.inverse({0})"),
    "sigmoid": Form("1 / (1 + exp{f}(-{0}))",
                    "device.inverse(1.0 + libdevice.exp(-{0}))"),
    "div": Form("{0} / {1}", "device.divide({0}, {1})"),
    "maximum": Exact("maximum<{type}>({0}, {1})",
                     "device.maximum({0}, {1})"),
    "minimum": Exact("minimum<{type}>({0}, {1})",
                     "device.minimum({0}, {1})"),
    "where": Exact("{0} ? {1} : {2}", "tl.where({0}, {1}, {2})"),
}

#: Functions that kernels call, as text, beside those that all have.
FUNCTIONS: dict[str, list[str]] = {"cpp": [], "triton": []}
#: How operations are written that mean another one on integers, or on
#: bools.
OF_INTEGERS: dict[str, Form] = {}
OF_BOOLS = {
    **dict.fromkeys(("add", "maximum"), FORMS["bitwise_or"]),
    **dict.fromkeys(("mul", "minimum"), FORMS["bitwise_and"])}


def form_of(node: Op) -> tuple[Form, torch.dtype]:
    """How the operation is written, and the type in which it works."""
    if node.name not in FORMS:
        raise CompileError(f"no kernel can compute {node.name} here")
    form, parts = FORMS[node.name], converted(node)
    kinds = [part.dtype for part in parts if not isinstance(part, Const)
             ] or [part.dtype for part in parts]
    if form.given != "common":
        kinds.append(node.dtype)
    work = torch.bool if form.given == "bool" else reduce(
        torch.promote_types, kinds)
    others = OF_BOOLS if work == torch.bool else (
        {} if work.is_floating_point else OF_INTEGERS)
    return others.get(node.name, form), work


def converted(node: Op) -> tuple[Expression, ...]:
    """The operands that are converted: not the condition of `where`."""
    return node.operands[node.name == "where":]


#: Whole numbers of 8 binary digits, which any float holds.
EIGHT_BITS = torch.bool, torch.uint8, torch.int8


def rounded_already(form: Form, node: Op) -> bool:
    """Whether the result, a 16-bit float, is one without rounding."""
    def fits(part: Expression) -> bool:
        if isinstance(part, Const):
            rounded = torch.tensor(part.value, dtype=node.dtype).item()
            return rounded == part.value or part.value != part.value
        return part.dtype in (node.dtype, *EIGHT_BITS)
    return form.exact and all(map(fits, converted(node)))


@dataclass(frozen=True)
class Target:
    """The words of a language; `{0}` is a text, `{type}` a type's name.

    `cast` converts, but floats and bools as `floats_as` and `truths_as`
    say, by the new dtype; `truth` makes a bool, `rounded` rounds a float32
    to 16 bits. `numbers` are the forms of literals by dtype, `special`
    those of some; `scalar` makes a value of a literal. `quotient` is the
    sign that divides whole numbers; names of `functions` start so. A
    reduction of a type that is `reduced_as` another is accumulated in it.
    `named` is a line that names a value, `declared` one that starts an
    accumulator of a `shape`, `assigned` one that changes it; a block is
    `opened` and `closed`.
    """

    language: str
    types: Mapping[torch.dtype, str]
    cast: str
    truth: str
    rounded: str
    quotient: str
    special: Mapping[str, str]
    floats_as: Mapping[torch.dtype, str]
    truths_as: Mapping[torch.dtype, str] = field(default_factory=dict)
    single: Callable[[float], str] = repr
    functions: str = "device."
    number: str = "{0}"
    numbers: Mapping[torch.dtype, str] = field(default_factory=dict)
    scalar: str = "{0}"
    scalars: tuple[torch.dtype, ...] = ()
    reduced_as: Mapping[tuple[str, torch.dtype], torch.dtype] = field(
        default_factory=dict)
    named: str = "{0} = {1}"
    declared: str = "{0} = tl.full({shape}, {1}, {type})"
    assigned: str = "{0} = {1}"
    opened: str = ""
    closed: tuple[str, ...] = ()

    def type_of(self, dtype: torch.dtype) -> str:
        """The type that holds a value of this dtype."""
        return self.types[accurate(dtype)]

    def operation(self, op: Op, operands: list[str],
                  form: Form | None = None) -> str:
        """The text of an operation on operands that are written already;
        of another form than its own, if one is given."""
        known, work = form_of(op)
        form = form or known
        text = form.text(self.language)
        wanted = [work] * len(operands)
        if op.name == "where":
            wanted[0] = torch.bool
        called = "device." in text or text.partition("(")[0].isidentifier()
        value = called or all(
            isinstance(part, Const) for part in op.operands)
        texts = [enclosed(
            self.literal(part.value, kind, value)
            if isinstance(part, Const)
            else self.convert(given, part.dtype, kind))
            for part, given, kind in zip(op.operands, operands, wanted)]
        text = text.format(
            *texts, type=self.type_of(work), last=8 * work.itemsize - 1,
            f="" if work == torch.float64 else "f",
            round=f"{self.types[work]}::rounded" * (work in HALVES)
        ).replace("--", "- -")
        exact = op.dtype in HALVES and rounded_already(form, op)
        return self.convert(text, form.made or accurate(work),
                            accurate(op.dtype) if exact else op.dtype)

    def convert(self, text: str, given: torch.dtype,
                wanted: torch.dtype) -> str:
        """A value of one dtype as another, by PyTorch's rules."""
        source = accurate(given)
        if wanted in (given, source):
            return text
        if wanted in HALVES:
            return self.rounded.format(
                self.convert(text, source, torch.float32),
                type=self.types[wanted])
        if wanted == torch.bool:
            return self.truth.format(enclosed(text))
        forms = self.floats_as if source.is_floating_point else (
            self.truths_as if given == torch.bool else {})
        return forms.get(wanted, self.cast).format(
            enclosed(text), type=self.types[wanted])

    def literal(self, value: bool | int | float, dtype: torch.dtype,
                scalar: bool = False) -> str:
        """A number in the type that holds `dtype`."""
        dtype = accurate(dtype)
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

    def neutral(self, reduction: str, dtype: torch.dtype) -> str:
        """The literal that changes no result of the reduction."""
        return self.literal(neutral(reduction, dtype), dtype)

    def combined(self, reduction: str, dtype: torch.dtype, *partial: str
                 ) -> str:
        """Two partial results as one: the reduction's repeated step."""
        form = FORMS[REDUCTIONS[reduction][1]]
        return form.text(self.language).format(
            *partial, type=self.types[dtype])

    def index(self, where: Index) -> str:
        """An index of elements."""
        return where.text(self._division)

    def _division(self, atom: Division) -> str:
        """A division that rounds down; a function, if a quotient may be
        negative."""
        sides = map(self.index, (atom.dividend, atom.divisor))
        quotient = atom.sign == "//"
        if not_negative(atom.dividend):
            return (self.quotient if quotient else "%").join(
                map(enclosed, sides))
        name = "floor_quotient" if quotient else "floor_rest"
        return f"{self.functions}{name}({', '.join(sides)})"


def shortest(value: float) -> str:
    """The fewest digits that mean this number as a float32."""
    return str(torch.tensor(value, dtype=torch.float32).numpy())


_NAMES = {torch.float64: "double", torch.float32: "float",
          torch.bool: "bool"}
_NARROW = (torch.int16, torch.int8, torch.uint8)
_WHOLE = (torch.int64, torch.int32, *_NARROW)

#: C++ leaves open what a negative float is as an unsigned number. A long
#: sum of floats would lose digits; a double does not. g++ makes no vectors
#: of a loop that reduces a `bool`.
CPP = Target(
    "cpp", _NAMES | {dtype: str(dtype)[6:] for dtype in _WHOLE},
    cast="({type}){0}", truth="{0} != 0", floats_as={
        **dict.fromkeys(_WHOLE, "cut<{type}>({0})"),
        **dict.fromkeys(_NARROW, "({type})(int64){0}")},
    truths_as=dict.fromkeys((torch.float32, torch.float64),
                            "{0} ? 1.0f : 0.0f"),
    rounded="{type}::rounded({0})", quotient="/", functions="",
    single=shortest, number="({type}){0}",
    numbers={torch.float64: "{0}", torch.float32: "{0}f",
             torch.int64: "{0}ll"},
    special={"True": "true", "False": "false", "inf": "infinity",
             "-inf": "-infinity", "nan": "not_a_number",
             str(-2 ** 63): "least"},
    reduced_as={("sum", torch.float32): torch.float64, **{
        (kind, torch.bool): torch.uint8 for kind in ("any", "all")}},
    named="const {type} {0} = {1};", declared="{type} {0} = {1};",
    assigned="{0} = {1};", opened=" {", closed=("}",))

#: Triton takes a literal for a float32, even beside a float64.
TRITON = Target(
    "triton", {dtype: f"tl.{str(dtype)[6:]}" for dtype in (
        *_NAMES, *_WHOLE, *HALVES)} | {torch.bool: "tl.int1"},
    cast="{0}.to({type})", truth="({0} != 0)",
    rounded="device.rounded({0}, {type})", quotient="//",
    floats_as={torch.uint8: "{0}.to(tl.int64).to({type})"},
    scalars=(torch.float64,),
    reduced_as={(kind, dtype): torch.int32 for kind in REDUCTIONS
                for dtype in (*_NARROW, torch.bool)},
    scalar="tl.full((), {0}, {type})",
    special={text: f"float('{text}')" for text in ("inf", "-inf", "nan")})
