"""Rules: the other operations on one element.

Bools have their own arithmetic, whole numbers need no rounding, and a
division of whole numbers must not meet a zero: eager raises, which no
kernel can, so unless the divisor is a number other than 0 the operator
runs. Small constant powers are multiplications, as they are in eager.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...core.index import Index, not_negative
from ...core.loops import Expression, Op, Position
from ..lowerings import (RULES, LoweringContext, Operand, accurate,
                         elementwise, filled, pointwise)
from ..values import Value, cast


def formula(function: Callable[..., Expression]) -> Callable:
    """The rule of `function(dtype, *operands)`, rounded once at the end."""
    def rule(context: LoweringContext, *operands: Operand) -> Value:
        dtype = accurate(context.dtype)
        return pointwise(context, lambda *given: cast(
            function(dtype, *given), context.dtype), operands, dtype)
    return rule


def scaled(name: str) -> Callable:
    """The rule of a + alpha * b and a - alpha * b."""
    def rule(context: LoweringContext, a: Operand, b: Operand,
             alpha: Operand = 1) -> Value:
        if alpha == 1:
            return elementwise(name)(context, a, b)
        return formula(lambda dtype, x, y, by: Op(name, (x, Op(
            "mul", (y, by), dtype)), dtype))(context, a, b, alpha)
    return rule


def bitwise(name: str) -> Callable:
    """The rule of an operation on bits; a bool is a single one."""
    def rule(context: LoweringContext, *operands: Operand) -> Value:
        bits = context.dtype != torch.bool
        return elementwise(name if bits else name.replace(
            "bitwise", "logical"))(context, *operands)
    return rule


def rounding(name: str) -> Callable:
    """The rule of a rounding: whole numbers are round already."""
    return lambda context, a: elementwise(name)(context, a) if (
        context.dtype.is_floating_point) else a


def dividing(name: str) -> Callable:
    """The rule of a division, or its remainder, that leaves no fraction;
    a kernel cannot raise, so a whole divisor must not be 0."""
    def rule(context: LoweringContext, a: Operand, b: Operand
             ) -> Value | None:
        safe = (isinstance(b, (int, float)) and b != 0 or isinstance(
            b, Index) and not_negative(b - 1))
        if not (context.dtype.is_floating_point or safe):
            return None
        return elementwise(name)(context, a, b)
    return rule


def divide(context: LoweringContext, a: Operand, b: Operand, *,
           rounding_mode: str | None = None) -> Value | None:
    """a / b, rounded or not."""
    rule = elementwise("div") if rounding_mode is None else (
        dividing(f"div_{rounding_mode}"))
    return rule(context, a, b)


def power(context: LoweringContext, a: Operand, b: Operand
          ) -> Value | None:
    """a ** b; small constant powers are multiplications."""
    floating = context.dtype.is_floating_point
    if isinstance(b, (Value, Index, Op)) or b not in POWERS:
        return elementwise("pow")(context, a, b) if floating else None
    if b in (0.5, -0.5, -1) and not floating:
        return None
    return formula(POWERS[b])(context, a)


def multiplied(dtype: torch.dtype, x: Expression, *rest: Expression
               ) -> Expression:
    """The product of the operands, from the left."""
    for other in rest:
        x = Op("mul", (x, other), dtype)
    return x


#: x ** n as eager computes it.
POWERS = {
    1: lambda dtype, x: x,
    2: lambda dtype, x: multiplied(dtype, x, x),
    3: lambda dtype, x: multiplied(dtype, x, x, x),
    0.5: lambda dtype, x: Op("sqrt", (x,), dtype),
    -0.5: lambda dtype, x: Op("rsqrt", (x,), dtype),
    -1: lambda dtype, x: Op("reciprocal", (x,), dtype),
}


def clamp(context: LoweringContext, a: Value, least: Operand | None = None,
          most: Operand | None = None, **names) -> Value:
    """`a`, but no less than `least` and no more than `most`."""
    bounds = {"maximum": names.get("min", least),
              "minimum": names.get("max", most)}
    for name, bound in bounds.items():
        if bound is not None:
            a = elementwise(name)(context, a, bound)
    return a


def arange(context: LoweringContext, *bounds, step: int = 1, **__
           ) -> Value | None:
    """arange(end), arange(start, end) and arange(start, end, step)."""
    start, _, step = ((0, *bounds, step), (*bounds, step), bounds)[
        len(bounds) - 1]
    return iota(context, None, start=start, step=step)


def iota(context: LoweringContext, _: object, *, start, step, **__
         ) -> Value | None:
    """start, start + step, start + 2 * step, …; whole numbers only."""
    if context.dtype.is_floating_point or not (
            isinstance(start, (int, Index)) and isinstance(step, int)):
        return None
    return context.value(lambda point: Position(
        point[0] * step + start, context.dtype))


def second(context: LoweringContext, _: object, a: Operand,
           *rest, **__) -> Value:
    """copy(target, a), full(size, a) and full_like(tensor, a)."""
    return filled(context, a)


def constant(fill: int) -> Callable:
    """The rule of a tensor that holds one number everywhere."""
    return lambda context, *_, **__: filled(context, fill)


RULES |= {
    **dict.fromkeys(("add.Tensor", "add.Scalar"), scaled("add")),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), scaled("sub")),
    **dict.fromkeys("copy full full_like".split(), second),
    **{name: elementwise(name, lambda a: a.dtype)
       for name in "isnan isinf signbit".split()},
    **{name: elementwise(name, lambda *_: torch.bool) for name in
       "logical_not logical_and logical_or logical_xor".split()},
    **{name: elementwise(name) for name in
       "bitwise_left_shift bitwise_right_shift".split()},
    **{name: bitwise(name) for name in
       "bitwise_not bitwise_and bitwise_or bitwise_xor".split()},
    **{name: rounding(name) for name in "floor ceil trunc".split()},
    "round.default": rounding("round"),
    **{name: dividing(name) for name in "remainder fmod".split()},
    "floor_divide": dividing("div_floor"), "div": divide,
    "pow": power, "square": lambda context, a: power(context, a, 2),
    "clamp": clamp, "positive": filled,
    "max.other": elementwise("maximum"),
    "min.other": elementwise("minimum"),
    **dict.fromkeys(
        """zeros zeros_like new_zeros empty.memory_format empty_like
        empty_strided new_empty new_empty_strided""".split(), constant(0)),
    **dict.fromkeys("ones ones_like new_ones".split(), constant(1)),
    "arange.default": arange, "arange.start": arange,
    "arange.start_step": arange, "prims.iota": iota,
}
