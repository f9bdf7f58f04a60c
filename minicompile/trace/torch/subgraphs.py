"""Graphs inside a graph: a recorder whose inputs are found on the way.

In: a tracer, functions, and what they are called with. Out: what each
does, as a graph of its own; a tensor from outside that it reads is
captured, as one input more. PyTorch's is
torch/_dynamo/output_graph.py (SubgraphTracer).
"""

from __future__ import annotations

import types
from collections import Counter, deque
from contextlib import contextmanager

import torch
from sympy import Symbol
from torch import fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from ...core.sizes import SYMBOLIC
from ..constant_types import contents
from ..interpreter_objects import StandIn
from ..reasons import REASONS, unsupported
from ..recorder import CONVERSIONS, Recorder, storage


REASONS["branch"] = (
    "a function given to {what}, which no graph of its own can do",
    "let it return new tensors, those of two branches alike, and write "
    "to nothing")


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
        """The graph, returning tensors in tuples, lists and dicts."""
        self.graph.output(self.argument(outputs, []))
        return fx.GraphModule(self.modules, self.graph)


def graph(recorder: Recorder, value: fx.GraphModule) -> fx.Node:
    """A graph as an argument of a node."""
    name = f"graph_{len(recorder.modules)}"
    recorder.modules[name] = value
    return recorder.graph.get_attr(name)


CONVERSIONS[fx.GraphModule] = graph


@contextmanager
def inner_recorder(tracer, tensors, grad_enabled: bool, kind=Inner):
    """What is traced inside goes to a graph of its own."""
    outer, grad = tracer.recorder, torch.is_grad_enabled()
    tracer.recorder = inner = kind(outer, tensors)
    torch._C._set_grad_enabled(grad_enabled)
    try:
        yield inner
    finally:
        tracer.recorder = outer
        torch._C._set_grad_enabled(grad)


def followed(tracer, name: str, functions, args, kwargs=None,
             grad_enabled: bool | None = None, kind=Inner
             ) -> tuple[list[tuple[Inner, object]], list]:
    """The graph of each function, what it returned; what they captured.

    No function may have effects. Each graph is given the tensors among
    the arguments, then all captured ones. `name` is the operator's.
    """
    if grad_enabled is None:
        grad_enabled = torch.is_grad_enabled()
    inputs, made = tensors(args, kwargs), []
    count, before = len(inputs), set(tracer.recorder.written)
    for function in functions:
        with inner_recorder(tracer, inputs, grad_enabled, kind) as inner, (
                unchanged(tracer, "branch",
                          f"{name} changes something outside")):
            made.append((inner, tracer.call(function, args, kwargs)))
        inputs += inner.captured
    if storages(inputs) & (tracer.recorder.written - before):
        raise unsupported("branch", f"{name} writes to its operands")
    for inner, _ in made:
        for each in inputs[inner.count:]:
            inner.placeholder(each)
    return made, inputs[count:]


def resolved(tracer, value):
    """Nested arguments of an operator, their dicts read from outside."""
    if type(value) is dict:
        return {key: resolved(tracer, part)
                for key, part in tracer.mapping(value).items()}
    return type(value)([resolved(tracer, part) for part in value]) if type(
        value) in (tuple, list) else value


def tensors(*values) -> list[torch.Tensor]:
    """The tensors in nested containers."""
    return [*filter(torch.is_tensor, tree_leaves(values))]


def refilled(value, found):
    """A nested container with other tensors, those of a node."""
    rest = iter(found)
    return tree_map_only(torch.Tensor, lambda _: next(rest), value)


def fresh(name: str, made, given) -> None:
    """Refuse results that share memory, with each other or operands."""
    own = storages(made)
    if own & storages(given) or len(own) < len(tensors(made)):
        raise unsupported("branch", f"{name} returns one memory twice, or "
                          "an operand's")


def looks(value) -> tuple:
    """What must be the same of results at every time."""
    leaves, spec = tree_flatten(value)
    return spec, [
        (each.dtype, tuple(each.shape), each.stride(), each.device)
        if torch.is_tensor(each) else each for each in leaves]


def storages(values) -> set[int]:
    """The memory of the tensors among some values."""
    return {*map(storage, tensors(values))}


@contextmanager
def unchanged(tracer, kind: str, what: str, own=()):
    """What is traced inside runs later, or not at all: no effect counts.

    Otherwise it is refused: `what` changes something.
    """
    before, kept = state(tracer, own)
    yield
    if before != state(tracer, own)[0]:
        raise unsupported(kind, what)
    del kept  # until now, so that no id was used twice


def state(tracer, own) -> tuple[dict, list]:
    """All that the program may change: switches; objects' parts, by id."""
    outside, seen = tracer.outside, {"turned": Counter(tracer.turned)}
    kept = [own, outside.said,
            *(copy.now for copy in outside.copies if copy.changed()),
            *(frame.names for frame in tracer.frames)]
    for each in outside.overlays.values():
        if changes := outside.changes(each):
            parts = [part for change in changes for part in change]
            seen[id(each)] = [*map(id, parts)]
            kept += parts
    for each in kept:
        if id(each) not in seen:
            parts = held_by(tracer, each)
            seen[id(each)] = [*map(id, parts)]
            kept += parts
    return seen, kept


def held_by(tracer, value) -> list:
    """The objects that a value is made of, where a trace may change it."""
    match value:
        case dict():
            return [*value, *value.values()]
        case list() | tuple() | set() | deque():
            return [*value]
        case types.CellType():
            return [*contents(value).values()]
        case types.MethodType():
            return [value.__self__]
        case StandIn(frame=frame):
            return [frame.next, frame.names]
        case types.FunctionType() if tracer.is_made(value):
            return [*(value.__closure__ or ())]
    return [*getattr(value, "__dict__", {}).values()] if (
        tracer.is_made(value)) else []
