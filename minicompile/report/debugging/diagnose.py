"""diagnose(): the first stage that differs from eager, and at which node.

In: a function and a call of it. Out: a Diagnosis. The ladder has a rung
for each stage: the traced graph and its halves run by FX, the loops run
by the evaluator, the kernels. A rung differs if it is much further from
float64 than eager is. A bisection then climbs with the first nodes of the
graph only, and finds the node that brings the difference. PyTorch's is
torch/_dynamo/repro/after_aot.py.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map, tree_map_only

from ... import split
from ...core.errors import Where, where_of
from ...core.graph import operators, placeholders, tensors_of, value
from ...core.options import Options, make_options
from ...core.semantics.evaluate import evaluate_schedule
from ...dispatch import operations
from ...dispatch.driver import compile
from ...pipeline import lower_ours

#: How many times as far from float64 as eager a rung may be.
FACTOR = 16


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Each rung with its relative error and the error it may have.

    `stage` is the first that differs, "" if none does; `node` names the
    first node of the traced graph that it makes wrong, and `where` is the
    user's line.
    """

    rungs: list[tuple[str, float, float]]
    stage: str = ""
    node: str = ""
    where: Where | None = None

    def __repr__(self) -> str:
        lines = [f"{name:7} error {found:.1e}, allowed {allowed:.1e}"
                 for name, found, allowed in self.rungs]
        if not self.stage:
            return "\n".join([*lines, "no stage differs"])
        line = f"  {self.where}: {self.where.text}" if self.where else ""
        return "\n".join([*lines, f"{self.stage} differs at "
                          f"{self.node or 'no node'}", line])


def diagnose(function: Callable, mode: str | None = None,
             options: dict | None = None, dynamic: bool = False
             ) -> Callable[..., Diagnosis]:
    """`diagnose(f)(*args)` says which stage of the compiler is wrong.

    Each rung runs with copies of the arguments and of a module. Random
    numbers are eager's. PyTorch's own operators are trusted. `dynamic`:
    all sizes may vary, as with `compile(f, dynamic=True)`.
    """
    options = replace(make_options(mode, options), fallback_random=True)

    def diagnosed(*args, **kwargs) -> Diagnosis:
        rungs = []
        for stage, found, bound, suspect in ladder(
                function, (args, kwargs), options, dynamic):
            rungs.append((stage, found, bound))
            if found > bound:
                node = suspect()
                return Diagnosis(rungs, stage, *(
                    (node.name, where_of(node)) if node else ()))
        return Diagnosis(rungs)
    return diagnosed


def ladder(function: Callable, given: tuple, options: Options,
           dynamic: bool) -> Iterator[tuple]:
    """Each rung: the stage, its error, the error that it may have, and
    what finds the node to blame."""
    seen, eager = [], Eager()

    def capture(graph: fx.GraphModule, _: object) -> Callable:
        def run(*inputs):
            seen.append((graph, copied(inputs)))
            return graph(*inputs)
        return run

    def whole(make: Callable) -> list:
        own = copy.deepcopy(function)
        call, weights = make(own), getattr(own, "parameters", tuple)()
        return played(lambda inputs: call(*inputs[0], **inputs[1]),
                      given, weights)

    with eager:
        wanted = whole(lambda own: own)
    found = whole(partial(compile, backend=capture, dynamic=dynamic))
    yield "trace", error(found, wanted), allowed(0, wanted), lambda: next((
        node for graph, inputs in seen
        for node, made in Tape(graph, inputs).values.items()
        if node.op.startswith("call_") and not all(
            any(error([each], [known]) <= allowed(0, [known])
                for known in eager.values) for each in tensors_of(made))),
        None)
    for graph, inputs in seen:
        for stage, found, bound in climb(graph, inputs, options):
            yield stage, found, bound, partial(
                first, stage, graph, inputs, options)


def climb(graph: fx.GraphModule, inputs: Iterable, options: Options
          ) -> Iterator[tuple[str, float, float]]:
    """Each stage after the trace, its error and the error it may have."""
    plain = played(as_fx(graph), inputs)
    exact = played(as_fx(graph, True), tree_map(cast, inputs))
    bound = allowed(error(plain, exact), plain)
    made = lower_ours(graph, [*map(value, placeholders(graph.graph))],
                      "fused", options)
    halves = made.pair.halves() if made.pair else {}
    for stage, run, forms in (
            ("split", as_fx, halves),
            ("fusion", lambda form: partial(evaluate_schedule, form),
             made.schedules),
            ("emit", attrgetter("run"), made.programs)):
        if forms:
            yield stage, error(played(split.make_runtime(
                made.joint, made.pair, **{name: run(form) for name, form
                                          in forms.items()}),
                inputs), exact), bound
    yield ("replay" if made.graphed else "runtime", error(
        played(made.call, inputs), exact), bound)


def first(stage: str, graph: fx.GraphModule, inputs: Iterable,
          options: Options) -> fx.Node | None:
    """The node that is the last of the shortest part of the graph with
    which a stage differs; none if it is what surrounds the halves."""
    def differs(node: fx.Node) -> bool:
        return any(found > bound for name, found, bound in climb(
            part(graph, node), inputs, options) if name == stage)

    nodes = [node for node in operations(graph)
             if isinstance(value(node), Tensor)]
    if stage not in ("split", "fusion", "emit") or not differs(nodes[-1]):
        return None
    return nodes[bisect_left(nodes, True, key=differs)]


def part(graph: fx.GraphModule, last: fx.Node) -> fx.GraphModule:
    """The graph up to a node; it returns that and what the rest reads."""
    made, copies = fx.Graph(), {}
    for node in graph.graph.nodes:
        copies[node] = made.node_copy(node, copies.__getitem__)
        if node is last:
            break
    made.output(tuple(
        each for node, each in copies.items() if node is last
        or node.op != "placeholder" and isinstance(value(node), Tensor)
        and not node.users.keys() <= copies.keys()))
    return fx.GraphModule(graph, made)


def as_fx(graph: fx.GraphModule, exact: bool = False) -> Callable:
    """The graph as FX runs it, in float64 if `exact`."""
    return lambda given: tuple(Tape(graph, given, exact).result)


class Eager(TorchFunctionMode):
    """Keeps the results of PyTorch's functions that are called."""

    def __init__(self):
        super().__init__()
        self.values: list[Tensor] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.values += [each.detach().clone() for each in tensors_of(made)]
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
        if self.exact and any(
                torch.Tag.nondeterministic_seeded in op.tags
                for op in (operators(target) or operators(name))):
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


def copied(given: object) -> object:
    """The same with copies of the tensors, as leaves of autograd."""
    return tree_map_only(Tensor, lambda each: each.detach().clone(
        ).requires_grad_(each.requires_grad), given)


def cloned(leaves: object) -> object:
    """Tensors that may be written to, whose gradients are the leaves'."""
    return tree_map_only(Tensor, lambda each: (
        each.clone() if each.requires_grad else each), leaves)


def played(call: Callable, inputs: Iterable,
           weights: Iterable[Tensor] = ()) -> list:
    """A call on copies of the inputs: its results, the gradients, and the
    inputs as they are then. Each time the same numbers are drawn."""
    leaves = copied([*inputs])
    given = cloned(leaves)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        results = tensors_of(call([*given]))
    return copied([*results, *gradients(
        results, [*tensors_of(leaves), *weights]), *tensors_of(given)])


def gradients(results: list[Tensor], leaves: list[Tensor]) -> list:
    """The gradients from tangents that are always the same, those of the
    losses alone, then all; None where there is none."""
    leaves = [each for each in leaves if each.requires_grad]
    ends = [each for each in results if each.requires_grad]
    losses = [each for each in ends if not each.dim()]
    return [found for chosen in (losses, ends) if chosen and leaves
            for found in torch.autograd.grad(
                chosen, leaves,
                [torch.arange(1.0, each.numel() + 1).cos()
                 .view(each.shape).to(each.device, each.dtype)
                 for each in chosen],
                retain_graph=True, allow_unused=True)]


def error(found: list, wanted: list) -> float:
    """The largest difference, relative to the largest number of its
    tensor. A tensor of tiny numbers may be zeros in exact arithmetic."""
    worst = 0.0
    for ours, right in zip(found, wanted, strict=True):
        if ours is None or right is None or ours.shape != right.shape:
            worst = max(worst, 0.0 if ours is right else inf)
        elif ours.numel():
            wide = torch.complex128 if right.is_complex() else torch.float64
            ours, right = (each.detach().to(wide)
                           for each in (ours, right))
            if not ours.isclose(right, atol=inf, equal_nan=True).all():
                return inf  # only one is infinite, or no number
            apart, size = (each.nan_to_num(0, 0, 0).abs().max()
                           for each in (ours - right, right))
            worst = max(worst, (apart / size.clamp(1e-6)).item())
    return worst


def allowed(eager: float, results: list) -> float:
    """The error that a rung may have, where eager has this one."""
    return FACTOR * max([eager, 1e-9, *(
        torch.finfo(each.dtype).eps for each in results
        if each is not None and each.dtype.is_floating_point)])
