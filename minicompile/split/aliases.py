"""Inputs and results of the graph: which are written, which share memory.

In: an example input, or what the graph returned. Out: a functional
stand-in that may be written to, or a `Result`. The idea: a functional
tensor takes writes as if it were memory, and two of them share a storage
exactly if eager's do. So writes and aliases are read off after the graph
has run, and put back at run time. PyTorch does the same in
torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..core.errors import BackendError
from ..core.graph import reach, tensors_of, value
from ..core.sizes import SYMBOLIC
from .joint import Result, Window
from .recorder import Recorder, current

storage_of = torch._C._storage_id


class Input:
    """One input: `leaf` is differentiated by, `given` goes to the graph."""

    def __init__(self, recorder: Recorder, example: object, position: int):
        self.position = position
        self.node = recorder.node("placeholder", f"primals_{position + 1}")
        self.node.meta["val"] = self.leaf = self.given = example
        self.wants_gradient = getattr(example, "requires_grad", False) and (
            not torch.is_inference_mode_enabled())
        self.history = None
        if isinstance(example, SYMBOLIC):
            recorder.sizes[example.node.expr] = self.node
        if not isinstance(example, torch.Tensor):
            return
        fake = example if isinstance(example, FakeTensor) else (
            recorder.fake_mode.from_tensor(example, static_shapes=True))
        recorder.bind(self.node, fake)
        self.leaf = self.given = torch._to_functional_tensor(fake)
        if self.wants_gradient:
            self.leaf.requires_grad_()
            if not example.is_leaf:
                self.given = NonLeaf.apply(
                    self.leaf, [torch._to_functional_tensor(fake)])
                self.history = self.given.grad_fn

    @property
    def written(self) -> bool:
        """Whether the graph wrote to this input's elements."""
        given = self.given
        if not isinstance(given, torch.Tensor):
            return False
        now, before = current(given), value(self.node)
        tracked = self.write_is_tracked and given.requires_grad
        for refused, reason in (
            (torch._functionalize_has_metadata_mutation(given),
             "changes in place the shape or strides of"),
            (torch._functionalize_was_storage_changed(given),
             "puts other memory under"),
            (given.requires_grad != self.wants_gradient and not tracked,
             "changes requires_grad of"),
            (now.size() != before.size() or now.stride() != before.stride(),
             "writes to, and cannot keep the strides of,"),
        ):
            if refused:
                raise BackendError(f"the graph {reason} an input")
        return torch._functionalize_has_data_mutation(given)

    @property
    def write_is_tracked(self) -> bool:
        """Whether autograd saw the write."""
        return self.given.grad_fn is not self.history


class NonLeaf(torch.autograd.Function):
    """Stands between a leaf and the graph, so that writing is allowed.

    Eager forbids writing to a leaf that requires grad. The user's input
    is not a leaf here, but what stands in for it while recording is.
    """

    @staticmethod
    def forward(ctx, leaf, held):
        return held[0]

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def describe_results(outputs, inputs: list[Input]) -> tuple[list, list]:
    """How each result is made at run time, and the tensors to compute."""
    homes = {storage_of(each.given): ("input", each.position, each.given)
             for each in inputs if isinstance(each.given, torch.Tensor)}
    sharing: dict[int, list] = {}
    for output in tensors_of(outputs):
        torch._sync(output)
        sharing.setdefault(storage_of(output), []).append(output)
    fresh: list[torch.Tensor] = []
    for memory, group in sharing.items():
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
            place, at, base = homes[storage_of(output)]
            results.append(Result(place, at, window_of(output, base)))
    require_history([*fresh, *tensors_of(outputs)], inputs)
    return results, fresh


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


def window_of(output: torch.Tensor, base: torch.Tensor) -> Window | None:
    """`output` as a window into `base`, which shares its memory."""
    if output is base:
        return None
    if any(of(output) != of(base) for of in (
            torch.is_conj, torch.is_neg, lambda each: each.dtype)):
        raise BackendError("a result is a view that reads its base's bytes "
                           "in another way")
    if output.grad_fn is not None and (
            reach(base) < 0 or not leads_to(output, base)):
        raise BackendError("a result is a view, and its gradient does not "
                           "reach each element of what it is a view of")
    return Window(tuple(output.size()), output.stride(),
                output.storage_offset() - base.storage_offset(),
                output._base is base, output.grad_fn is not None)


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
