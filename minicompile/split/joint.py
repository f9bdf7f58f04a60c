"""The joint graph, and what the user's program says about its results.

`record` makes one, `partition` cuts its graph, `make_runtime` turns it
into a callable. The graph is pure arithmetic; everything that is not
(inputs written to, results that are views of inputs or of each other,
which results carry a gradient) is frozen here, next to it. PyTorch's
ViewAndMutationMeta is in torch/_functorch/_aot_autograd/schemas.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx

from ..core.cost import aliases_first
from ..core.graph import placeholders, render, results

def tensor_itself(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor: its bytes are read as they are."""
    return tensor


@dataclass(frozen=True)
class View:
    """A window into a base: shape, strides, and a step from its start.

    `before` reads the base's bytes in another way, `after` the window's.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    tracked: bool  # autograd knows that it is a view of the base
    differentiable: bool  # and a gradient flows through it
    before: Callable = tensor_itself
    after: Callable = tensor_itself


@dataclass(frozen=True)
class Result:
    """One result of the user's function, when the graph has run.

    It is the "input", the "output" of the graph or the earlier "result"
    that has this `index`, or a `view` of its memory. A "constant" is
    `value`, whatever the inputs are.
    """

    place: str
    index: int = -1
    view: View | None = None
    value: object = None


@dataclass(frozen=True)
class Mutation:
    """Input `input` gets the value of graph output `output` written in.

    If the write is `differentiable`, autograd saw it, and a gradient
    flows through it: the runtime repeats it. The forward half does all
    others itself, as its last steps.
    """

    input: int
    output: int
    differentiable: bool


@dataclass(frozen=True)
class Joint:
    """Forward and backward in one functional ATen graph.

    Placeholders: one `primals_i` for each input, then one `tangents_j`
    for each differentiable output. Outputs: the first `forward_outputs`
    belong to the forward (fresh results, then new values of mutated
    inputs, those that autograd saw first), the rest are gradients, one
    for each of `gradients`.
    """

    graph: fx.GraphModule
    source: fx.GraphModule  # the torch-level graph it was recorded from
    forward_outputs: int
    results: tuple[Result, ...]
    mutations: tuple[Mutation, ...]
    tangents: tuple[int, ...]  # forward outputs with a gradient
    gradients: tuple[int, ...]  # inputs that want one
    cut_off: bool = False  # inputs require grad, but no result does
    autocast: bool = False  # recorded in an autocast region

    @property
    def plain(self) -> bool:
        """Whether what the graph returns is what the user gets."""
        return self.results == tuple(
            Result("output", k) for k in range(self.forward_outputs))

    @property
    def writes(self) -> list[tuple[fx.Node, fx.Node]]:
        """The inputs that the forward half writes to: each with its new
        value."""
        return [(self.primals[each.input], self.outputs[each.output])
                for each in self.mutations if not each.differentiable]

    @property
    def returned(self) -> int:
        """How many of the forward outputs the forward half returns."""
        return self.forward_outputs - len(self.writes)

    @property
    def training(self) -> bool:
        """Whether there is a backward half at all."""
        return bool(self.tangents)

    @cached_property
    def primals(self) -> list[fx.Node]:
        """The placeholders that are the function's inputs."""
        return [node for node in placeholders(self.graph.graph)
                if not node.name.startswith("tangents_")]

    @cached_property
    def tangent_nodes(self) -> list[fx.Node]:
        """The placeholders that are gradients of the outputs."""
        return [node for node in placeholders(self.graph.graph)
                if node.name.startswith("tangents_")]

    @cached_property
    def written(self) -> list[fx.Node]:
        """The primals that hold other values by the backward."""
        return [self.primals[each.input] for each in self.mutations]

    @cached_property
    def outputs(self) -> tuple:
        """What the forward half returns: nodes, in order."""
        return results(self.graph.graph)[:self.forward_outputs]

    @cached_property
    def grads(self) -> tuple:
        """The gradients: a node, or None where there is none."""
        return results(self.graph.graph)[self.forward_outputs:]

    @cached_property
    def early(self) -> list[fx.Node]:
        """The forward nodes, in order: those that need no tangent."""
        late: set[fx.Node] = set(self.tangent_nodes)
        for node in self.graph.graph.nodes:
            if not late.isdisjoint(node.all_input_nodes):
                late.add(node)
        return [node for node in self.graph.graph.nodes
                if node not in late and node.op != "output"]

    @cached_property
    def late(self) -> list[fx.Node]:
        """The backward nodes, in order, the tangents not among them."""
        other = {*self.early, *self.tangent_nodes}
        return [node for node in self.graph.graph.nodes
                if node not in other and node.op != "output"]

    def __str__(self) -> str:
        return render(self.graph, "joint")


def is_view(node: fx.Node) -> bool:
    """Whether the node looks at its first argument's memory."""
    return (node.op == "call_function" and aliases_first(node.target)
            and isinstance(node.args[0], fx.Node))


def root(node: fx.Node) -> fx.Node:
    """The node whose memory `node` looks at: views followed back."""
    while is_view(node) or _is_item(node) and is_view(node.args[0]):
        node = node.args[0]
    return node


def _is_item(node: fx.Node) -> bool:
    """Whether the node picks one result out of several."""
    return getattr(node.target, "__name__", "") == "getitem" and isinstance(
        node.args[0], fx.Node)
