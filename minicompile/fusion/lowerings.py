"""Values, and the table of lowering rules that most models need.

A Value is a tensor that need not exist: the expression of any of its
elements. A view is its source's element at another point, an operation
that of its operands at the same one, so that chains of them become one
expression without any pass that inlines. PyTorch's is the `inner_fn` of
torch/_inductor/ir.py.

In: a LoweringContext (what the node should produce) and operands. Out: a
Value, several, or None if no loop computes this: then the ATen operator
runs. Operands are converted to the result's dtype before the operation,
as PyTorch's type promotion has it. Inductor's table is
torch/_inductor/lowering.py:lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from ..core.errors import BackendError
from ..core.graph import tensors_of
from ..core.graph import value as fake_of
from ..core.index import Index, Variable, guess, index, product
from ..core.loops import (OF_FLOATS, SIMPLIFY, Buffer, Const, Expression,
                          Load, Op, Position, accurate, flatten, rewrite,
                          row_major, unflatten)
from ..core.sizes import SYMBOLIC

if TYPE_CHECKING:
    from .lower import Lowering

Point = tuple[Index, ...]

#: What makes an Index of a number that only the run knows: the last.
SYMBOLS_READ: list[Callable[[object], Index | int]] = []


@dataclass(frozen=True)
class Value:
    """A tensor given by its `element` at the point that `axes` names."""

    shape: tuple[Index, ...]
    device: torch.device
    element: Expression

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its elements."""
        return self.element.dtype

    def at(self, point: Point) -> Expression:
        """The element at `point`, which has one Index per dimension."""
        change = {old: new for old, new in zip(
            axes(self.shape), point, strict=True) if new != index(old)}
        return rewrite(self.element, SIMPLIFY[-1], change) if (
            change) else self.element

    def moved(self, shape: tuple[Index, ...], point: Point) -> Value:
        """A view: its element is this one's at `point`."""
        return replace(self, shape=shape, element=self.at(point))

    def to(self, dtype: torch.dtype) -> Value:
        """The same value, converted."""
        return replace(self, element=cast(self.element, dtype))

    def then(self, name: str, *others: Expression) -> Value:
        """The values that an operation makes of these and `others`."""
        return replace(self, element=operation(
            name, self.element, *others, dtype=self.dtype))


@lru_cache(maxsize=10_000)
def axes(shape: tuple[Index, ...], letter: str = "d"
         ) -> tuple[Variable, ...]:
    """A loop variable for every dimension."""
    return tuple(Variable(f"{letter}{place}", size)
                 for place, size in enumerate(shape))


def points(variables: tuple[Variable, ...]) -> Point:
    """The variables as Indices; 0 for one that takes no other value."""
    return tuple(index(0) if v.size == 1 else index(v) for v in variables)


def loaded(buffer: Buffer) -> Value:
    """The tensor that lies in a buffer."""
    return Value(buffer.shape, buffer.device, Load(buffer.name, flatten(
        points(axes(buffer.shape)), buffer.stride), buffer.dtype))


def broadcast(value: Value, shape: tuple[Index, ...]) -> Value:
    """`value` repeated along new dimensions and along those of size 1,
    whose variable no element depends on."""
    skip = len(shape) - len(value.shape)
    return value.moved(shape, points(axes(shape))[skip:])


def strided_view(value: Value, shape: tuple[Index, ...],
                 stride: tuple[Index, ...],
                 offset: Index | int = 0) -> Value:
    """The view with this shape, stride and offset of the memory of
    `value`, as if that were contiguous."""
    place = flatten(points(axes(shape)), stride) + offset
    return value.moved(shape, unflatten(place, value.shape))


def operation(name: str, *parts: Expression,
              dtype: torch.dtype | None = None) -> Expression:
    """An operation, simplified; if no dtype is given, it has that of its
    last operand."""
    return SIMPLIFY[-1](Op(name, parts, dtype or parts[-1].dtype))


def cast(node: Expression, dtype: torch.dtype) -> Expression:
    """The expression converted to `dtype`."""
    return node if node.dtype == dtype else operation(
        "cast", node, dtype=dtype)


def elements(shape: Iterable[Index]) -> int:
    """The number of elements in a shape; a guess if it is symbolic."""
    return guess(product(shape))


def number_of(given: object) -> object:
    """A number that depends on sizes as an Index; anything else as is."""
    if not isinstance(given, SYMBOLIC):
        return given
    if not SYMBOLS_READ:
        raise BackendError(f"no rule knows the symbolic number {given}")
    return SYMBOLS_READ[-1](given)


def indices_of(numbers: Iterable) -> tuple[Index, ...]:
    """Sizes or strides of a fake tensor as Indices."""
    return tuple(index(number_of(each)) for each in numbers)


#: An Index is a whole number made of sizes.
Operand = Value | bool | int | float | Index
Axes = Sequence[int] | int | None

#: The dtypes of loops; any other (complex, float8) makes an Extern.
DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool}

#: The result of several reductions in place of one, given its context, its
#: kind, the value and the axes, or None: the last of these.
SPLITS: list[Callable[..., Value | None]] = [lambda *given: None]


@dataclass(frozen=True)
class LoweringContext:
    """One node being lowered: its result, or the first of several."""

    node: fx.Node
    lowering: Lowering
    shape: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def point(self) -> Point:
        """The point that the result's element is at."""
        return points(axes(self.shape))

    def value(self, element: Expression) -> Value:
        """A value of the result's shape and device."""
        return Value(self.shape, self.device, element)

    def reduce(self, kind: str, a: Value, axes: Axes = None,
               keepdim: bool = False) -> Value:
        """`a` reduced over some dimensions, in its own dtype, and stored;
        of bools the result is whether any or all are true. A sum, even of
        one element, begins at 0: it is never -0.0."""
        if a.dtype == torch.bool:
            kind = {"max": "any", "sum": "any", "min": "all",
                    "prod": "all"}.get(kind, kind)
        reduced = axes_of(a, axes)
        shape = tuple(index(1) if axis in reduced else size
                      for axis, size in enumerate(a.shape)
                      if keepdim or axis not in reduced)
        one = all(a.shape[axis] == 1 for axis in reduced)
        if one and kind == "sum":
            a = replace(a, element=operation(
                "add", Const(0, a.dtype), a.element))
        found = a if one else SPLITS[-1](self, kind, a, reduced)
        return strided_view(found, shape, row_major(shape)) if found else (
            self.lowering.fill(self.node, a, shape, reduced, kind))


def lowering_rule(node: fx.Node) -> Callable | None:
    """The rule for a node's operator, by overload or by name; None where
    a dtype or a layout rules loops out."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = str(node.target).removeprefix("aten.")
    found = RULES.get(name) or RULES.get(name.rpartition(".")[0])
    made = tensors_of(fake_of(node))
    read = [t for source in node.all_input_nodes
            for t in tensors_of(fake_of(source))]
    return found if made and all(
        t.dtype in DTYPES and t.layout == torch.strided and t.numel()
        for t in (*made, *read)) else None


def number(value: bool | int | float | Index) -> Expression:
    """A Python number or an Index as an operand, before any cast."""
    if isinstance(value, Index) and value.constant is None:
        return Position(value, torch.int64)
    value = int(value) if isinstance(value, Index) else value
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return Const(value, kinds[type(value)])


def literal(value: bool | int | float | Index, dtype: torch.dtype,
            rounded: bool = False) -> Expression:
    """A Python number in a computation of this dtype: exact, or first
    rounded to a 16-bit float as a tensor of the dtype would be."""
    node = number(value)
    if not isinstance(node, Const) or dtype == torch.bool:
        return cast(cast(node, dtype) if rounded else node, accurate(dtype))
    if rounded and accurate(dtype) != dtype:
        return Const(torch.tensor(node.value, dtype=dtype).item(), dtype)
    return Const(node.value, dtype)


#: Operations whose second operand eager's CPU kernels keep exact, and
#: those that round all their operands on a GPU.
EXACT = frozenset("mul div div_floor div_trunc".split())
ROUNDING = frozenset("pow fmod remainder lt le gt ge".split())


def is_exact(context: LoweringContext, build: object, place: int) -> bool:
    """Whether eager keeps a number exact that meets 16-bit floats as this
    operand of an operation; else it is rounded to such a float first."""
    name = getattr(build, "__name__", build)
    if context.device.type == "cpu":
        return name in EXACT and place == 1
    return name not in ROUNDING


def elementwise(build: str | Callable[..., Expression],
                *dtypes: torch.dtype | Callable | None) -> Callable:
    """The rule of an operation on one element, given its name.

    Given a function of operands, the rule computes with what it returns,
    and rounds once, at the end. The operands are converted to `dtypes`;
    the last entry also holds for further operands. An entry is a dtype, a
    function of the operands, or None: the result's dtype. On a CPU a
    tensor without dimensions is a number like any other.
    """
    def part(context: LoweringContext, operand: Operand, kind: torch.dtype,
             place: int) -> Expression:
        exact = is_exact(context, build, place)
        if not isinstance(operand, Value):
            return literal(operand, kind, rounded=not exact)
        if exact and context.device.type == "cpu" and not operand.shape:
            kind = accurate(kind)
        return cast(broadcast(operand, context.shape).element, kind)

    def rule(context: LoweringContext, *operands: Operand, **options
             ) -> Value | None:
        if options:
            return None
        kinds = [kind(*operands) if callable(kind) else kind
                 or context.dtype for kind in dtypes or (None,)]
        kinds += kinds[-1:] * len(operands)
        parts = tuple(
            part(context, operand, kind, place) for place, (operand, kind)
            in enumerate(zip(operands, kinds)))
        if isinstance(build, str):
            return context.value(Op(build, parts, context.dtype))
        wide = [cast(each, accurate(context.dtype)) for each in parts]
        return context.value(cast(build(*wide), context.dtype))
    return rule


def fill(context: LoweringContext, a: Operand, *_, **__) -> Value:
    """The same numbers in the result's dtype, shape and strides."""
    given = broadcast(a, context.shape).element if isinstance(
        a, Value) else number(a)
    return context.value(cast(given, context.dtype))


def view(context: LoweringContext, a: Value, *_, **__
         ) -> Value | tuple[Value, ...]:
    """A view, or several, with the strides that the operator gives."""
    args, kwargs = fakes(context.node)
    made = sight(context.node.target, *args, **kwargs)
    found = tuple(
        strided_view(a, indices_of(part.shape), indices_of(part.stride()),
                     number_of(part.storage_offset()))
        for part in tensors_of(made))
    return found[0] if isinstance(made, torch.Tensor) else found


def sight(operator, fake: torch.Tensor, *args, **kwargs):
    """The operator's result on a contiguous tensor of this shape; the
    meta device needs no elements for it."""
    with enable_python_dispatcher():
        return operator(torch.empty(fake.shape, device="meta"),
                        *args, **kwargs)


def fakes(node: fx.Node) -> tuple[tuple, dict]:
    """The node's arguments, as fake tensors and SymInts."""
    return fx.map_arg((node.args, node.kwargs), fake_of)


def axes_of(a: Value, axes: Axes) -> tuple[int, ...]:
    """The reduced dimensions, in order; all of them for None or []."""
    rank = len(a.shape)
    if axes is None or axes == []:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else axes
    return tuple(sorted(axis % rank for axis in given)) if rank else ()


def exactly(a: Value, dtype: torch.dtype) -> Value:
    """The numbers that eager adds for a sum of this dtype."""
    return a.to(dtype).to(accurate(dtype))


def unrounded(a: Value, dtype: torch.dtype) -> Value:
    """Those for a mean: on a CPU, none is rounded to 16 bits first."""
    return a.to(accurate(dtype)) if a.device.type == "cpu" else exactly(
        a, dtype)


def reducing(kind: str, within: Callable[..., Value] = lambda a, _: a,
             divided: bool = False) -> Callable:
    """The rule of a reduction of what `within` makes of the operand and
    the result's dtype; it is rounded to that at the end."""
    def rule(context: LoweringContext, a: Value, axes: Axes = None,
             keepdim: bool = False, **_) -> Value:
        made = context.reduce(kind, within(a, context.dtype), axes, keepdim)
        if divided:
            made = divided_by(made, product(
                a.shape[axis] for axis in axes_of(a, axes)))
        return made.to(context.dtype)
    return rule


def divided_by(a: Value, divisor: Index | int) -> Value:
    """`a` divided by a number of elements."""
    return a.then("div", literal(divisor, a.dtype))


RULES: dict[str, Callable] = {
    **{name: elementwise(name) for name in (*OF_FLOATS, *"""neg abs sign
       sqrt rsqrt reciprocal relu add sub mul div copysign maximum minimum
       fmax fmin""".split())},
    "where.self": elementwise("where", torch.bool, None),
    **dict.fromkeys("""clone lift_fresh_copy _to_copy scalar_tensor
       prims.convert_element_type""".split(), fill),
    **dict.fromkeys("""view.default _unsafe_view reshape unsqueeze squeeze
       expand alias detach lift_fresh permute transpose t slice select
       split split_with_sizes unbind diagonal unfold""".split(), view),
    "sum": reducing("sum", exactly),
    "mean": reducing("sum", unrounded, divided=True),
    "amax": reducing("max"), "amin": reducing("min"),
}
