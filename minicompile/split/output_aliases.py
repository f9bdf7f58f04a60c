"""What each result of the graph is: new memory, an input, or a view.

In: the functional tensors the graph returned. Out: a `Result` for each,
and the tensors that must be computed. The idea: two functional tensors
share a storage exactly if eager's do, so aliasing can be read off, and
put back at run time. PyTorch does the same in
torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

from __future__ import annotations

from operator import methodcaller

import torch

from ..core.errors import BackendError
from ..core.graph import tensors_of
from .functional_inputs import Input
from .joint import Result, View, tensor_itself
from .in_place_writes import reach


def describe(outputs, inputs: list[Input]) -> tuple[list, list]:
    """How each result is made at run time, and the tensors to compute."""
    homes = {torch._C._storage_id(each.given): (
                "input", each.position, each.given) for each in inputs
             if isinstance(each.given, torch.Tensor)}
    fresh: list[torch.Tensor] = []
    for memory, group in by_memory(outputs).items():
        if memory not in homes:
            homes[memory] = "output", len(fresh), base_of(group)
            fresh.append(homes[memory][-1])
    results: list[Result] = []
    for position, output in enumerate(outputs):
        first = next(k for k, each in enumerate(outputs) if each is output)
        if not isinstance(output, torch.Tensor):
            results.append(Result("constant", value=output))
        elif first < position:
            results.append(Result("result", first))
        else:
            place, at, base = homes[torch._C._storage_id(output)]
            results.append(Result(place, at, view(output, base)))
    require_history([*fresh, *tensors_of(outputs)], inputs)
    return results, fresh


def by_memory(outputs) -> dict[int, list[torch.Tensor]]:
    """The output tensors, grouped by the storage they share."""
    sharing: dict[int, list] = {}
    for output in tensors_of(outputs):
        torch._sync(output)
        sharing.setdefault(torch._C._storage_id(output), []).append(output)
    return sharing


def base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """The tensor that all outputs in one memory are views of."""
    if all(each is group[0] for each in group):
        return group[0]
    tracked = [each._base for each in group if each._base is not None]
    return tracked[0] if tracked else max(
        group, key=lambda each: (each.requires_grad, each.numel()))


def require_history(made: list[torch.Tensor], inputs: list[Input]) -> None:
    """Raise if a tensor's gradient does not come from the inputs."""
    given = {id(each.given) for each in inputs if each.wants_gradient}
    if any(each.requires_grad and given.isdisjoint(
            (id(each), id(each._base))) and not (given and each.grad_fn)
           for each in made):
        raise BackendError("a result is a leaf that requires grad, is made "
                           "of one, or is a view made under no_grad")


def view(output: torch.Tensor, base: torch.Tensor) -> View | None:
    """`output` as a window into `base`, which shares its memory."""
    if output is base:
        return None
    if output.grad_fn is not None and (
            reach(base) < 0 or not leads_to(output, base)):
        raise BackendError("a result is a view, and its gradient does not "
                           "reach each element of what it is a view of")
    size, stride = tuple(output.size()), output.stride()
    start, offset = base.storage_offset(), output.storage_offset()
    before, after = reading(output, base)
    if before is torch.view_as_real:
        start *= 2
    elif after is torch.view_as_complex:
        size, offset = (*size, 2), 2 * offset
        stride = (*(2 * step for step in stride), 1)
    return View(size, stride, offset - start, output._base is base,
                output.grad_fn is not None, before, after)


def reading(output: torch.Tensor, base: torch.Tensor) -> tuple:
    """How the base's bytes, then the window's, are read (View)."""
    same = base.dtype == output.dtype
    match base.is_complex(), output.is_complex():
        case True, True if same and output.is_conj() != base.is_conj():
            return tensor_itself, torch.conj
        case True, False if not base.is_conj() and not output.is_neg():
            return torch.view_as_real, tensor_itself
        case False, True if not output.is_conj():
            return tensor_itself, torch.view_as_complex
    if output.is_neg() == base.is_neg() and (
            output.is_conj() == base.is_conj()):
        if same:
            return tensor_itself, tensor_itself
        if output.itemsize == base.itemsize:
            return tensor_itself, methodcaller("view", output.dtype)
    raise BackendError("a result is a view that reads its base's bytes in "
                       "another way")


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
