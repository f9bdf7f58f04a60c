"""What every operation of the loop language is in C++ and in Triton.

One table for both: a row gives the two texts and, where they differ,
those for integers. Values of 16-bit float types are held as
float32 and rounded after each operation, so that the results are eager's,
bit for bit. Inductor has a class for each language: CppOverrides in
torch/_inductor/codegen/cpp.py, and TritonOverrides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

import torch

from ..core.errors import CompileError
from ..core.loops import Const, Expression, Op

HALVES = (torch.float16, torch.bfloat16)


def held(dtype: torch.dtype) -> torch.dtype:
    """The type in which a value of `dtype` is held between operations."""
    return torch.float32 if dtype in HALVES else dtype


@dataclass(frozen=True)
class Form:
    """How one operation is written; `{0}`, `{1}`, … are its operands.

    These are first converted to `given`: the type of the "result", their
    "common" type, or "bool". The text is of that type, or of `made`.
    `exact`: of 16-bit floats it makes a 16-bit float, without rounding.
    `rough` serves where the last bits are not eager's anyway. Also filled
    in are `{f}`, the suffix of functions of floats, `{type}`, the name of
    what is given, and `{round}`, to 16 bits if need be.
    """

    cpp: str = ""
    triton: str = ""  # the same, if not given
    cpp_integer: str = ""
    triton_integer: str = ""
    triton_rough: str = ""
    given: str = "result"
    made: torch.dtype | None = None
    exact: bool = False

    def text(self, language: str, work: torch.dtype,
             rough: bool = False) -> str:
        """The text for operands of this type."""
        names = ([f"{language}_integer"] * (not work.is_floating_point)
                 + [f"{language}_rough"] * rough + [language, "cpp"])
        return next(filter(None, (getattr(self, name, "")
                                  for name in names)))


Exact = partial(Form, exact=True)
Question = partial(Form, given="common", made=torch.bool)


def _functions(names: str) -> dict[str, Form]:
    """Functions of floats that both have under the same name."""
    return {name: Form(f"{name}{{f}}({{0}})", f"libdevice.{name}({{0}})")
            for name in names.split()}


def _infix(form: type, given: str = "result", **signs: str
           ) -> dict[str, Form]:
    """Operators that stand between their operands."""
    return {name: form(f"{{0}} {sign} {{1}}", given=given)
            for name, sign in signs.items()}


FORMS: dict[str, Form] = {
    **_functions("""exp erf exp2 expm1 log log2 log10 log1p sin cos tan
        asin acos atan sinh cosh tanh asinh acosh atanh erfc lgamma"""),
    **_infix(Form, add="+", sub="-", mul="*", bitwise_and="&",
             bitwise_or="|", bitwise_xor="^"),
    **_infix(Question, "common", eq="==", ne="!=", lt="<", le="<=",
             gt=">", ge=">="),
    **_infix(Question, "bool", logical_and="&", logical_or="|",
             logical_xor="^"),
    "logical_not": Question("!{0}", "{0} == 0", given="bool"),
    "isnan": Question("{0} != {0}"),
    "cast": Exact("{0}", given="common"),
    "neg": Exact("-{0}"),
    "abs": Exact("fabs{f}({0})", "tl.abs({0})", "{0} < 0 ? -{0} : {0}"),
    "sign": Exact("({type})(({0} > 0) - ({0} < 0))", "device.sign({0})"),
    "relu": Exact("{0} < 0 ? 0 : {0}", "device.maximum({0}, 0.0)",
                  triton_integer="tl.maximum({0}, 0)"),
    "sqrt": Form("sqrt{f}({0})", "device.sqrt({0})"),
    "rsqrt": Form("1 / sqrt{f}({0})", "libdevice.rsqrt({0})"),
    "reciprocal": Form("1 / {0}", "device.divide(1.0, {0})"),
    "sigmoid": Form("1 / (1 + exp{f}(-{0}))",
                    "device.divide(1.0, 1.0 + libdevice.exp(-{0}))"),
    "floor": Exact("floor{f}({0})", "tl.floor({0})"),
    "ceil": Exact("ceil{f}({0})", "tl.ceil({0})"),
    "trunc": Exact("trunc{f}({0})", "libdevice.trunc({0})"),
    "round": Exact("rint{f}({0})", "libdevice.rint({0})"),
    "bitwise_not": Form("~{0}", "-{0} - 1"),
    "div": Form("{0} / {1}", "device.divide({0}, {1})",
                triton_rough="{0} / {1}"),
    "maximum": Exact("maximum<{type}>({0}, {1})",
                     "device.maximum({0}, {1})"),
    "minimum": Exact("minimum<{type}>({0}, {1})",
                     "device.minimum({0}, {1})"),
    "where": Exact("{0} ? {1} : {2}", "tl.where({0}, {1}, {2})"),
}

#: Functions that kernels call, as text, beside those that all have.
FUNCTIONS: dict[str, list[str]] = {"cpp": [], "triton": []}
#: Operations that are another one on integers, or on bools.
OF_INTEGERS = {"floor": "cast", "ceil": "cast", "trunc": "cast",
               "round": "cast", "isinf": "isnan"}
OF_BOOLS = OF_INTEGERS | {
    "add": "bitwise_or", "maximum": "bitwise_or", "fmax": "bitwise_or",
    "mul": "bitwise_and", "minimum": "bitwise_and", "fmin": "bitwise_and",
    "abs": "cast", "sign": "cast", "bitwise_not": "logical_not"}


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
    return FORMS[others.get(node.name, node.name)], work


def converted(node: Op) -> tuple[Expression, ...]:
    """The operands that are converted: not what `where` asks."""
    return node.operands[node.name == "where":]


def rounded_already(form: Form, node: Op) -> bool:
    """Whether the result, a 16-bit float, is one without rounding."""
    def fits(part: Expression) -> bool:
        if isinstance(part, Const):
            rounded = torch.tensor(part.value, dtype=node.dtype).item()
            return rounded == part.value or part.value != part.value
        return part.dtype == node.dtype
    return form.exact and all(map(fits, converted(node)))
