"""Rules: floats that are made of sizes.

`x * x.shape[0] ** -0.5` multiplies by a float that only the run knows. A
kernel computes it from the sizes, in double precision, as Python does;
without this file the multiplication is an operator's.
"""

from __future__ import annotations

import sympy
import torch

from ...core.loops import Const, Expression, Op, Position
from ..lower import OPERANDS
from ..sizes import index_of

#: How kernels compute what a float made of sizes is made of.
FLOAT_OPERATIONS = {"Add": "add", "Mul": "mul", "IntTrueDiv": "div",
              "FloatTrueDiv": "div", "FloatPow": "pow",
              "OpaqueUnaryFn_sqrt": "sqrt", "OpaqueUnaryFn_exp": "exp",
              "OpaqueUnaryFn_log2": "log2"}


def float_of(number: torch.SymFloat) -> Expression | None:
    """A float made of sizes as something a kernel can compute, if all its
    parts are known."""
    env = number.node.shape_env

    def made(expr: sympy.Expr) -> Expression | None:
        name = type(expr).__name__
        if expr.is_number:
            return Const(float(expr), torch.float64)
        if name == "ToFloat" or expr.is_integer:
            whole = expr.args[0] if name == "ToFloat" else expr
            position = Position(index_of(whole, env), torch.int64)
            return Op("cast", (position,), torch.float64)
        parts = [made(part) for part in expr.args]
        if name not in FLOAT_OPERATIONS or None in parts:
            return None
        while len(parts) > 2:
            parts[:2] = [Op(FLOAT_OPERATIONS[name], tuple(parts[:2]),
                            torch.float64)]
        return Op(FLOAT_OPERATIONS[name], tuple(parts), torch.float64)
    return made(number.node.expr)


OPERANDS[torch.SymFloat] = float_of
