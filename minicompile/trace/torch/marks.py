"""Marks for the compiler in a program: break here, leave this alone.

In: nothing, a function, or a tensor. Out: nothing, or a function that a
trace does not enter; a tensor keeps its mark for later traces. Marks
have no effect on code that is not compiled. Below are their rules, for
calls inside a trace, and what calling a marked function means there.
PyTorch's are torch/_dynamo/decorators.py.
"""

import functools
from collections import namedtuple
from collections.abc import Callable, Collection

import torch

from ...core.guard import ABSENT, is_constant
from .. import attributes
from ..attributes import type_of
from ..python.callbacks import really
from ..reasons import REASONS, WAYS, refusing, unsupported
from ..recorder import settled
from ..rules import rule


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


#: The bounds of a marked dimension; None is no limit.
Range = namedtuple("Range", "dim min max")


def mark_dynamic(tensor: torch.Tensor, dim: int | Collection[int], *,
                 min: int | None = None, max: int | None = None) -> None:
    """Let the size of a dimension be a symbol from the first trace on.

    If a graph needs it to be a constant, ConstraintViolation is raised.
    """
    if max is not None and (max < 2 or max < (min or 0)):
        raise ValueError(f"no dynamic size is from {min} to {max}")
    _mark(tensor, "_dynamo_dynamic_indices", dim)
    _mark(tensor, "_dynamo_dynamic_range", dim, min, max)


def mark_static(tensor: torch.Tensor,
                dim: int | Collection[int] | None = None) -> None:
    """Let the size of a dimension be a constant in every graph."""
    _mark(tensor, "_dynamo_static_indices",
          range(tensor.dim()) if dim is None else dim)


def _mark(tensor: torch.Tensor, attribute: str, dims, *reach) -> None:
    """Add to the marks of a tensor, which are those of torch.compile."""
    for dim in [dims] if isinstance(dims, int) else dims:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"a tensor of {tensor.dim()} dimensions has "
                             f"no dimension {dim} to mark")
        dim %= tensor.dim()
        setattr(tensor, attribute, getattr(tensor, attribute, set()) | {
            Range(dim, *reach) if reach else dim})
        tensor._has_dynamo_dim_marking = True


# Marks, called inside a trace


def enter_marked(tracer, function, args, kwargs):
    """A call of a compiled function, or of one that Dynamo leaves alone.

    The function that was compiled is followed, and so is an optimizer's
    method that PyTorch, not a user, disabled for Dynamo.
    """
    if hasattr(function, "_dynamo_marked_constant"):
        return assumed(tracer, function, args, kwargs)
    inside = attributes.own(tracer, function, "_torchdynamo_orig_callable")
    why = getattr(function, "_torchdynamo_disable_msg", None) or ""
    is_lazy = function.__globals__.get("__name__") == "torch._compile"
    if (function.__module__ or "").startswith("torch.optim") and (
            is_lazy or "optimizer" in why):
        return tracer.enter(function.__wrapped__, args, kwargs)
    alone = getattr(function, "_torchdynamo_disable", False)
    if alone or inside is ABSENT:
        name = function.__qualname__
        raise unsupported("disabled", f"{name} ({why})" if why else name)
    return tracer.enter(inside, args, kwargs)


WAYS["marked"] = enter_marked


#: How TorchScript's functions are called; a plain function is there once
#: PyTorch's tools for its tests are imported.
SCRIPTED = torch.jit.ScriptFunction.__call__


@rule(SCRIPTED, getattr(SCRIPTED, "__func__", SCRIPTED))
def scripted(tracer, function, /, *args, **kwargs):
    """The Python that a scripted function was made of, if TorchScript made
    it, and passes on each number as it is: it makes a float of an int."""
    known = {each.name: each.type.annotation_str
             for each in function.schema.arguments}
    changed = any(
        (type_of(value) in (bool, int, float) or "float" in known[name])
        and type_of(value).__name__ not in known[name]
        for name, value in (*zip(known, args), *kwargs.items()))
    inside = getattr(function, "_torchdynamo_inline", None)
    made = inside and torch.jit._state._try_get_jit_cached_function(inside)
    if changed or made is None or (
            made.qualified_name != function.qualified_name):  # traced
        raise unsupported("library", "a function of TorchScript")
    return tracer.enter(inside, args, kwargs)


def assumed(tracer, function, args: tuple, kwargs: dict):
    """The present result of a function of constants, by its author's word
    the same for good (torch.compiler.assume_constant_result)."""
    args = settled(args)
    if tracer.is_made(function) or not is_constant(
            (*args, *kwargs.values())):
        raise unsupported("disabled", f"{function.__qualname__} of what is "
                          "no constant (assume_constant_result)")
    result = really(tracer, function, args, kwargs)
    return tracer.outside.admit(result, tracer.outside.constant(
        result, function.__name__))


REASONS["asked"] = ("the program asks for a graph break: {what}",
                    "remove the call of graph_break()")


@rule(graph_break, ("torch._dynamo.decorators", "graph_break"))
def _graph_break(tracer, reason: str = "", msg: str = ""):
    """A break; but an optimizer's own keep Dynamo's graphs apart."""
    if tracer.frames[-1].globals.get("__name__") != "torch.optim.optimizer":
        raise unsupported("asked", reason or msg or "graph_break()")


@rule(("torch._dynamo.decorators", "disable"))
def _disable(tracer, function=None, recursive=True, *, reason=""):
    if not recursive:
        raise unsupported("asked", "disable(recursive=False)")
    return tracer.call(disable, (function,), {"reason": reason})


@rule(mark_static, ("torch._dynamo.decorators", "mark_static"))
def _mark_static(tracer, tensor, dim=None):
    """A size that is marked inside a trace is a constant on the spot."""
    settled(tensor.shape[dim] if isinstance(dim, int) else tensor.shape)


disallow_in_graph(mark_dynamic)  # traced tensors have their sizes
rule(torch.compiler.allow_in_graph)(
    lambda tracer, function: allow_in_graph(function))
