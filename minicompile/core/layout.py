"""Positions in memory: a point and strides, and back to the point."""

from __future__ import annotations

from collections.abc import Iterable

from .index import Index, index


def flatten(indices: Iterable[Index],
            strides: Iterable[Index | int]) -> Index:
    """The sum of index times stride: a position in memory."""
    return sum((i * stride for i, stride in zip(
        indices, strides, strict=True)), index(0))


def unflatten(position: Index,
              shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The row-major coordinates in `shape` of a flat position."""
    coordinates: list[Index] = []
    for size in reversed(shape[1:]):
        coordinates.append(position % size)
        position = position // size
    return (*([position] if shape else ()), *reversed(coordinates))


def row_major(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides = [index(1)]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[:len(shape)]))
