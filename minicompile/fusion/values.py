"""A tensor that need not exist: a function from a point to an expression.

In: expressions and index arithmetic. Out: a Value, which says what a
tensor's element at any point is. A view asks its source at another point,
an operation asks its operands at the same one, so that chains of them
become one expression without any pass that inlines. PyTorch's is the
`inner_fn` of torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import torch

from ..core.index import (Index, Variable, atoms_of, guess, index, product,
                          substitute)
from ..core.layout import flatten
from ..core.loops import (Buffer, Const, Expression, Load, Op, Position,
                          rewrite)

Point = tuple[Index, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor given by its elements; each point is worked out once.

    `origins` are the graph nodes whose work asking for an element does.
    """

    shape: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device
    body: Callable[[Point], Expression]
    origins: tuple[str, ...] = ()
    known: dict[Point, Expression] = field(
        default_factory=dict, repr=False)

    def at(self, point: Point) -> Expression:
        """The element at `point`, which has one Index per dimension."""
        found = self.known.get(point)
        if found is None:
            found = self.known[point] = self.body(point)
        return found

    def map(self, build: Callable[[Expression], Expression],
            dtype: torch.dtype | None = None) -> Value:
        """The value whose element is `build` of this one's."""
        return Value(self.shape, dtype or self.dtype, self.device,
                     lambda point: build(self.at(point)), self.origins)

    def to(self, dtype: torch.dtype) -> Value:
        """The same value, converted."""
        return self.map(lambda element: cast(element, dtype), dtype)

    @property
    def element(self) -> Expression:
        """The element at the point that `axes` names."""
        return self.at(points(axes(self.shape)))


@cache
def axes(shape: tuple[Index, ...], letter: str = "d"
         ) -> tuple[Variable, ...]:
    """A loop variable for every dimension."""
    return tuple(Variable(f"{letter}{place}", size)
                 for place, size in enumerate(shape))


@cache
def points(variables: tuple[Variable, ...]) -> Point:
    """The variables as Indices; 0 for one that takes no other value."""
    return tuple(index(0) if v.size == 1 else index(v) for v in variables)


def load(buffer: Buffer) -> Value:
    """The tensor that lies in a buffer."""
    return Value(buffer.shape, buffer.dtype, buffer.device,
                 lambda point: Load(buffer.name, flatten(
                     point, buffer.stride), buffer.dtype))


def moved_to(value: Value, shape: tuple[Index, ...],
             where: Callable[[Point], Point]) -> Value:
    """A view: its element at a point is `value`'s at `where(point)`."""
    return Value(shape, value.dtype, value.device,
                 lambda point: value.at(where(point)), value.origins)


def with_axis(point: Point, axis: int, where: Index) -> Point:
    """The point, or the shape, with another Index at one place."""
    return (*point[:axis], where, *point[axis:][1:])


def broadcast(value: Value, shape: tuple[Index, ...]) -> Value:
    """`value` repeated along new dimensions and along those of size 1."""
    if value.shape == shape:
        return value
    skip = len(shape) - len(value.shape)
    fixed = [size == 1 for size in value.shape]
    return moved_to(value, shape, lambda point: tuple(
        index(0) if one else i
        for one, i in zip(fixed, point[skip:], strict=True)))


def cast(node: Expression, dtype: torch.dtype) -> Expression:
    """The expression converted to `dtype`; a number just stands for it."""
    if node.dtype == dtype:
        return node
    if isinstance(node, Const):
        return Const(_converted(node.value, dtype), dtype)
    return Op("cast", (node,), dtype)


def _converted(number: bool | int | float, dtype: torch.dtype):
    """A number as a tensor of this dtype would hold it."""
    return torch.tensor(number, dtype=torch.float64 if isinstance(
        number, float) else None).to(dtype).item()


def both(a: Expression | None, b: Expression) -> Expression:
    """Whether both conditions hold; None is a condition that does."""
    return b if a is None else Op("logical_and", (a, b), torch.bool)


def compare(name: str, where: Index, bound: Index) -> Expression:
    """`where < bound` and the like, between positions; what `where` has
    added to its variables goes to the other side."""
    start = substitute(where, {v: index(0) for v in variables_in(where)})
    return Op(name, (Position(where - start, torch.int64),
                     Position(bound - start, torch.int64)), torch.bool)


def masked(node: Expression, mask: Expression) -> Expression:
    """`node`, nothing being read where `mask` is false."""
    def guard(part: Expression) -> Expression:
        return replace(part, mask=both(part.mask, mask)) if isinstance(
            part, Load) else part
    return rewrite(node, guard)


#: Operations that cost far more than moving an element.
DEAR = frozenset("""exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos
    tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma
    sigmoid pow atan2 hypot remainder fmod div_floor div_trunc
    uniform""".split())


def elements(shape: Iterable[Index]) -> int:
    """How many elements a shape has (a guess, for a symbolic one)."""
    return guess(product(shape))


def variables_in(where: Index) -> set[Variable]:
    """The loop variables that an index asks for."""
    return {a for a in atoms_of(where) if isinstance(a, Variable)}


def touched(where: Index) -> int:
    """At most how many elements an index reaches."""
    return elements(v.size for v in variables_in(where))
