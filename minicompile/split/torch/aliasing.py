"""Rare writes and views: parts of memory, other strides, several views.

In: a call that writes in place, or results that share memory. Out: the
same call with the strides that eager has, or how each result is a view.
Functional forms lay out their results in another way: `x.scatter_(…)` as
a row-major `x`. And two results may be views of a tensor that the user
does not get. Without this file such graphs run as traced. PyTorch has both
in torch/_functorch/_aot_autograd, in functional_utils.py and
collect_metadata_analysis.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C._functionalization import (
    InverseReturnMode, apply_view_meta_sequence as apply_steps,
    get_view_meta_sequence as view_steps, unfold_ViewMeta as Unfold)

from ...core.errors import BackendError
from ...core.graph import dense, reach, tensors_of
from ..aliases import (BASES, VIEWS, WRITES, InPlaceWrites, changes_shape,
                       storage_of)
from ..joint import Joint, Result
from ..recorder import RecordingMode, functional, unwrapped
from ..runtime import VIEWED, at_run_time

#: Steps whose arguments PyTorch hands out after it has freed them.
UNREADABLE = {"_unsafe_view_ViewMeta", "resize__ViewMeta"}


def write(mode: InPlaceWrites, name: str, function: Callable, args: tuple,
          kwargs: dict, written: list) -> object:
    """The result of a call that writes to its arguments, in parts too."""
    if changes_shape(name):
        if args[0].requires_grad:
            raise BackendError(f"{name} on a tensor that requires grad")
        mode.turned.add(storage_of(args[0]))
        return function(*args, **kwargs)
    layouts = [(each, each.size(), each.stride())
               for each in memory_of(name, written, "out" in kwargs)]
    require_apart(name, written, args, kwargs)
    result = function(*args, **kwargs)
    if any(each.requires_grad and storage_of(each) in mode.turned
           for each in written):  # its gradient would have old shapes
        raise BackendError(f"{name} tracks memory seen in a new shape")
    for layout in layouts:
        keep(mode.recorder, *layout)
    return result


def keep(recorder: RecordingMode, tensor: torch.Tensor, size,
         stride) -> None:
    """Give `tensor` the strides it had; an empty `out=` may grow."""
    value = unwrapped(tensor)
    if value.size() != size and size.numel():
        raise BackendError("out= has another shape than the result")
    if value.size() != size or value.stride() == stride:
        return
    with functional(False):
        kept = recorder.restride(value, stride)
    torch._functionalize_replace(tensor, kept)
    torch._functionalize_commit_update(tensor)
    if unwrapped(tensor).stride() != stride:
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
        start, memory = each.storage_offset(), storage_of(each)
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
        storage_of(a) != storage_of(b))
    if apart or not (dense(a) and dense(b)):
        return False
    (start, end, *_), (other, last, *_) = one, two = [
        (each.storage_offset() * each.itemsize, each.itemsize * (
            each.storage_offset() + each.numel()), each.stride())
        for each in (a, b)]
    return start < last and other < end and one != two


def base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """The tensor that all outputs in one memory are views of."""
    tracked = [each._base for each in group if each._base is not None]
    return min(tracked or group, key=lambda each: len(view_steps(each)))


def view_of(output: torch.Tensor, of: int, base: torch.Tensor) -> Result:
    """`output`, in the memory of `base`, as a view of value number `of`."""
    taken, given = (list(map(said, view_steps(each)))
                    for each in (output, base))
    steps = taken[len(given):]
    if not steps or taken[:len(given)] != given or any(
            kind.__name__ in UNREADABLE for kind, _ in steps):
        raise BackendError("two results share memory, and neither is a "
                           "view of the other")
    if output.grad_fn is not None and not leads_to(output, base):
        raise BackendError("a result is a view, and its gradient does not "
                           "reach what it is a view of")
    return Result(of, tuple(steps), output.grad_fn is not None)


def said(step) -> tuple:
    """A step of a view: its class and its arguments, or which one it is."""
    kind = type(step)
    return kind, (step if kind.__name__ in UNREADABLE
                  else step.as_tuple())


def leads_to(output: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the gradient of the view `output` flows to `base`.

    It does not through a view that was made under no_grad.
    """
    step = output.grad_fn
    while step is not None:
        if step is base.grad_fn or getattr(step, "variable", 0) is base:
            return True
        step = step.next_functions[0][0] if step.next_functions else None
    return False


def maker(joint: Joint, result: Result) -> Callable[[list], torch.Tensor]:
    """A function of the values so far -> the view that this result is."""
    ends = [1 + [*map(type, given)].index(InverseReturnMode)
            for _, given in result.steps]  # until there: how it is done
    known = at_run_time(joint, [given[end:] for end, (_, given)
                                in zip(ends, result.steps)])

    def view(values: list) -> torch.Tensor:
        base = values[result.of]
        steps = [kind((*given[:end], *rest)) for (kind, given), end, rest
                 in zip(result.steps, ends, known(values))]
        with torch.set_grad_enabled(result.differentiable or (
                torch.is_grad_enabled() and not base.requires_grad)):
            return apply_steps(base, steps)
    return view


WRITES.append(write)
BASES.append(base_of)
VIEWS.append(view_of)
VIEWED.append(maker)
