"""One joint graph into a forward and a backward graph.

In: a `Joint` and the names of the values to save. Out: a `Pair`. The
forward computes the results and the saved values; the backward starts
from those and the tangents, and recomputes whatever else it needs, each
value just before it is first read. PyTorch does the same in
torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..core.errors import BackendError
from ..core.graph import (has_effect, is_number, nbytes, output,
                          placeholders, render, results, value)
from .joint import Joint, root


@dataclass(frozen=True)
class Saved:
    """A value kept for the backward, and where the runtime finds it.

    `place` is "number" or "input" with the `index` of an input, or
    "output" with that of the forward graph's. A plan saves no numbers:
    the backward is given those inputs that are, and computes the others.
    """

    name: str
    place: str
    index: int


@dataclass(frozen=True)
class Pair:
    """The two halves.

    The backward takes `saved` (numbers, inputs, outputs), then tangents.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule | None  # None: nothing to differentiate
    saved: tuple[Saved, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for the backward that are not inputs."""
        donated = self.donated
        return sum(nbytes(value(node)) for node
                   in placeholders(self.backward.graph)
                   if node.name in donated
                   and not node.name.startswith("tangents_"))

    @property
    def donated(self) -> set[str]:
        """The backward's inputs that nobody else holds."""
        inputs = {s.name for s in self.saved if s.place != "output"}
        return {node.name for node in placeholders(self.backward.graph)
                if node.name not in inputs} if self.backward else set()

    def halves(self) -> dict[str, fx.GraphModule]:
        """The graphs there are, by name."""
        both = {"forward": self.forward, "backward": self.backward}
        return {name: half for name, half in both.items() if half}

    def __str__(self) -> str:
        return "\n\n".join(render(half, name)
                           for name, half in self.halves().items())


def partition(joint: Joint, saved: set[str]) -> Pair:
    """The joint graph cut at the values named in `saved`."""
    outputs = list(joint.outputs[:joint.returned])
    if not joint.training:
        return Pair(extract(joint, joint.early, joint.primals, outputs,
                            joint.writes) if joint.writes else joint.graph,
                    None, ())
    places = {node: place(joint, node, outputs)
              for node in kept_nodes(joint, saved)}
    kept = sorted(places, key=lambda node: (
        "number", "input", "output").index(places[node].place))
    forward, backward = halves(joint, kept, outputs, joint.writes)
    copy_outputs(forward.graph, len(outputs),
                 lambda node: node.op == "placeholder")
    return Pair(forward, backward, tuple(places[node] for node in kept))


def kept_nodes(joint: Joint, saved: set[str]) -> list[fx.Node]:
    """What the backward starts from, besides tangents.

    An input it needs is kept in any case, a name it does not need is not.
    Of numbers, only what is read off a tensor is kept.
    """
    stop = {node for node in joint.early if node.op == "placeholder"
            or (isinstance(node.target, torch._ops.OpOverload)
                if is_number(node) else node.name in saved)}
    needed = set(backward_nodes(joint, stop))
    for node in joint.early:
        if node in needed and node not in stop and has_effect(node):
            raise BackendError(f"the backward needs {node.name}, which is "
                               "neither saved nor can be recomputed")
    return [node for node in joint.early
            if node in needed and node in stop]


def backward_nodes(joint: Joint, kept: set[fx.Node]) -> list[fx.Node]:
    """The backward in the order it runs, what it recomputes included."""
    effects = [node for node in joint.late if has_effect(node)]
    grads = [node for node in joint.grads if isinstance(node, fx.Node)]
    return ancestors([*effects, *grads], kept | set(joint.tangent_nodes))


def halves(joint: Joint, kept: list[fx.Node], outputs: list, writes=()
           ) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward to `outputs` and `writes`, the backward from `kept`."""
    effects = [node for node in joint.early if has_effect(node)]
    needed = set(ancestors(
        [node for node in [*outputs, *effects, *(new for _, new in writes)]
         if isinstance(node, fx.Node)], set()))
    forward = extract(
        joint, [node for node in joint.early if node in needed],
        joint.primals, outputs, writes)
    return forward, extract(joint, backward_nodes(joint, set(kept)),
                            [*kept, *joint.tangent_nodes], joint.grads)


def ancestors(ends, stop: Container[fx.Node],
              known: Container[fx.Node] = ()) -> list[fx.Node]:
    """What `ends` are computed from, inputs first, not beyond `stop`;
    without what is `known`."""
    ordered: dict[fx.Node, None] = {}
    waiting = [(node, False) for node in reversed(list(ends))]
    while waiting:
        node, done = waiting.pop()
        if done:
            ordered[node] = None
        elif node not in ordered and node not in known:
            waiting.append((node, True))
            if node not in stop:
                waiting.extend((source, False) for source
                               in reversed(node.all_input_nodes))
    return list(ordered)


def extract(joint: Joint, nodes, inputs, outputs,
            writes=()) -> fx.GraphModule:
    """A graph of `nodes` from `inputs` to `outputs`, names kept.

    Its last steps write new values into inputs.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = node.meta
    for node in nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for into, new in writes:
        step = graph.create_node(
            "call_function", torch.ops.aten.copy_.default,
            (copies[into], copies[new]), name="copy_")
        step.meta = {**new.meta, "val": value(into)}
    graph.output(tuple(copies.get(node, node) for node in outputs))
    return _LazyGraphModule(joint.graph, graph)


def place(joint: Joint, node: fx.Node, outputs: list) -> Saved:
    """Where a saved value is found; `outputs` grows if it is not yet.

    An input that the graph writes to is copied out before it changes.
    """
    if node.op == "placeholder" and node not in joint.written:
        return Saved(node.name, "number" if is_number(node) else "input",
                     joint.primals.index(node))
    if node not in outputs:
        outputs.append(node)
    return Saved(node.name, "output", outputs.index(node))


def separate(graph: fx.Graph, forward_outputs: int) -> None:
    """Copy a forward output whose memory is an input's or another's.

    Eager made it apart, so a write to one must not show in the other.
    """
    taken = {n for n in graph.nodes if n.op in ("placeholder", "get_attr")}

    def is_shared(node: fx.Node) -> bool:
        before = len(taken)
        taken.add(root(node))
        return len(taken) == before
    copy_outputs(graph, forward_outputs, is_shared)


def copy_outputs(graph: fx.Graph, count: int,
                 wanted: Callable[[fx.Node], bool]) -> None:
    """Return copies of those of the first outputs that are `wanted`."""
    returned = output(graph)
    outputs = list(results(graph))
    for position, node in enumerate(outputs[:count]):
        if isinstance(node, fx.Node) and wanted(node):
            with graph.inserting_before(returned):
                copied = graph.call_function(
                    torch.ops.aten.clone.default, (node,))
            copied.meta = dict(node.meta)
            outputs[position] = copied
    returned.args = (tuple(outputs),)
