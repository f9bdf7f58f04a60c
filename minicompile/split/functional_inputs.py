"""An input while the graph is recorded: what the graph is given for it.

In: an example input. Out: a functional stand-in, watched for writes. The
idea: a functional tensor takes writes as if it were memory, and says
afterwards that it was written and what its value is now. PyTorch's
analysis is torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..core.errors import BackendError
from ..core.graph import value
from ..core.sizes import SYMBOLIC
from .recorder import Recorder


class Input:
    """One input: `leaf` is differentiated by, `given` goes to the graph."""

    def __init__(self, recorder: Recorder, example: object, position: int):
        self.position = position
        self.node = recorder.node("placeholder", f"primals_{position + 1}")
        self.node.meta["val"] = self.leaf = self.given = example
        self.wants_gradient = getattr(example, "requires_grad", False) and (
            not torch.is_inference_mode_enabled())
        self.history = None
        if isinstance(example, torch.Tensor):
            self.stand_in(recorder, example)
        elif isinstance(example, SYMBOLIC):
            recorder.sizes[example.node.expr] = self.node

    def stand_in(self, recorder: Recorder, example: torch.Tensor) -> None:
        """Make functional tensors that act as `example` would."""
        fake = example if isinstance(example, FakeTensor) else (
            recorder.fake_mode.from_tensor(example, static_shapes=True))
        recorder.bind(self.node, fake)
        self.leaf = self.given = torch._to_functional_tensor(fake)
        if not self.wants_gradient:
            return
        self.leaf.requires_grad_()
        if not example.is_leaf:
            self.given = NonLeaf.apply(
                self.leaf, [torch._to_functional_tensor(fake)])
            self.history = self.given.grad_fn

    @property
    def written(self) -> bool:
        """Whether the graph wrote to this input's elements."""
        if not isinstance(self.given, torch.Tensor):
            return False
        torch._sync(self.given)
        for refused, reason in self.refusals():
            if refused:
                raise BackendError(f"the graph {reason} an input")
        return torch._functionalize_has_data_mutation(self.given)

    def refusals(self) -> list[tuple[bool, str]]:
        """What cannot be done to an input from inside a graph."""
        now, before = current(self.given), value(self.node)
        tracked = self.write_is_tracked and self.given.requires_grad
        return [
            (torch._functionalize_has_metadata_mutation(self.given),
             "changes in place the shape or strides of"),
            (torch._functionalize_was_storage_changed(self.given),
             "puts other memory under"),
            (self.given.requires_grad != self.wants_gradient
             and not tracked, "changes requires_grad of"),
            (now.size() != before.size() or now.stride() != before.stride(),
             "writes to, and cannot keep the strides of,"),
        ]

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


def current(tensor: object) -> object:
    """The fake tensor that a functional one stands for by now."""
    if not isinstance(tensor, torch.Tensor) or (
            not torch._is_functional_tensor(tensor)):
        return tensor
    torch._sync(tensor)
    return torch._from_functional_tensor(tensor)
