"""Writes in place, watched above autograd, so that strides stay eager's.

In: every torch-level call while recording. Out: the same call. The idea:
functionalisation turns `x.scatter_(…)` into `scatter`, whose result may
be laid out in another way than `x`, and takes an expanded `x` as if its
elements were apart. So the layout is put back, or the write refused.
"""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager, nullcontext
from collections.abc import Callable
from functools import cache

import torch
from torch._C._functionalization import (
    get_view_meta_sequence as view_steps, unfold_ViewMeta as Unfold)
from torch._dispatch.python import enable_python_dispatcher
from torch.overrides import TorchFunctionMode

from ..core.errors import BackendError
from ..core.graph import dense, operators, reach, tensors_of, written_by
from ..core.sizes import AS_IN_CPP
from .recorder import Recorder, current, functional

#: What is not checked to fit in place, as an integer times 1.5 does not.
CASTS = {"add", "sub", "mul", "subtract", "multiply"}

#: What a function runs under, so that all it does is seen. The schemas of
#: the first do not say that they write to an input, but Python's forms of
#: them do. mkldnn keeps nothing for the backward unless grad mode is on.
UNDER: dict[str, Callable[[], AbstractContextManager]] = {
    **dict.fromkeys(("batch_norm", "instance_norm", "native_batch_norm",
                     "cudnn_batch_norm"), enable_python_dispatcher),
    **dict.fromkeys(AS_IN_CPP, torch._C._DisablePythonDispatcher),
    "lstm": lambda: torch.backends.mkldnn.flags(enabled=False) if (
        torch.is_grad_enabled()) else nullcontext(),
}

#: What a graph cannot say: when, given the first argument, and why.
REFUSED: dict[str, tuple[Callable[[torch.Tensor], bool], str]] = {
    **dict.fromkeys(("set_", "resize_", "resize_as_"), (
        lambda x: True, "gives a tensor other memory")),
    **dict.fromkeys(("linalg_eigh", "linalg_svd"), (
        lambda x: x.requires_grad and x.is_complex(),
        "has a gradient that looks at values")),
    "linalg_eig": (lambda x: x.requires_grad,
                   "has a gradient that looks at values"),
    "as_strided": (lambda x: not dense(x), "is of memory with gaps"),
}


class InPlaceWrites(TorchFunctionMode):
    """Sees each call of a torch function, method or operator."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "_opname", function.__name__)
        if getattr(function, "__self__", None) is torch.Tensor.data:
            if name == "__set__":
                raise BackendError("setting data gives other memory")
            return args[0].detach()
        if name in UNDER:
            with UNDER[name]():
                return function(*args, **kwargs)
        refused, reason = REFUSED.get(name, (None, ""))
        if refused and refused(args[0]):
            raise BackendError(f"{name} {reason}")
        if name.startswith("_fused_") and name.endswith("_"):
            raise BackendError(f"{name} writes to lists of tensors")
        if is_inplace_view(name):
            if args[0].requires_grad:
                raise BackendError(f"{name} on a tensor that requires grad")
            return function(*args, **kwargs)
        written = [each for each in (
            args[:1] if kwargs.get("inplace") or assigns(name)
            else written_by(function, args, kwargs))
            if torch._is_functional_tensor(each)]
        if not written:
            return function(*args, **kwargs)
        if name.strip("_").removeprefix("i") in CASTS and (
                not torch.can_cast(torch.result_type(*args[:2]),
                                   args[0].dtype)):
            raise BackendError(f"{name} gives another dtype")
        layouts = [(each, each.size(), each.stride())
                   for each in memory_of(name, written, "out" in kwargs)]
        require_apart(name, written, args, kwargs)
        result = function(*args, **kwargs)
        for layout in layouts:
            self.keep(*layout)
        return result

    def keep(self, tensor: torch.Tensor, size, stride) -> None:
        """Give `tensor` the strides it had; an empty `out=` may grow."""
        value = current(tensor)
        if value.size() != size and size.numel():
            raise BackendError("out= has another shape than the result")
        if value.size() != size or value.stride() == stride:
            return
        with functional(False):
            kept = self.recorder.restride(value, stride)
        torch._functionalize_replace(tensor, kept)
        torch._functionalize_commit_update(tensor)
        if current(tensor).stride() != stride:
            raise BackendError("a write cannot keep the strides of a view")


def memory_of(name: str, written: list, grows: bool) -> list:
    """The tensors that a call writes to, after what they are views of.

    A BackendError if functionalisation would not write as eager does;
    what is given as `out=` also `grows`.
    """
    found: dict[torch.Tensor, None] = {}
    ends: dict[int, int] = {}  # of the memory that is written so far
    for each in sorted(written, key=torch.Tensor.storage_offset):
        base = each if each._base is None else each._base
        start, memory = each.storage_offset(), torch._C._storage_id(each)
        steps = view_steps(each)
        for refused, reason in (
            (reach(each) < 0 or reach(base) < 0,
             "a tensor with several elements in one place"),
            (start <= ends.get(memory, -1), "one place twice"),
            (any(isinstance(step, Unfold) for step in steps),
             "the result of unfold"),
            (steps and grows, "a view, as out="),
        ):
            if refused:
                raise BackendError(f"{name} writes to {reason}")
        ends[memory] = start + reach(each)
        found |= {base: None, each: None}
    return list(found)


def require_apart(name: str, written: list, args: tuple,
                  kwargs: dict) -> None:
    """Raise if what is written is also read, but at other places.

    Eager raises too, or the result depends on the order.
    """
    if name == "__setitem__":
        where, value = args[1:]
        written = [] if tensors_of([where]) else [args[0][where]]
        args = value,
    for read in tensors_of((args, kwargs)):
        if any(overlap_in_part(each, read) for each in written):
            raise BackendError(f"{name} reads a part of what it writes")


def overlap_in_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors without gaps have some elements in common, but
    not each its own; where there are gaps, eager does not ask."""
    apart = a is b or not torch._is_functional_tensor(b) or (
        torch._C._storage_id(a) != torch._C._storage_id(b))
    if apart or not (dense(a) and dense(b)):
        return False
    (start, end, *_), (other, last, *_) = one, two = [
        (each.storage_offset() * each.itemsize, each.itemsize * (
            each.storage_offset() + each.numel()), each.stride())
        for each in (a, b)]
    return start < last and other < end and one != two


def assigns(name: str) -> bool:
    """Whether a method of this name is an assignment, such as `+=`."""
    return name == "__setitem__" or name.startswith("__i") and hasattr(
        operator, f"__{name[3:]}")


@cache
def is_inplace_view(name: str) -> bool:
    """Whether a method changes what a tensor says of itself, such as its
    shape, and not its elements."""
    return any(torch.Tag.inplace_view in op.tags for op in operators(name))
