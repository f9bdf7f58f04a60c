"""Writes in place, watched above autograd, so that strides stay eager's.

In: every torch-level call while recording. Out: the same call. The idea:
functionalisation turns `x.scatter_(…)` into `scatter`, whose result may
be laid out in another way than `x`, and takes an expanded `x` as if its
elements were apart. So the layout is put back, or the write refused.
"""

from __future__ import annotations

import operator
from functools import cache

import torch
from torch._C._functionalization import (
    get_view_meta_sequence as view_steps, unfold_ViewMeta as Unfold)
from torch._dispatch.python import enable_python_dispatcher
from torch.overrides import TorchFunctionMode

from ..core.errors import BackendError
from ..core.graph import dense, operators, tensors_of, written_by
from ..core.sizes import AS_IN_CPP
from .functional_inputs import current
from .recorder import Recorder, as_it_is

#: Methods that give a tensor other memory, as setting `data` does.
FORBIDDEN = {"set_", "resize_", "resize_as_"}
#: What is not checked to fit in place, as an integer times 1.5 does not.
ARITHMETIC = {"add", "sub", "mul", "subtract", "multiply"}
#: Functions whose ATen op writes to an input although its schema does
#: not say so. Python's dispatcher has forms of these that say it.
HIDDEN_WRITES = {"batch_norm", "instance_norm", "native_batch_norm",
                 "cudnn_batch_norm"}

#: mkldnn's form keeps nothing for the backward unless grad mode is on.
RECURRENT = {"lstm"}

#: Functions whose derivative is refused for some complex values.
CHECKED = {"linalg_eig", "linalg_eigh", "linalg_svd"}


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
        if name in HIDDEN_WRITES:
            with enable_python_dispatcher():
                return function(*args, **kwargs)
        if name in AS_IN_CPP:
            with torch._C._DisablePythonDispatcher():
                return function(*args, **kwargs)
        if name in RECURRENT and torch.is_grad_enabled():
            with torch.backends.mkldnn.flags(enabled=False):
                return function(*args, **kwargs)
        if name in FORBIDDEN:
            raise BackendError(f"{name} gives a tensor other memory")
        if name.startswith("_fused_") and name.endswith("_"):
            raise BackendError(f"{name} writes to lists of tensors")
        if name in CHECKED and args[0].requires_grad and (
                name == "linalg_eig" or args[0].is_complex()):
            raise BackendError(f"the gradient of {name} looks at values")
        if name == "as_strided" and not dense(args[0]):
            raise BackendError("as_strided of memory with gaps")
        if is_inplace_view(name):
            if args[0].requires_grad:
                raise BackendError(f"{name} on a tensor that requires grad")
            return function(*args, **kwargs)
        written = [each for each in (
            args[:1] if kwargs.get("inplace") or assigns(name)
            else written_by(function, args, kwargs))
            if torch._is_functional_tensor(each)]
        if written and name.strip("_").removeprefix("i") in ARITHMETIC and (
                not torch.can_cast(torch.result_type(*args[:2]),
                                   args[0].dtype)):
            raise BackendError(f"{name} gives another dtype")
        watched = [(each, each.size(), each.stride())
                   for each in memory_of(name, written, "out" in kwargs)]
        require_apart(name, written, args, kwargs)
        result = function(*args, **kwargs)
        for each, size, stride in watched:
            self.keep(each, size, stride)
        return result

    def keep(self, tensor: torch.Tensor, size, stride) -> None:
        """Give `tensor` the strides it had; an empty `out=` may grow."""
        value = current(tensor)
        if value.size() != size and size.numel():
            raise BackendError("out= has another shape than the result")
        if value.size() != size or value.stride() == stride:
            return
        with as_it_is():
            kept = self.recorder.restride(value, stride)
        torch._functionalize_replace(tensor, kept)
        torch._functionalize_commit_update(tensor)
        torch._sync(tensor)


def memory_of(name: str, written: list, grows: bool) -> list:
    """The tensors that a call writes to, and what they are views of.

    A BackendError if functionalisation would not write as eager does;
    what is given as `out=` also `grows`.
    """
    found: dict[torch.Tensor, None] = {}
    ends: dict[int, int] = {}  # of the memory that is written so far
    for each in sorted(written, key=torch.Tensor.storage_offset):
        base = each if each._base is None else each._base
        start, memory = each.storage_offset(), torch._C._storage_id(each)
        if reach(each) < 0 or reach(base) < 0:
            raise BackendError(f"{name} writes to a tensor with several "
                               "elements in one place")
        if start <= ends.get(memory, -1):
            raise BackendError(f"{name} writes to one place twice")
        steps = view_steps(each)
        if any(isinstance(step, Unfold) for step in steps):
            raise BackendError(f"{name} writes to the result of unfold")
        if steps and grows:
            raise BackendError("out= is a view")
        ends[memory] = start + reach(each)
        found |= {each: None, base: None}
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


def reach(tensor: torch.Tensor) -> int:
    """How far the last element is from the first, in elements.

    -1 if two elements may be in one place.
    """
    last = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size > 1:
            if stride <= last:
                return -1
            last += stride * (size - 1)
    return last
