"""diagnose(): the first stage that differs from eager, and at which node.

In: a function and a call of it. Out: a Diagnosis. The ladder has a rung
for each stage: the traced graph and its halves run by FX, the loops run
by the evaluator, the kernels. A rung differs if it is much further from
the graph in float64 than eager is. Then the stage is searched for the
node that differs. PyTorch's is torch/_dynamo/repro/after_aot.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import (tree_flatten, tree_map, tree_map_only,
                                 tree_unflatten)

from ... import fusion, split
from ...core import TOOLS
from ...core.errors import Where, where_of
from ...core.graph import placeholders, tensors_of, value
from ...core.options import Options, make_options
from ...core.schedule import Schedule
from ...core.semantics.evaluate import evaluate_schedule
from ...driver import compile
from ...emit import emit
from ...pipeline import CompiledGraph, lower_ours
from ...split.joint import ancestors, extract, root

#: How many times as far from float64 as eager a rung may be.
FACTOR = 16


@dataclass(frozen=True)
class Diagnosis:
    """Each rung with its relative error and the error it may have.

    `stage` is the first that differs, "" if none does; `node` names the
    first graph node that differs in it, and `where` is the user's line.
    """

    rungs: list[tuple[str, float, float]]
    stage: str = ""
    node: str = ""
    where: Where | None = None

    def __str__(self) -> str:
        lines = [f"{name:7} error {found:.1e}, allowed {allowed:.1e}"
                 for name, found, allowed in self.rungs]
        if not self.stage:
            return "\n".join([*lines, "no stage differs"])
        line = f"  {self.where}: {self.where.text}" if self.where else ""
        return "\n".join([*lines, f"{self.stage} differs at "
                          f"{self.node or 'no node'}", line])


def diagnose(function: Callable, mode: str | None = None,
             options: dict | None = None) -> Callable[..., Diagnosis]:
    """`diagnose(f)(*args)` says which stage of the compiler is wrong.

    Each rung runs with copies of the arguments and of a module. Random
    numbers are eager's. All values between are kept, so the inputs should
    be small. PyTorch's own operators are trusted.
    """
    function = getattr(function, "_orig_mod", getattr(
        function, "_torchdynamo_orig_callable", function))
    options = replace(make_options(mode, options), fallback_random=True)
    return lambda *args, **kwargs: climb(
        function, *tree_flatten((args, kwargs)), options)


TOOLS["diagnose"] = diagnose


def climb(function: Callable, leaves: list, form: object,
          options: Options) -> Diagnosis:
    """The diagnosis of a call with these arguments."""
    seen, rungs, eager = [], [], Eager()

    def capture(graph: fx.GraphModule, _: object) -> Callable:
        def run(*given):
            seen.append((graph, copied(given)))
            return graph(*given)
        return run

    def whole(make: Callable) -> list:
        own = copy.deepcopy(function)
        call, weights = make(own), getattr(own, "parameters", tuple)()

        def unflattened(given: list):
            args, kwargs = tree_unflatten(given, form)
            return call(*args, **kwargs)
        return played(unflattened, leaves, weights)

    def differs(stage: str, found: list, right: list, bound: float) -> bool:
        rungs.append((stage, error(found, right), bound))
        return rungs[-1][1] > bound

    with eager:
        wanted = whole(lambda own: own)
    bound = allowed(0, wanted)
    if differs("trace", whole(partial(
            compile, backend=capture, dynamic=False)), wanted, bound):
        return blame(rungs, (node for graph, inputs in seen for node in
                             strangers(Tape(graph, inputs), eager.values)))
    for graph, inputs in seen:
        plain = played(partial(run_fx, graph), inputs)
        exact = played(partial(run_fx, graph, exact=True),
                       copied(inputs, True))
        bound = allowed(error(plain, exact), plain)
        made = lower_ours(graph, cloned(inputs), "fused", options)
        for stage, run in rungs_of(made):
            if differs(stage, played(run, inputs), exact, bound):
                return blame(rungs, search(stage, made, inputs, options))
    return Diagnosis(rungs)


def blame(rungs: list, nodes: Iterable[fx.Node]) -> Diagnosis:
    """The last rung differs, at the first of these nodes."""
    node = next(iter(nodes), None)
    return Diagnosis(rungs, rungs[-1][0], *(
        (node.name, where_of(node)) if node else ()))


def rungs_of(made: CompiledGraph) -> Iterator[tuple[str, Callable]]:
    """Each stage after the trace, and what runs its form of the graph."""
    halves = made.pair.halves() if made.pair else {}
    for stage, runs in {
            "split": {name: partial(run_fx, half)
                      for name, half in halves.items()},
            "fusion": {name: partial(evaluate, each)
                       for name, each in made.schedules.items()},
            "emit": {name: each.run
                     for name, each in made.programs.items()}}.items():
        if runs:
            yield stage, split.make_runtime(made.joint, made.pair, **runs)
    yield ("replay" if made.graphed else "runtime"), made.call


def run_fx(graph: fx.GraphModule, inputs: list, exact: bool = False
           ) -> tuple:
    """The results of a graph as FX runs it, in float64 if `exact`."""
    return tuple(Tape(graph, inputs, exact).result)


def evaluate(schedule: Schedule, inputs: list) -> tuple:
    """The results of a schedule, on the device of its inputs."""
    devices = [each.device for each in tensors_of(inputs)]
    with devices[0] if devices else torch.device("cpu"):
        return evaluate_schedule(schedule, inputs)


class Eager(TorchFunctionMode):
    """Keeps the results of PyTorch's functions that are called."""

    def __init__(self):
        super().__init__()
        self.values: list[Tensor] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.values += copied(tensors_of(made))
        return made


class Tape(fx.Interpreter):
    """Runs a graph and keeps every value; `exact`: in float64."""

    def __init__(self, graph: fx.GraphModule, inputs: Iterable,
                 exact: bool = False):
        super().__init__(graph, garbage_collect_values=False)
        self.exact, self.values = exact, {}
        self.result = self.run(*inputs)

    def run_node(self, node: fx.Node):
        """The node's value; a dtype in a call means float64."""
        target, given = node.target, self.fetch_args_kwargs_from_env(node)
        if self.exact:
            given = tree_map(in_double, given)
            if target in ("float", "half", "bfloat16"):
                target = "double"
        made = getattr(self, node.op)(target, *given)
        if self.exact:
            made = tree_map(in_double, made)
        self.values[node] = copied(made)
        return made


def in_double(given: object) -> object:
    """A floating tensor or dtype as float64; all else as it is."""
    if isinstance(given, Tensor) and given.is_floating_point():
        return given.double()
    return torch.float64 if isinstance(given, torch.dtype) and (
        given.is_floating_point) else given


def copied(given: object, exact: bool = False) -> object:
    """The same with copies of the tensors, as leaves of autograd."""
    def copy_of(each: Tensor) -> Tensor:
        made = in_double(each) if exact else each
        return made.detach().clone().requires_grad_(each.requires_grad)
    return tree_map_only(Tensor, copy_of, given)


def cloned(leaves: Iterable) -> list:
    """Tensors that may be written to, whose gradients are the leaves'."""
    return [each.clone() if isinstance(each, Tensor) and each.requires_grad
            else each for each in leaves]


def played(call: Callable, inputs: Iterable,
           weights: Iterable[Tensor] = ()) -> list:
    """What a call gives for copies of the inputs: its results, the
    gradients, and the inputs as they are then."""
    leaves = copied([*inputs])
    given = cloned(leaves)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        results = tensors_of(call([*given]))
    return copied([*results, *gradients(
        results, [*tensors_of(leaves), *weights]), *tensors_of(given)])


def gradients(results: list[Tensor], leaves: list[Tensor]) -> list:
    """The gradients from fixed tangents; None where there is none."""
    ends = [each for each in results if each.requires_grad]
    leaves = [each for each in leaves if each.requires_grad]
    return [*torch.autograd.grad(ends, leaves, tangents(ends),
                                 allow_unused=True)] if ends else []


def tangents(ends: Iterable[Tensor]) -> list[Tensor]:
    """Random numbers in the form of these tensors, always the same."""
    seeds = torch.Generator().manual_seed(0)
    return [torch.randn(end.shape, generator=seeds).to(
        end.device, end.dtype) for end in ends]


def error(found: list, wanted: list) -> float:
    """The largest difference, relative to the largest number of its
    tensor. A tensor of tiny numbers may be zeros in exact arithmetic."""
    worst = 0.0
    for ours, right in zip(found, wanted, strict=True):
        if ours is None or right is None:
            worst = max(worst, 0.0 if ours is right else inf)
        elif ours.shape != right.shape or not ours.isfinite().equal(
                right.isfinite()):
            return inf
        elif ours.numel():
            wide = torch.complex128 if right.is_complex() else torch.float64
            ours, right = (each.to(wide).nan_to_num(0, 0, 0)
                           for each in (ours, right))
            worst = max(worst, ((ours - right).abs().max() / right.abs(
                ).max().clamp(1e-6)).item())
    return worst


def allowed(eager: float, results: list) -> float:
    """The error that a rung may have, where eager has this one."""
    return FACTOR * max([eager, 1e-9, *(
        torch.finfo(each.dtype).eps for each in results
        if each is not None and each.dtype.is_floating_point)])


def strangers(tape: Tape, known: list[Tensor]) -> Iterator[fx.Node]:
    """The calls whose value is like none of the known ones."""
    return (node for node, made in tape.values.items()
            if node.op.startswith("call_") and not all(
                is_among(each, known) for each in tensors_of(made)))


def is_among(found: Tensor, known: list[Tensor]) -> bool:
    """Whether some tensor is like this one."""
    return any(each.shape == found.shape and each.dtype == found.dtype
               and error([found], [each]) <= allowed(0, [each])
               for each in known)


def search(stage: str, made: CompiledGraph, inputs: list, options: Options
           ) -> Iterator[fx.Node]:
    """The nodes that differ in a stage: if all are results, or, where
    that hides the fault, each as the only one."""
    given = [*copied(inputs), *tangents(map(
        value, made.joint.tangent_nodes))]
    with torch.no_grad():
        own, exact = ({node.name: each for node, each in Tape(
            made.joint.graph, copied(given, wide), wide).values.items()}
                      for wide in (False, True))

    def differs(node: fx.Node, found: object) -> bool:
        ours, plain, right = map(tensors_of, (
            found, own.get(node.name), exact.get(node.name)))
        return [each.shape for each in ours] == [
            each.shape for each in plain] and error(
                ours, right) > allowed(error(plain, right), plain)

    def values(half: fx.GraphModule, ends: list[fx.Node]) -> Iterable:
        starts = placeholders(half.graph)
        held = copied([own[node.name] for node in starts])
        if stage == "split":
            return Tape(half, held).values.items()
        schedule = fusion.fuse(extract(
            made.joint, ancestors(ends, starts), starts, ends))
        return zip(ends, evaluate(schedule, held) if stage == "fusion"
                   else emit(schedule, options).ready().run(held))

    kept = {half: [node for node in half.graph.nodes if node.name in own
                   and node.op == "call_function" and root(node) is node
                   and isinstance(value(node), Tensor)]
            for half in made.pair.halves().values()}
    alone = [(half, [node]) for half, nodes in kept.items()
             for node in nodes]
    for half, ends in [*kept.items(), *(alone if stage != "split" else ())]:
        yield from (node for node, found in values(half, ends)
                    if differs(node, found))
    if stage == "split":
        yield from unrecorded(made.joint.source, inputs,
                              tensors_of([*own.values()]))


def unrecorded(graph: fx.GraphModule, inputs: list, known: list[Tensor]
               ) -> Iterator[fx.Node]:
    """The traced calls whose value, or whose operand's gradient, is not
    among the known ones."""
    tape = Tape(graph, cloned(copied(inputs)))
    yield from strangers(tape, known)
    live = {node: each for node, each in tape.env.items()
            if isinstance(each, Tensor) and each.requires_grad}
    flows = gradients(tensors_of(tape.result), [*live.values()])
    for node, flow in reversed([*zip(live, flows)]):
        if flow is not None and not is_among(flow, known):
            yield from node.users
