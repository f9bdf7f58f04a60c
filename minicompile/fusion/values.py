"""A tensor that need not exist: the expression of any of its elements.

In: expressions and index arithmetic. Out: a Value, which says what a
tensor's element at any point is. A view is its source's element at another
point, an operation that of its operands at the same one, so that chains of
them become one expression without any pass that inlines. PyTorch's is the
`inner_fn` of torch/_inductor/ir.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from ..core.errors import BackendError
from ..core.index import (Division, Index, Variable, guess, index,
                          product)
from ..core.loops import (Buffer, Const, Expression, Load, Op, decided,
                          flatten, rewrite, row_major, unflatten,
                          variables_of)
from ..core.sizes import SYMBOLIC

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
        return rewrite(self.element, decided, change) if (
            change) else self.element

    def moved(self, shape: tuple[Index, ...], point: Point) -> Value:
        """A view: its element is this one's at `point`."""
        return replace(self, shape=shape, element=self.at(point))

    def to(self, dtype: torch.dtype) -> Value:
        """The same value, converted."""
        return replace(self, element=cast(self.element, dtype))


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


def reshaped(value: Value, shape: tuple[Index, ...]) -> Value:
    """The elements of `value`, in the same order, in another shape."""
    return value if value.shape == shape else strided_view(
        value, shape, row_major(shape))


def cast(node: Expression, dtype: torch.dtype) -> Expression:
    """The expression converted to `dtype`; a number is converted here."""
    if node.dtype == dtype:
        return node
    if not isinstance(node, Const):
        return Op("cast", (node,), dtype)
    wide = torch.float64 if isinstance(node.value, float) else None
    held = torch.tensor(node.value, dtype=wide).to(dtype)
    return Const(held.item(), dtype)


def elements(shape: Iterable[Index]) -> int:
    """The number of elements in a shape; a guess if it is symbolic."""
    return guess(product(shape))


def touched(where: Index) -> int:
    """About how many elements an index reaches."""
    count = 1
    for atom in {atom for atoms, _ in where.terms for atom in atoms}:
        match atom:
            case Variable(_, size):
                count *= guess(size)
            case Division(sign, dividend, divisor):
                inner, by = touched(dividend), guess(divisor)
                count *= min(inner, by) if sign == "%" else -(-inner // by)
    return min(count, elements(v.size for v in variables_of(where)))


def number_of(given: object) -> object:
    """A number that depends on sizes as an Index; anything else as is."""
    if not isinstance(given, SYMBOLIC):
        return given
    if not SYMBOLS_READ:
        raise BackendError(f"no rule knows the symbolic number {given}")
    return SYMBOLS_READ[-1](given)


def size_of(number: int | torch.SymInt | Index) -> Index:
    """One size or stride of a fake tensor as an Index."""
    return index(number_of(number))


def indices_of(numbers: Iterable) -> tuple[Index, ...]:
    """Sizes or strides of a fake tensor as Indices."""
    return tuple(map(size_of, numbers))
