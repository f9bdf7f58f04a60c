"""Marks for the compiler in a program: break here, leave this alone.

In: nothing, a function, or a tensor. Out: nothing, or a function that a
trace does not enter; a tensor keeps its mark for later traces. Marks
have no effect on code that is not compiled. PyTorch's are
torch/_dynamo/decorators.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from .reasons import refusing
from .rules import rule


def graph_break(reason: str = "") -> None:
    """Where this is called, one graph ends and the next begins."""


def disable(function: Callable | None = None, *, reason: str = ""
            ) -> Callable:
    """A form of `function` that compiled code calls without tracing it.

    Also a decorator, with or without arguments, as torch.compiler's.
    """
    if function is None:
        return functools.partial(disable, reason=reason)

    @functools.wraps(function)
    def disabled(*args, **kwargs):
        return function(*args, **kwargs)

    disabled._torchdynamo_disable = True  # torch.compile heeds it, too
    disabled._torchdynamo_disable_msg = reason or None
    return disabled


def allow_in_graph(function: Callable) -> Callable:
    """`function`, from now on one node of a graph, its code not followed.

    It takes and returns tensors (or tuples of them) and plain values; it
    must be pure, since nothing that it reads is guarded.
    """
    rule(function)(lambda tracer, *args, **kwargs:
                   tracer.recorder.function(function, args, kwargs))
    return function


def disallow_in_graph(function: Callable) -> Callable:
    """`function`, from now on a graph break wherever it is called."""
    name = getattr(function, "__qualname__", repr(function))
    rule(function)(refusing("disabled", f"{name} (disallow_in_graph)"))
    return function


class Range(NamedTuple):
    """The bounds of a marked dimension; None is no limit."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None,
                 max: int | None = None) -> None:
    """Let the size of a dimension be a symbol from the first trace on.

    If a graph needs it to be a constant, ConstraintViolation is raised.
    """
    if max is not None and (max < 2 or max < (min or 0)):
        raise ValueError(f"no dynamic size is from {min} to {max}")
    dim = _mark(tensor, "_dynamo_dynamic_indices", dim)
    _mark(tensor, "_dynamo_dynamic_range", dim, min, max)


def mark_static(tensor: torch.Tensor, dim: int) -> None:
    """Let the size of a dimension be a constant in every graph."""
    _mark(tensor, "_dynamo_static_indices", dim)


def _mark(tensor: torch.Tensor, attribute: str, dim: int, *reach) -> int:
    """Add to the marks of a tensor, which are those of torch.compile."""
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"a tensor of {tensor.dim()} dimensions has no "
                         f"dimension {dim} to mark")
    dim %= tensor.dim()
    setattr(tensor, attribute, getattr(tensor, attribute, set()) | {
        Range(dim, *reach) if reach else dim})
    tensor._has_dynamo_dim_marking = True
    return dim
