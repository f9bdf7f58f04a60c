"""Lowering rules for operations on one element, and for made-up tensors.

In: a Site (what the node should produce) and operands. Out: a Value, or
None if no loop computes this, which then runs as the ATen op. Operands
are converted to the result's dtype before the operation, as PyTorch's
type promotion has it; comparisons have their own rule. Inductor's table
is torch/_inductor/lowering.py.
"""

from __future__ import annotations

from functools import cache

import torch

from ..core.index import Index, Variable, atoms_of, not_negative
from ..core.loops import Const, Expression, Load, Op, Position, walk
from .site import Site
from .values import Point, Value, broadcast, cast

#: An Index is a whole number made of sizes, an Op a float made of them.
Operand = Value | bool | int | float | Index | Op


def combine(site: Site, build, *operands: Operand) -> Value:
    """The value whose element is `build` of the operands' elements."""
    given = [broadcast(o, site.shape) if isinstance(o, Value) else o
             for o in operands]

    def body(point: Point) -> Expression:
        return build(*(o.at(point) if isinstance(o, Value) else number(o)
                       for o in given))
    return site.value(body)


def number(value: bool | int | float | Index | Op) -> Expression:
    """A Python number as an operand; casting it then says what it is."""
    if isinstance(value, Index):
        return Position(value, torch.int64)
    if isinstance(value, Op):
        return value
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return Const(value, kinds[type(value)])


def standing(node: Expression, dtype: torch.dtype) -> Expression:
    """An operand of dtype `dtype`; a Python number stays what it is."""
    number = isinstance(node, Const) and dtype != torch.bool and (
        node.dtype in (torch.float64, torch.int64, torch.bool))
    if number:
        return Const(node.value, dtype)
    wide = accurate(dtype)
    return cast(node, wide if wide != dtype and is_made_of_sizes(node)
                else dtype)


def is_made_of_sizes(node: Expression) -> bool:
    """Whether the node is a number that the program will know."""
    return all(not isinstance(part, Load) and not (
        isinstance(part, Position) and any(
            isinstance(atom, Variable) for atom in atoms_of(part.index)))
        for part in walk(node))


def elementwise(name: str, dtype_of=None):
    """The rule of an operation whose operands are converted to the dtype
    that `dtype_of` says: by default the result's."""
    def rule(site: Site, *operands: Operand) -> Value:
        dtype = dtype_of(*operands) if dtype_of else site.dtype

        def build(*given: Expression) -> Op:
            return Op(name, tuple(standing(g, dtype) for g in given),
                      site.dtype)
        return combine(site, build, *operands)
    return rule


def promoted(*operands: Operand) -> torch.dtype:
    """The dtype in which a comparison compares."""
    return common(*(
        (o.dtype, bool(o.shape)) if isinstance(o, Value)
        else {Index: int, Op: float}.get(type(o), type(o))
        for o in operands))


@cache
def common(*kinds: object) -> torch.dtype:
    """What kinds of operands promote to: a kind is the type of a number,
    or a tensor's dtype with whether it has dimensions."""
    return torch.result_type(*(
        kind(1) if isinstance(kind, type) else torch.empty(
            (1,) * kind[1], dtype=kind[0], device="meta")
        for kind in kinds))


def apply(name: str, dtype: torch.dtype, *operands: Expression) -> Op:
    """The operation on operands converted to `dtype`."""
    return Op(name, tuple(standing(o, dtype) for o in operands), dtype)


def accurate(dtype: torch.dtype) -> torch.dtype:
    """What eager computes in when a formula has several operations."""
    small = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if small else dtype


def formula(function):
    """The rule of `function(dtype, *operands)`, rounded once at the end."""
    def rule(site: Site, *operands: Operand) -> Value:
        dtype = accurate(site.dtype)

        def build(*given: Expression) -> Expression:
            return cast(function(dtype, *(standing(g, dtype)
                                          for g in given)), site.dtype)
        return combine(site, build, *operands)
    return rule


def bitwise(name: str):
    """The rule of an operation on bits; a bool is a single one."""
    def rule(site: Site, *operands: Operand) -> Value:
        bits = site.dtype != torch.bool
        return elementwise(name if bits else name.replace(
            "bitwise", "logical"))(site, *operands)
    return rule


def rounding(name: str):
    """The rule of a rounding: whole numbers are round already."""
    def rule(site: Site, a: Value) -> Value:
        return elementwise(name)(site, a) if (
            site.dtype.is_floating_point) else a
    return rule


def dividing(name: str):
    """The rule of a division, or its remainder, that leaves no fraction.

    Eager raises on a whole number divided by 0, which no kernel can.
    """
    def rule(site: Site, a: Operand, b: Operand) -> Value | None:
        safe = (isinstance(b, (int, float)) and b != 0 or isinstance(
            b, Index) and not_negative(b - 1))
        if not (site.dtype.is_floating_point or safe):
            return None
        return elementwise(name)(site, a, b)
    return rule


def divide(site: Site, a: Operand, b: Operand, *,
           rounding_mode: str | None = None) -> Value | None:
    """a / b, rounded or not."""
    if rounding_mode is None:
        return elementwise("div")(site, a, b)
    return dividing(f"div_{rounding_mode}")(site, a, b)


def scaled(name: str):
    """The rule of a + alpha * b and a - alpha * b."""
    def rule(site: Site, a: Operand, b: Operand, alpha=1) -> Value:
        if alpha == 1:
            return elementwise(name)(site, a, b)

        def build(dtype, x, y):
            return apply(name, dtype, x, apply(
                "mul", dtype, y, number(alpha)))
        return formula(build)(site, a, b)
    return rule


def power(site: Site, a: Operand, b: Operand) -> Value | None:
    """a ** b; small constant powers are multiplications."""
    if isinstance(b, (Value, Index, Op)) or b not in POWERS:
        floating = site.dtype.is_floating_point
        return elementwise("pow")(site, a, b) if floating else None
    if b in (0.5, -0.5, -1) and not site.dtype.is_floating_point:
        return None
    return formula(POWERS[b])(site, a)


#: x ** n as eager computes it.
POWERS = {
    1: lambda dtype, x: x,
    2: lambda dtype, x: apply("mul", dtype, x, x),
    3: lambda dtype, x: apply(
        "mul", dtype, apply("mul", dtype, x, x), x),
    0.5: lambda dtype, x: apply("sqrt", dtype, x),
    -0.5: lambda dtype, x: apply("rsqrt", dtype, x),
    -1: lambda dtype, x: apply("reciprocal", dtype, x),
}


def choose(site: Site, condition: Value, a: Operand, b: Operand) -> Value:
    """where(condition, a, b)."""
    def build(c: Expression, x: Expression, y: Expression) -> Op:
        return Op("where", (cast(c, torch.bool), standing(x, site.dtype),
                            standing(y, site.dtype)), site.dtype)
    return combine(site, build, condition, a, b)


def clamp(site: Site, a: Value, least: Operand | None = None,
          most: Operand | None = None, **names) -> Value:
    """`a`, but no less than `least` and no more than `most`."""
    bounds = {"maximum": names.get("min", least),
              "minimum": names.get("max", most)}
    for name, bound in bounds.items():
        if bound is not None:
            a = elementwise(name)(site, a, bound)
    return a


def converted(site: Site, a: Operand, *_, **__) -> Value:
    """The same numbers in the result's dtype, shape and strides."""
    return combine(site, lambda x: cast(x, site.dtype), a)


def second(site: Site, _: object, a: Operand, *rest, **__) -> Value:
    """copy(target, a), full(size, a) and full_like(tensor, a)."""
    return converted(site, a)


def constant(fill: bool | int | float):
    """The rule of a tensor that holds one number everywhere."""
    return lambda site, *_, **__: converted(site, fill)


def arange(site: Site, *bounds, step: int = 1, **__) -> Value | None:
    """arange(end), arange(start, end) and arange(start, end, step)."""
    start, _, step = ((0, *bounds, step), (*bounds, step), bounds)[
        len(bounds) - 1]
    return iota(site, None, start=start, step=step)


def iota(site: Site, _: object, *, start, step, **__) -> Value | None:
    """start, start + step, start + 2 * step, …; whole numbers only."""
    if site.dtype.is_floating_point or not (
            isinstance(start, (int, Index)) and isinstance(step, int)):
        return None
    return site.value(lambda point: Position(
        point[0] * step + start, site.dtype))


POINTWISE = {
    **{name: elementwise(name) for name in
       """neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
       cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
       lgamma sigmoid reciprocal relu mul atan2 hypot copysign maximum
       minimum fmax fmin bitwise_left_shift bitwise_right_shift""".split()},
    **{name: elementwise(name, promoted)
       for name in "eq ne lt le gt ge".split()},
    **{name: elementwise(name, lambda a: a.dtype)
       for name in "isnan isinf signbit".split()},
    **{name: elementwise(name, lambda *_: torch.bool) for name in
       "logical_not logical_and logical_or logical_xor".split()},
    **{name: bitwise(name) for name in
       "bitwise_not bitwise_and bitwise_or bitwise_xor".split()},
    **{name: rounding(name) for name in "floor ceil trunc".split()},
    "round.default": rounding("round"),
    **{name: dividing(name) for name in "remainder fmod".split()},
    "floor_divide": dividing("div_floor"),
    "div": divide, "add": scaled("add"), "sub": scaled("sub"),
    "pow": power, "square": lambda site, a: power(site, a, 2),
    "where.self": choose, "where.ScalarSelf": choose,
    "where.ScalarOther": choose, "where.Scalar": choose, "clamp": clamp,
    "max.other": elementwise("maximum"),
    "min.other": elementwise("minimum"),
    "positive": converted, "clone": converted, "contiguous": converted,
    "lift_fresh_copy": converted, "_to_copy": converted,
    "prims.convert_element_type": converted, "scalar_tensor": converted,
    "copy": second, "full": second, "full_like": second,
    **{name: constant(0) for name in
       """zeros zeros_like new_zeros empty.memory_format empty_like
       empty_strided new_empty new_empty_strided""".split()},
    **{name: constant(1) for name in "ones ones_like new_ones".split()},
    "arange.default": arange, "arange.start": arange,
    "arange.start_step": arange, "prims.iota": iota,
}
