"""diagnose(): the first stage that differs from eager, and at which node.

In: a function and a call of it. Out: a Diagnosis. The ladder has a rung
for each stage: the traced graph and its halves run by FX, the loops run
by the evaluator, the kernels. A rung differs if it is much further from
float64 than eager is. Then the stage is searched for the node that
differs. PyTorch's is torch/_dynamo/repro/after_aot.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import (tree_flatten, tree_map, tree_map_only,
                                 tree_unflatten)

from ... import fusion, split
from ...core import TOOLS
from ...core.errors import Where, where_of
from ...core.graph import (is_random, operators, placeholders,
                           tensors_of, value)
from ...core.options import Options, make_options
from ...core.schedule import Schedule
from ...core.semantics.evaluate import evaluate_schedule
from ...driver import compile
from ...emit import emit
from ...pipeline import CompiledGraph, lower_ours
from ...split.joint import ancestors, extract, root

#: How many times as far from float64 as eager a rung may be.
FACTOR = 16

#: Operators that draw random numbers have it.
SEEDED = torch.Tag.nondeterministic_seeded


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

    def diagnosed(*args, **kwargs) -> Diagnosis:
        rungs = []
        for stage, found, right, bound, suspects in ladder(
                function, *tree_flatten((args, kwargs)), options):
            rungs.append((stage, error(found, right), bound))
            if rungs[-1][1] > bound:
                node = next(iter(suspects()), None)
                return Diagnosis(rungs, stage, *(
                    (node.name, where_of(node)) if node else ()))
        return Diagnosis(rungs)
    return diagnosed


TOOLS["diagnose"] = diagnose


def ladder(function: Callable, leaves: list, form: object,
           options: Options) -> Iterator[tuple]:
    """Each rung: the stage, what it gives, what is right, the error that
    it may have, and what finds the nodes to blame."""
    seen, eager = [], Eager()

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

    with eager:
        wanted = whole(lambda own: own)
    yield ("trace", whole(partial(compile, backend=capture, dynamic=False)),
           wanted, allowed(0, wanted), lambda: (
               node for graph, inputs in seen
               for node in strangers(Tape(graph, inputs), eager.values)))
    for graph, inputs in seen:
        plain = played(as_fx(graph), inputs)
        exact = played(as_fx(graph, True), copied(inputs, True))
        bound = allowed(error(plain, exact), plain)
        made = lower_ours(graph, cloned(inputs), "fused", options)
        for stage, run in forms(made):
            yield stage, played(run, inputs), exact, bound, partial(
                search, stage, made, inputs, options)


def forms(made: CompiledGraph) -> Iterator[tuple[str, Callable]]:
    """Each stage after the trace, and what runs its form of the graph."""
    halves = made.pair.halves() if made.pair else {}
    for stage, run, each in (
            ("split", as_fx, halves), ("fusion", evaluated, made.schedules),
            ("emit", attrgetter("run"), made.programs)):
        if each:
            yield stage, split.make_runtime(made.joint, made.pair, **{
                name: run(form) for name, form in each.items()})
    yield ("replay" if made.graphed else "runtime"), made.call


def as_fx(graph: fx.GraphModule, exact: bool = False) -> Callable:
    """The graph as FX runs it, in float64 if `exact`."""
    return lambda given: tuple(Tape(graph, given, exact).result)


def evaluated(schedule: Schedule) -> Callable[[list], tuple]:
    """The schedule as the evaluator runs it, where its inputs are."""
    def run(given: list) -> tuple:
        with next(iter(tensors_of(given)), torch.empty(0)).device:
            return evaluate_schedule(schedule, given)
    return run


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
        """The node's value. In float64 a dtype in a call means float64,
        but a draw is made in its own precision, to be the same."""
        target, given = node.target, self.fetch_args_kwargs_from_env(node)
        name = getattr(target, "__name__", target)
        if self.exact and any(SEEDED in op.tags for op in (
                operators(target) or operators(name))):
            given = fx.map_arg((node.args, node.kwargs), lambda each: cast(
                self.env[each], getattr(value(each), "dtype", None)))
        elif self.exact:
            given = tree_map(cast, given)
            if target in ("float", "half", "bfloat16"):
                target = "double"
        made = getattr(self, node.op)(target, *given)
        if self.exact:
            made = tree_map(cast, made)
        self.values[node] = copied(made)
        return made


def cast(given: object, dtype: torch.dtype = torch.float64) -> object:
    """A floating tensor or dtype in this precision; all else as it is."""
    if isinstance(given, torch.dtype):
        return dtype if given.is_floating_point else given
    return given.to(dtype) if isinstance(
        given, Tensor) and given.is_floating_point() else given


def copied(given: object, exact: bool = False) -> object:
    """The same with copies of the tensors, as leaves of autograd."""
    return tree_map_only(Tensor, lambda each: (
        cast(each) if exact else each).detach().clone().requires_grad_(
            each.requires_grad), given)


def cloned(leaves: Iterable) -> list:
    """Tensors that may be written to, whose gradients are the leaves'."""
    return [each.clone() if isinstance(each, Tensor) and each.requires_grad
            else each for each in leaves]


def played(call: Callable, inputs: Iterable,
           weights: Iterable[Tensor] = ()) -> list:
    """A call on copies of the inputs: its results, the gradients, and the
    inputs as they are then."""
    leaves = copied([*inputs])
    given = cloned(leaves)
    with seeded():
        results = tensors_of(call([*given]))
    return copied([*results, *gradients(
        results, [*tensors_of(leaves), *weights]), *tensors_of(given)])


@contextmanager
def seeded() -> Iterator[None]:
    """Each time, the same numbers are drawn."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


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
    joint, tapes = made.joint, []
    given = [*copied(inputs), *tangents(map(value, joint.tangent_nodes))]
    for wide in (False, True):
        with torch.no_grad(), seeded():
            tapes.append({node.name: each for node, each in Tape(
                joint.graph, copied(given, wide), wide).values.items()})
    own, exact = tapes

    def differs(node: fx.Node, found: object) -> bool:
        ours, plain, right = map(tensors_of, (
            found, own.get(node.name), exact.get(node.name)))
        return [each.shape for each in ours] == [
            each.shape for each in plain] and error(
                ours, right) > allowed(error(plain, right), plain)

    def values(half: fx.GraphModule, ends: list[fx.Node]) -> Iterable:
        starts = placeholders(half.graph)
        if stage != "split":  # so that each node alone has the same draws
            starts += filter(is_random, kept[half])
        held = copied([own[node.name] for node in starts])
        if stage == "split":
            with seeded():
                return Tape(half, held).values.items()
        schedule = fusion.fuse(extract(
            joint, ancestors(ends, starts), starts, ends))
        run = evaluated(schedule) if stage == "fusion" else (
            emit(schedule, options).ready().run)
        return zip(ends, run(held))

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
        yield from unrecorded(joint.source, inputs,
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
