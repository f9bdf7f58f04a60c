"""Graphs inside a graph: a recorder whose inputs are found on the way.

In: a tracer, and the tensors that a graph is given. Out: what is traced
meanwhile, as a graph of its own; a tensor from outside that it reads is
captured, as one input more. PyTorch's is
torch/_dynamo/output_graph.py (SubgraphTracer).
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from sympy import Symbol
from torch import fx

from ...core.sizes import SYMBOLIC
from ..recorder import Recorder


class Inner(Recorder):
    """A graph inside a graph: what it reads of that one is an input."""

    def __init__(self, outer: Recorder, tensors=()):
        vars(self).update(vars(outer), outer=outer, graph=fx.Graph(),
                          nodes={}, modules={}, numbers={}, captured=[])
        self.last, self.count = self.graph._root, 0
        for tensor in tensors:
            self.placeholder(tensor)

    def placeholder(self, tensor: torch.Tensor | torch.SymInt) -> None:
        """One more input, which stands for `tensor`, or a size, in here."""
        with self.graph.inserting_after(self.last):
            self.last = self.graph.placeholder(f"given_{self.count}")
        self.count += 1
        self.last.meta["val"], self.last.meta["where"] = tensor, None
        if isinstance(tensor, SYMBOLIC):
            self.numbers[tensor.node.expr] = self.last
        self.nodes.setdefault(id(tensor), self.last)
        self.kept.append(tensor)

    def node(self, fake: torch.Tensor) -> fx.Node:
        """The node of a tensor in here; one from outside is captured."""
        if id(fake) not in self.nodes:
            self.outer.node(fake)
            self.captured.append(fake)
            self.placeholder(fake)
        return super().node(fake)

    def symbol(self, symbol: Symbol) -> fx.Node:
        """The node of a symbol in here; it is captured."""
        if symbol not in self.numbers:
            value = self.outer.symbol(symbol).meta["val"]
            self.captured.append(value)
            self.placeholder(value)
        return self.numbers[symbol]

    def finish(self, outputs) -> fx.GraphModule:
        """The graph, returning the nodes of some tensors."""
        self.graph.output(tuple(None if each is None else self.node(each)
                                for each in outputs))
        return fx.GraphModule(self.modules, self.graph)


@contextmanager
def recording(tracer, tensors, grad_enabled: bool = False):
    """What is traced inside goes to a graph of its own."""
    outer, grad = tracer.recorder, torch.is_grad_enabled()
    tracer.recorder = inner = Inner(outer, tensors)
    torch._C._set_grad_enabled(grad_enabled)
    try:
        yield inner
    finally:
        tracer.recorder = outer
        torch._C._set_grad_enabled(grad)


def state(tracer, own: dict) -> list:
    """All that code which runs later must not have changed by now."""
    outside, seen = tracer.outside, []
    waiting = [own, tracer.turned, outside.said,
               *(o.written for o in outside.overlays.values()),
               *(copy.now for copy in outside.copies)]
    for each in waiting:
        parts = each.items() if isinstance(each, dict) else enumerate(each)
        for key, part in parts:
            seen.append((id(each), key, id(part)))
            if isinstance(part, (dict, list, tuple, set)) and not any(
                    part is one for one in waiting):
                waiting.append(part)
    return seen
