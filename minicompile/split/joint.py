"""The joint graph, what is said about its results, and its two halves.

`record` makes a `Joint`. Its graph is pure arithmetic; everything that is
not (inputs written to, results that are views of inputs or of each other,
which results carry a gradient) is frozen next to it. `partition` cuts the
graph into a `Pair`. The forward computes the results and the saved
values. The backward starts from those and the tangents, and recomputes
each other value just before its first reader. PyTorch's are
ViewAndMutationMeta in torch/_functorch/_aot_autograd/schemas.py, and
torch/_functorch/partitioners.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from operator import getitem

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..core.errors import BackendError
from ..core.graph import (has_effect, is_number, nbytes, placeholders,
                          render, results, value)
from ..core.loops import walk
from ..core.options import Options
from ..core.sizes import SYMBOLIC, Numbers

aten = torch.ops.aten

#: What writes to an input; all else in a joint graph makes values.
WRITE = aten.copy_.default


@dataclass(frozen=True)
class Joint:
    """Forward and backward in one functional ATen graph.

    Placeholders: one `primals_i` for each input, then one `tangents_j`
    for each differentiable output. Outputs: the first `forward_outputs`
    belong to the forward, the rest are gradients, one for each of
    `gradients`. Its last steps write to the inputs that are `mutated`.
    `plans` has the halves that were tried, by what they save.
    """

    graph: fx.GraphModule
    source: fx.GraphModule  # the torch-level graph it was recorded from
    forward_outputs: int
    results: fx.GraphModule | None  # inputs, fresh values -> results
    mutated: tuple[int, ...]  # inputs that the graph writes to
    tracked: tuple[int, ...]  # inputs that `results` writes to
    tangents: tuple[int, ...]  # forward outputs with a gradient, if any
    gradients: tuple[int, ...]  # inputs that want one
    unseen: tuple[int, ...] = ()  # those of `mutated` unknown to autograd
    plans: dict[frozenset[str], Pair] = field(
        default_factory=dict, compare=False)

    @cached_property
    def primals(self) -> list[fx.Node]:
        """The placeholders that are the function's inputs."""
        return [node for node in placeholders(self.graph.graph)
                if not node.name.startswith("tangents_")]

    @cached_property
    def tangent_nodes(self) -> list[fx.Node]:
        """The placeholders that are gradients of the outputs."""
        return placeholders(self.graph.graph)[len(self.primals):]

    @cached_property
    def written(self) -> list[fx.Node]:
        """The primals that hold other values by the backward."""
        return [self.primals[k] for k in self.mutated + self.tracked]

    @cached_property
    def outputs(self) -> tuple:
        """The results of the forward half: nodes, in order."""
        return results(self.graph.graph)[:self.forward_outputs]

    @cached_property
    def grads(self) -> tuple:
        """The gradients: a node, or None where there is none."""
        return results(self.graph.graph)[self.forward_outputs:]

    @cached_property
    def early(self) -> list[fx.Node]:
        """The forward nodes, in order: those that need no tangent."""
        return [node for node in self.graph.graph.nodes
                if node not in self.needs and node.op != "output"]

    @cached_property
    def late(self) -> list[fx.Node]:
        """The backward nodes, in order, the tangents not among them."""
        return [*self.needs][len(self.tangents):]

    @cached_property
    def needs(self) -> dict[fx.Node, Set[int]]:
        """The tangents and the backward nodes, in order, each with the
        outputs whose tangents it needs.

        The backward of a user's autograd.Function runs as a whole, or not.
        """
        found = {node: {k} for k, node in zip(
            self.tangents, self.tangent_nodes)}
        functions: dict[object, set[int]] = {}
        for node in self.graph.graph.nodes:
            needed = below(node, found)
            if needed and node.op != "output":
                found[node] = functions.setdefault(
                    node.meta.get("function", node), needed)
                found[node] |= needed
        return found

    @cached_property
    def likely(self) -> tuple[int, ...]:
        """The tangents of a usual step: those of the results that are one
        number, such as a loss, or else all."""
        return tuple([k for k in self.tangents
                      if not value(self.outputs[k]).dim()]) or self.tangents

    def __str__(self) -> str:
        return render(self.graph, "joint")


def below(node: fx.Node, known: Mapping[fx.Node, Set]) -> set:
    """All that is known of a node's inputs."""
    return set().union(*[known.get(n, ()) for n in node.all_input_nodes])


def root(node: fx.Node) -> fx.Node:
    """The node whose memory `node` looks at."""
    return lineage(node)[-1]


def lineage(node: fx.Node) -> list[fx.Node]:
    """The node, and what it is a view of, back to the one with memory."""
    found = [node]
    while isinstance(node, fx.Node) and node.op == "call_function":
        at = node.args[0] if node.target is getitem else node
        if not getattr(at.target, "is_view", False):
            break
        found += [at] * (at is not node)
        node = at.args[0]
        found.append(node)
    return found


#: What names the values to save; the last one counts. By default it is the
#: memory of all values: those that the backward reads first are kept.
CHOOSE: list[Callable[[Joint, Options], Set[str]]] = [
    lambda joint, options: {root(node).name for node in joint.early}]


@dataclass(frozen=True)
class Pair:
    """The two halves.

    The backward takes `saved`, then the `tangents` of these outputs. Each
    saved value has a name and a number, which counts the inputs and then
    the outputs of the forward. Inputs that are no tensors come first.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule | None  # None: nothing to differentiate
    saved: dict[str, int]
    tangents: tuple[int, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for the backward that are not inputs."""
        mine = self.saved.keys() & self.donated
        return sum(nbytes(value(node)) for node in placeholders(
            self.backward.graph) if node.name in mine)

    @property
    def donated(self) -> set[str]:
        """The backward's inputs that have no other holder."""
        count = len(placeholders(self.forward.graph))
        return {node.name for node in placeholders(self.backward.graph)
                if self.saved.get(node.name, count) >= count
                } if self.backward else set()

    def halves(self) -> dict[str, fx.GraphModule]:
        """The graphs there are, by name."""
        both = {"forward": self.forward, "backward": self.backward}
        return {name: half for name, half in both.items() if half}

    def __str__(self) -> str:
        return "\n\n".join(render(half, name)
                           for name, half in self.halves().items())


def partition(joint: Joint, saved: Set[str],
              tangents: Sequence[int] | None = None) -> Pair:
    """The joint graph cut at the values named in `saved`. The backward is
    that from the `tangents` of these outputs; by default, of all."""
    outputs = list(joint.outputs)
    kept = kept_nodes(joint, saved)
    held = set(joint.primals).difference(joint.written).union(outputs)
    outputs += [node for node in kept if node not in held]
    number = {n: k for k, n in enumerate([*joint.primals, *outputs])}
    kept.sort(key=lambda node: (not is_number(node), number[node]))
    come = joint.tangents if tangents is None else tuple(tangents)
    forward, backward = halves(joint, kept, outputs, come)
    return Pair(forward, backward if joint.tangents else None,
                {node.name: number[node] for node in kept}, come)


def kept_nodes(joint: Joint, saved: set[str]) -> list[fx.Node]:
    """The values that the backward starts from, besides tangents.

    Each input that it needs is kept, and each size that varies, because
    shapes need these. Of other values, those that are named in `saved` and
    needed. A number is kept if it is read off a tensor.
    """
    stop = {node for node in joint.early if node.op == "placeholder"
            or (isinstance(node.target, torch._ops.OpOverload)
                if is_number(node) else node.name in saved)}
    needed = set(backward_nodes(joint, stop))
    for node in joint.early:
        if node in needed and node not in stop and has_effect(node):
            raise BackendError(f"the backward needs {node.name}, which is "
                               "neither saved nor can be recomputed")
    needed.update(node for node in joint.primals
                  if isinstance(value(node), torch.SymInt))
    return [node for node in joint.early
            if node in needed and node in stop]


def backward_nodes(joint: Joint, kept: set[fx.Node]) -> list[fx.Node]:
    """The backward in the order it runs, what it recomputes included. It
    runs for gradients and effects."""
    ends = [*filter(has_effect, joint.late), *filter(None, joint.grads)]
    return ancestors(ends, kept.union(joint.tangent_nodes))


def halves(joint: Joint, kept: list[fx.Node], outputs: list,
           tangents: Sequence[int]
           ) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward to `outputs`, with all writes, the backward from `kept`
    and the `tangents`, without the nodes that need none of these.
    """
    absent = {node for node, needed in joint.needs.items()
              if needed.isdisjoint(tangents)}
    come = [node for node in joint.tangent_nodes if node not in absent]
    return (extract(joint, joint.early, joint.primals, outputs),
            extract(joint, backward_nodes(joint, set(kept)),
                    [*kept, *come], [None if node in absent else node
                                     for node in joint.grads], absent))


def ancestors(ends, stop: Container[fx.Node]) -> list[fx.Node]:
    """The nodes that `ends` are computed from, inputs first, not beyond
    `stop`."""
    return walk(*ends, parts=lambda node: () if node in stop
                else node.all_input_nodes)


def extract(joint: Joint, nodes, inputs, outputs,
            absent: Set[fx.Node] = frozenset()) -> fx.GraphModule:
    """A graph of those `nodes` that matter and are not `absent`, from
    `inputs` to `outputs`.

    An input that it writes to may be an output, too: a copy of what was
    there, made before the writes.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = node.meta
    writes = [node for node in nodes if node.target is WRITE]
    for node in nodes:
        if node not in copies and node not in absent and (
                node.target is not WRITE):
            copies[node] = graph.node_copy(node, lambda each: (
                zeros(graph, value(each)) if each in absent
                else copies[each]))
    returned = tuple(
        copied(copies[node]) if root(node) in joint.written
        else copies.get(node, node) for node in outputs)
    for node in writes:
        graph.node_copy(node, copies.__getitem__)
    graph.output(returned)
    without_dead(graph)
    return _LazyGraphModule(joint.graph, graph)


def zeros(graph: fx.Graph, like: torch.Tensor) -> fx.Node:
    """Zeros laid out as a fake tensor, at the end of the graph."""
    numbers = Numbers(graph)
    for node in placeholders(graph):
        numbers.given(node)
    empty = graph.call_function(aten.empty_strided.default, tuple(
        [numbers.written(each) if isinstance(each, SYMBOLIC) else each
         for each in measures] for measures in (like.shape, like.stride())),
        {"dtype": like.dtype, "device": like.device})
    made = graph.call_function(aten.full_like.default, (empty, 0))
    empty.meta["val"] = made.meta["val"] = like
    return made


def without_dead(graph: fx.Graph) -> fx.Graph:
    """The graph, without the nodes that have no reader and no effect."""
    graph.eliminate_dead_code(lambda node: has_effect(node) or (
        node.op in ("placeholder", "output")))
    return graph


def copied(node: fx.Node) -> fx.Node:
    """A copy of the node's value, made where its graph ends by now."""
    copy = node.graph.call_function(aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    return copy


def finish(graph: fx.Graph, mutated: tuple[int, ...], at: int) -> None:
    """Keep the forward outputs apart; from number `at` on, write them to
    the `mutated` inputs, in order, instead of returning them.

    An output that shares memory with an input or another output is
    copied. They are apart in eager: a write to one does not change the
    other. So is a gradient that views all of another's memory: of one that
    is given twice itself, autograd makes a copy.
    """
    taken = {n for n in graph.nodes if n.op in ("placeholder", "get_attr")}
    owners: dict[fx.Node, int] = {}  # which gradient has a memory
    inputs, outputs = placeholders(graph), list(results(graph))
    end, returned = at + len(mutated), graph.output_node()
    with graph.inserting_before(returned):
        for position, node in enumerate(outputs[:end]):
            if isinstance(node, fx.Node) and root(node) in taken:
                outputs[position] = copied(node)
            elif isinstance(node, fx.Node):
                taken.add(root(node))
        for position, node in enumerate(outputs[end:], end):
            memory = root(node)
            if node and nbytes(value(node)) == nbytes(value(memory)):
                first = owners.setdefault(memory, position)
                if first < position and not (
                        node is memory is outputs[first]):
                    outputs[position] = copied(node)
        for k, new in zip(mutated, outputs[at:end]):
            step = graph.create_node("call_function", WRITE, (
                inputs[k], new), name="copy_")
            step.meta = {**new.meta, "val": value(inputs[k])}
    returned.args = ((*outputs[:at], *outputs[end:]),)
