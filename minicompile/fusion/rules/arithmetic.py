"""Rules: the other operations on one element, reductions and scans.

A division of whole numbers by zero raises in eager, which no kernel can.
So the operator runs, unless the divisor is a number other than 0. C++ and
Triton cut quotients off: one that is rounded down is a formula. Small
constant powers are multiplications, as they are in eager. The result of a
comparison is a bool, which says nothing about how to compare: that is done
in the dtype to which the operands are promoted. `any` and `all` give bool,
but uint8 of uint8. The maximum of a dimension comes with its place: a
second reduction, in the same kernel. The variance takes two passes: the
formula with one pass loses all digits if the mean is large.

A scan is a loop that reduces a row, and stores what it has so far at each
element. So it computes its operand, as a sum would, and what reads it
element by element joins its kernel. A few long rows keep few of a GPU's
processors busy: where they lie one after the other, and on a CPU, PyTorch's
operator runs. Inductor's is `Scan` in torch/_inductor/ir.py.

Random numbers are arithmetic as well. A draw is computed from the seed in
memory, the number of the draw and the place of an element, wherever and
however often it is asked for. The kernel is given the number of the draw,
so that one kernel serves all layers of a model. Inductor's is
`inductor_random` in torch/_inductor/inductor_prims.py.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from ...core.index import (Index, Symbol, index, least_of, most_of,
                           not_negative, product)
from ...core.loops import (Const, Expression, Position, accurate, flatten,
                           row_major)
from ..lowerings import (RULES, Axes, LoweringContext, Operand, Value, axes,
                         axes_of, broadcast, cast, divided_by, elements,
                         elementwise, exactly, fill, operation, points,
                         reducing, strided_view)
from .indexing import both, test


#: All whole numbers up to this one are floats.
WHOLE = 2 ** 24
#: The types of devices where eager does not raise either.
SILENT = {"cuda"}
#: The types of the devices whose kernels scan; how many rows are worth it,
#: unless each has so few elements.
SCANNED, SCAN_ROWS, SCAN_FEW = {"cuda"}, 8, 4096


def reshaped(value: Value, shape: tuple[Index, ...]) -> Value:
    """The elements of `value`, in the same order, in another shape."""
    return value if value.shape == shape else strided_view(
        value, shape, row_major(shape))


def scaled(name: str, context: LoweringContext, a: Operand, b: Operand,
           alpha: Operand = 1) -> Value:
    """a + alpha * b or a - alpha * b."""
    def many(x: Expression, *factors: Expression) -> Expression:
        return operation(name, x, operation("mul", *factors))
    return elementwise(name)(context, a, b) if alpha == 1 else (
        elementwise(many)(context, a, b, alpha))


def promoted(*operands: Operand) -> torch.dtype:
    """The dtype to which one or two operands are promoted."""
    given = [torch.empty((1,) * bool(o.shape), dtype=o.dtype, device="meta")
             if isinstance(o, Value) else 1 if isinstance(o, Index) else o
             for o in operands]
    return torch.result_type(given[0], given[-1])


def division(name: str, context: LoweringContext, a: Operand, b: Operand, *,
             rounding_mode: str | None = None) -> Value | None:
    """A division, rounded or not, or its remainder; a kernel cannot raise,
    so where eager does a whole divisor must not be 0."""
    safe = (isinstance(b, (int, float)) and b != 0 or isinstance(
        b, Index) and not_negative(b - 1))
    if not (context.dtype.is_floating_point or safe
            or context.device.type in SILENT):
        return None
    kind = f"{name}_{rounding_mode}" if rounding_mode else name
    return elementwise(DOWN.get(kind, kind))(context, a, b)


def uneven(rest: Expression, by: Expression) -> Expression:
    """Whether something is left whose sign is not the divisor's."""
    zero = Const(0, by.dtype)
    return both(test("ne", rest, zero), test("ne", test(
        "lt", rest, zero), test("lt", by, zero)))


def remainder(a: Expression, by: Expression) -> Expression:
    """The rest of a division, with the divisor's sign."""
    rest = operation("fmod", a, by)
    off = uneven(rest, by)
    if by.dtype.is_floating_point:  # it may be infinite
        return operation("where", off, operation("add", rest, by), rest)
    return operation("add", rest, operation("mul", cast(off, by.dtype), by))


def div_floor(a: Expression, by: Expression) -> Expression:
    """The quotient rounded down, as Python computes it; a quotient of
    floats that is 0 has a sign, and one by 0 is not finite."""
    rest, zero = operation("fmod", a, by), Const(0, by.dtype)
    less = cast(uneven(rest, by), by.dtype)
    if not by.dtype.is_floating_point:
        return operation("sub", operation("div_trunc", a, by), less)
    quotient = operation("div", a, by)
    whole = operation("sub", operation(
        "div", operation("sub", a, rest), by), less)
    found = operation("floor", whole)
    above = test("gt", operation("sub", whole, found), Const(.5, by.dtype))
    found = operation("add", found, cast(above, by.dtype))
    found = operation("where", test("ne", whole, zero), found,
                      operation("copysign", zero, quotient))
    return operation("where", test("eq", by, zero), quotient, found)


#: Divisions that round down, which no language has for all numbers.
DOWN = {"remainder": remainder, "div_floor": div_floor}


def to_power(context: LoweringContext, a: Operand, b: Operand
             ) -> Value | None:
    """a ** b; small constant powers are multiplications, each rounded; but
    eager's CPU kernel has no short way to the power of a half. (Both find
    the same square.)"""
    dtype = context.dtype
    if isinstance(b, (Value, Index)) or b not in POWERS or b != 2 and (
            dtype == torch.float16 and context.device.type == "cpu"):
        return elementwise("pow")(
            context, a, b) if dtype.is_floating_point else None
    if b not in (1, 2, 3) and not dtype.is_floating_point:
        return None
    found = fill(context, a)
    for name in POWERS[b].split():
        found = elementwise(name)(context, found, *[a] * (name == "mul"))
    return found


#: x ** n as eager computes it: what is done to x, one after the other; it
#: is multiplied by x.
POWERS = {1: "", 2: "mul", 3: "mul mul", 0.5: "sqrt", -0.5: "rsqrt",
          -1: "reciprocal", -2: "mul reciprocal"}


def clamp(context: LoweringContext, a: Value, min: Operand | None = None,
          max: Operand | None = None) -> Value:
    """`a`, but no less than `min` and no more than `max`; of 0.0 and -0.0
    it is `a`: the greater of two equal numbers is the second."""
    for name, bound in ("maximum", min), ("minimum", max):
        if bound is not None:
            a = elementwise(name)(context, bound, a)
    return a


def arange(context: LoweringContext, *bounds, **options) -> Value | None:
    """start, start + step, start + 2 * step, …; of whole numbers, which a
    float has no digit too few for."""
    start, _, step = ((0, *bounds, 1), (*bounds, 1), bounds)[
        len(bounds) - 1]
    if not (isinstance(start, (int, Index)) and isinstance(step, int)):
        return None
    place = context.point[0] * step + start
    if context.dtype.is_floating_point and not (
            -WHOLE <= least_of(place) and most_of(place) <= WHOLE):
        return None
    return context.value(cast(Position(place, torch.int64), context.dtype))


def truth(kind: str, context: LoweringContext, a: Value,
          axes: Axes = None, keepdim: bool = False) -> Value:
    """any or all, for which no dimensions are none of them."""
    a = a.to(torch.bool)
    found = a if axes == [] else context.reduce(kind, a, axes, keepdim)
    return found.to(context.dtype)


def best_places(best: Value, context: LoweringContext, a: Value, dims: Axes,
                keepdim: bool) -> Value:
    """The first position, row by row, of the best element of `a`; NaN is
    the best there is. `best` has the dimensions that it is one of."""
    here, top = a.element, broadcast(best, a.shape).element
    over, point = axes_of(a, dims), points(axes(a.shape))
    sizes = tuple(a.shape[axis] for axis in over)
    dtype = torch.int64 if most_of(product(sizes)) >= 2 ** 31 else (
        torch.int32)
    found = operation("logical_or", *(
        operation(name, here, other, dtype=torch.bool)
        for name, other in (("eq", top), ("ne", here))))
    where = flatten([point[axis] for axis in over], row_major(sizes))
    place = operation("where", found, Position(where, dtype), Const(
        torch.iinfo(dtype).max, dtype))
    return context.reduce("min", replace(a, element=place),
                          over, keepdim).to(torch.int64)


def best_place(kind: str, context: LoweringContext, a: Value,
               axes: Axes = None, keepdim: bool = False,
               both: bool = False) -> Value | tuple[Value, Value]:
    """argmax or argmin; or `both`, the best element and where it is, which
    max(dim) and min(dim) give."""
    best = context.reduce(kind, a, axes, True)
    place = best_places(best, context, a, axes, keepdim)
    return (reshaped(best, place.shape), place) if both else place


def variance(rooted: bool, both: bool, context: LoweringContext, a: Value,
             axes: Axes = None, *,
             correction: int | float | Index | None = 1, **_
             ) -> Value | tuple[Value, Value] | None:
    """var or std, alone or with the mean, in two passes: first the mean,
    then the squared differences, divided by their number less
    `correction`.

    A CPU computes them in float64 and rounds once, as eager does; but not
    what norms are made of, both without a correction.
    """
    reduced = axes_of(a, axes)
    total = product(a.shape[axis] for axis in reduced)
    less = 1 if correction is None else correction
    if isinstance(less, float) and not less.is_integer():
        return None
    left = total - (int(less) if isinstance(less, float) else less)
    if not not_negative(left):
        return None
    once = context.device.type == "cpu" and (
        rooted or not both or less != 0)
    inner = a.to(torch.float64 if once else accurate(context.dtype))
    sums, squares = MOMENTS[-1](context, inner, reduced) or moments(
        partial(context.reduce, "sum", keepdim=True), inner, reduced)
    spread, middle = (reshaped(divided_by(each, by), context.shape)
                      for each, by in ((squares, left), (sums, total)))
    if rooted:
        spread = spread if once else spread.to(context.dtype)
        spread = spread.then("sqrt")
    found = spread.to(context.dtype), middle.to(context.dtype)
    return found if both else found[0]


def moments(added: Callable[[Value, tuple[int, ...]], Value], a: Value,
            reduced: tuple[int, ...]) -> tuple[Value, Value]:
    """The sum, and that of the squared distances from the mean."""
    sums = added(a, reduced)
    count = product(a.shape[axis] for axis in reduced)
    return sums, added(squared(a, divided_by(sums, count)), reduced)


def squared(a: Value, middle: Value) -> Value:
    """The squared distance of each element from one for its row."""
    off = a.then("sub", broadcast(middle, a.shape).element)
    return off.then("mul", off.element)


#: Finds both sums of long rows; None, if `moments` will: the last.
MOMENTS: list[Callable[..., tuple[Value, Value] | None]] = [lambda *_: None]


def scan(kind: str, context: LoweringContext, a: Value, axis: int,
         dtype: torch.dtype | None = None) -> Value | None:
    """A row reduced up to each of its elements."""
    if not a.shape or a.device.type not in SCANNED:
        return None
    value, axis = a.to(context.dtype), axis % len(a.shape)
    if a.shape[axis] == 1:
        return value
    length = elements(a.shape[axis:])
    if axis == len(a.shape) - 1 and length > SCAN_FEW and (
            elements(a.shape) < SCAN_ROWS * length):
        return None
    made = context.lowering.fill(
        context.node, value, a.shape, (axis,), kind)
    steps = context.lowering.steps
    loop, (place,) = steps[-1], points(steps[-1].reduced)
    steps[-1] = replace(
        loop, index=loop.index + place * loop.buffer.stride[axis])
    return made


def drawn(context: LoweringContext, seed: Value, draw: int, _) -> Value:
    """uniform(seed, draw, size): the offset counts the draws."""
    key, offset = (seed.at((index(k),)) for k in (0, 1))
    if draw:
        number = Symbol(f"draw{draw}", draw, draw, draw, str(draw))
        offset = operation("add", offset, Position(
            index(number), torch.int64))
    place = Position(flatten(context.point, row_major(context.shape)),
                     torch.int64)
    return context.value(operation("uniform", key, offset, place,
                                   dtype=torch.float32))


def log_gamma(context: LoweringContext, a: Operand) -> Value | None:
    """On a CPU PyTorch's own: that has vectors, the C library's has none.
    """
    return None if context.device.type == "cpu" else elementwise(
        "lgamma")(context, a)


RULES |= {
    **{name: partial(scaled, name) for name in ("add", "sub")},
    **{name: elementwise(name, promoted) for name in
       """isnan signbit logical_not logical_and logical_or logical_xor
       bitwise_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift
       bitwise_right_shift floor ceil trunc round eq ne lt le gt ge
       """.split()},
    **{name: partial(division, name) for name in ("remainder", "fmod",
                                                  "div")},
    "floor_divide": partial(division, "div_floor"),
    "pow": to_power, "clamp": clamp, "lgamma": log_gamma,
    **dict.fromkeys("copy full full_like".split(),
                    lambda context, _, number, *__, **___: fill(
                        context, number)),
    **dict.fromkeys("""empty.memory_format empty_like empty_strided
        new_empty new_empty_strided""".split(),
                    lambda context, *_, **__: fill(context, 0)),
    "arange": arange, "prod": reducing("prod", exactly),
    **{name: partial(scan, name) for name in ("cumsum", "cumprod")},
    **{f"{name}.correction": partial(
        variance, "std" in name, "mean" in name)
       for name in ("var", "std", "var_mean", "std_mean")},
    "max.default": reducing("max"), "min.default": reducing("min"),
    **{name: partial(truth, name) for name in ("any", "all")},
    **{f"arg{name}": partial(best_place, name) for name in ("max", "min")},
    **{f"{name}.dim": partial(best_place, name, both=True)
       for name in ("max", "min")},
    "minicompile.uniform": drawn,
}
