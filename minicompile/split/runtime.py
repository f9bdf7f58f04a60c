"""Running the compiled halves as one function that autograd knows.

In: a `Joint`, its `Pair` and the two compiled halves. Out: `run(inputs:
list) -> tuple`. The idea: a `torch.autograd.Function` whose backward runs
the compiled backward; around it, what a graph cannot say is done as eager
does it: inputs are written, views are made of the real memory. A gradient
that no tangent reaches is None, and an error waits only where a second
derivative is not zero. PyTorch's is
torch/_functorch/_aot_autograd/runtime_wrappers.py; its missing gradients
are zeros, and it raises in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import fx
from torch.autograd.graph import increment_version
from torch.utils._pytree import tree_leaves, tree_map_only

from ..core.errors import BackendError, where_of
from ..core.graph import is_random, value
from ..core.sizes import SYMBOLIC, written
from .joint import Joint, Pair, Result

Run = Callable[[list], tuple]
INPUT = -1  # the label of what changes with an input that is differentiated

DOUBLE_BACKWARD = (
    "minicompile compiled only the first derivative of what begins at {}; "
    "for the second, use compile(..., options="
    '{{"double_backward": True}}), which differentiates the uncompiled '
    "function")


def make_runtime(joint: Joint, pair: Pair, forward: Run,
                 backward: Run | None = None, twice: bool = False,
                 notes: Counter | None = None) -> Run:
    """The callable that gives the user's results from the inputs.

    `forward` and `backward` run the two halves of `pair`. A call in which
    a written input shares memory with another runs the original graph,
    which `notes` counts.
    `twice`: gradients can be differentiated, by keeping the inputs.
    """
    if joint.autocast:  # the graph's casts are in it already
        forward = no_autocast(forward)
    if backward is not None:
        run = trainable(joint, pair, forward, no_autocast(backward), twice)
    else:
        run = torch.no_grad()(forward) if joint.cut_off else forward
    return run if joint.plain else finished(
        joint, run, Counter() if notes is None else notes)


def no_autocast(run: Run) -> Run:
    """`run`, outside of whatever autocast region it is called in."""
    def call(inputs: list) -> tuple:
        with torch._C._DisableAutocast():
            return run(inputs)
    return call


def trainable(joint: Joint, pair: Pair, run_forward: Run,
              run_backward: Run, twice: bool) -> Run:
    """`run_forward` for autograd, with `run_backward` as its backward."""
    count, parts = joint.returned, made_of(joint)
    fakes = map(value, joint.tangent_nodes)
    expected = at_run_time(joint, tuple(
        (k, tuple(fake.size()), fake.stride(), fake.dtype, fake.device)
        for k, fake in zip(joint.tangents, fakes)))
    kept = [k for k, node in enumerate(joint.primals) if twice
            and isinstance(value(node), torch.Tensor)]
    blind = [k for k in range(count) if k not in joint.tangents]
    numbers, from_inputs, from_outputs = [
        [s.index for s in pair.saved if s.place == place]
        for place in ("number", "input", "output")]
    saves = len(from_inputs) + len(from_outputs)
    nothing = [None] * len(joint.primals)
    unreached = [k for k, gradient in zip(joint.gradients, joint.grads)
                 if gradient is None and any(joint.grads)]

    class Compiled(torch.autograd.Function):
        """One compiled graph, as autograd sees it."""

        @staticmethod
        def forward(ctx, *inputs):
            outputs = run_forward(list(inputs))
            ctx.save_for_backward(*[inputs[k] for k in from_inputs],
                                  *[outputs[k] for k in from_outputs],
                                  *[inputs[k] for k in kept])
            ctx.others = kept and {k: each for k, each in enumerate(inputs)
                                   if k not in kept}
            results = tuple([  # a user may not write to a Function's view
                part.detach() if part._is_view() else part
                for part in outputs[:count]])
            if blind:
                ctx.mark_non_differentiable(*[results[k] for k in blind])
            ctx.set_materialize_grads(False)
            ctx.numbers = [inputs[k] for k in numbers]
            ctx.layouts = expected(inputs)
            return results

        @staticmethod
        def backward(ctx, *given):
            values = list(ctx.saved_tensors) if saves or kept else []
            if kept and torch.is_grad_enabled():  # create_graph=True
                inputs = ctx.others | dict(zip(kept, values[saves:]))
                found = again(joint, inputs, given)
            else:
                ctx.maybe_clear_saved_tensors()  # all but retained ones
                with torch.no_grad():
                    values[saves:] = [fit(given[k], *rest)
                                      for k, *rest in ctx.layouts]
                    values[:0] = ctx.numbers
                    found = run_backward(values)
                found = as_eager(joint, found, parts, given)
            gradients = list(nothing)
            for position, gradient in zip(joint.gradients, found):
                gradients[position] = gradient
            return tuple(gradients)

    # Function.apply looks for transforms and defaults, which we have not.
    apply = super(torch.autograd.Function, Compiled).apply

    def run(inputs: list) -> tuple:
        if torch._C._are_functorch_transforms_active():
            return joint.source(*inputs)
        for position in unreached:  # else autograd would visit what it
            inputs[position] = inputs[position].detach()  # comes from
        return apply(*inputs)

    return run if torch.is_grad_enabled() else torch.enable_grad()(run)


def made_of(joint: Joint) -> list[frozenset[int]]:
    """For each gradient the outputs whose tangents it is made of, and
    INPUT if it is no linear function of these."""
    labels = {joint.primals[k]: frozenset([INPUT]) for k in joint.gradients}
    labels.update((node, frozenset([k])) for k, node in zip(
        joint.tangents, joint.tangent_nodes))
    none: frozenset[int] = frozenset()
    for node in joint.graph.graph.nodes:
        labels.setdefault(node, none.union(
            *(labels[source] for source in node.all_input_nodes)))
    return [labels.get(gradient, none) for gradient in joint.grads]


def as_eager(joint: Joint, found, parts: list[frozenset[int]],
             tangents) -> list:
    """The gradients, None for those whose tangents are all None, and with
    an error where they would be differentiated: under create_graph."""
    given = {k for k, tangent in enumerate(tangents) if tangent is not None}
    if not given.issuperset(joint.tangents):
        found = [gradient if made <= {INPUT} or made & given else None
                 for gradient, made in zip(found, parts)]
    if not torch.is_grad_enabled():
        return found
    found = list(found)
    varying = {INPUT} | {k for k in given if tangents[k].requires_grad}
    places = [k for k, gradient in enumerate(found)
              if gradient is not None and parts[k] & varying]
    lines = map(where_of, joint.source.graph.nodes)
    error = torch._C._functions.DelayedError(DOUBLE_BACKWARD.format(
        next(filter(None, lines), "a graph")), len(places))
    marked = error(*[found[k].detach().requires_grad_() for k in places])
    for k, gradient in zip(places, marked if len(places) > 1 else [marked]):
        found[k] = gradient
    return found


def require_twice(joint: Joint) -> None:
    """Raise unless the traced graph, run once more, is the same graph."""
    reasons = {
        "the graph writes to an input": joint.mutations,
        "the graph draws random numbers": any(
            map(is_random, joint.graph.graph.nodes)),
        "the graph is in an autocast region": joint.autocast,
        "a result is a view of what is none": any(
            Result("output", k) not in joint.results
            for k in joint.tangents)}
    for reason in filter(reasons.get, reasons):
        raise BackendError(f"double_backward: {reason}")


def again(joint: Joint, inputs: dict[int, object], tangents) -> list:
    """The gradients, computed by eager so that autograd records them."""
    results = joint.source(*(inputs[k] for k in sorted(inputs)))
    ends = [(results[joint.results.index(Result("output", k))], tangents[k])
            for k in joint.tangents if tangents[k] is not None]
    return list(torch.autograd.grad(
        [end for end, _ in ends], [inputs[k] for k in joint.gradients],
        [tangent for _, tangent in ends], create_graph=True,
        allow_unused=True))


def at_run_time(joint: Joint, values: object) -> Callable[[list], object]:
    """A function from a call's inputs to `values`, sizes as plain ints."""
    graph = fx.Graph()
    copies = [graph.node_copy(primal) for primal in joint.primals]
    known = {value(node).node.expr: node for node in copies
             if isinstance(value(node), SYMBOLIC)}
    filled = tree_map_only(
        SYMBOLIC, lambda number: written(graph, known, number), values)
    if not any(isinstance(leaf, fx.Node) for leaf in tree_leaves(filled)):
        return lambda inputs: filled
    graph.output(filled)
    formulas = fx.GraphModule({}, graph).forward
    return lambda inputs: formulas(*inputs)


def fit(gradient: torch.Tensor | None, size, stride, dtype,
        device) -> torch.Tensor:
    """The gradient with the strides that the backward expects.

    A gradient can be None (zeros), expanded, or laid out in another way.
    """
    if gradient is not None and gradient.stride() == stride:
        return gradient
    fitted = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return fitted.zero_() if gradient is None else fitted.copy_(gradient)


def finished(joint: Joint, run: Run, notes: Counter) -> Run:
    """`run`, then inputs written and results made, as eager does it.

    Inputs that `run` itself writes to are told, for autograd.
    """
    count = joint.returned
    written = [m.input for m in joint.mutations]
    unseen = [m.input for m in joint.mutations if not m.differentiable]
    seen = [(m.input, m.output) for m in joint.mutations
            if m.differentiable]
    makers = [maker(joint, result) for result in joint.results]

    def call(inputs: list) -> tuple:
        if written and overlap(inputs, written):
            notes["a written input shares memory with another"] += 1
            return joint.source(*inputs)
        if unseen and not torch.is_inference_mode_enabled():
            if any([inputs[k].is_inference() for k in unseen]):
                return joint.source(*inputs)  # it raises
            increment_version([inputs[k] for k in unseen])
        kept = list(inputs)
        outputs = run(inputs)[:count]
        with torch.enable_grad():
            for into, new in seen:
                kept[into].copy_(outputs[new])
        made: list = []
        places = {"input": kept, "output": outputs, "result": made}
        for make in makers:
            made.append(make(places))
        return tuple(made)
    return call


def overlap(inputs: list, written: list[int]) -> bool:
    """Whether a written input shares its memory with another input."""
    owners = [torch._C._storage_id(part) for part in inputs
              if isinstance(part, torch.Tensor)]
    return len(set(owners)) < len(owners) and any(
        owners.count(torch._C._storage_id(inputs[k])) > 1 for k in written)


def maker(joint: Joint, result: Result) -> Callable:
    """A function of the lists that results are found in -> this one."""
    place, at, view = result.place, result.index, result.view
    known = at_run_time(joint, result.value if view is None else (
        view.size, view.stride, view.offset))
    if place == "constant":
        return lambda places: known(places["input"])
    if view is None:
        return lambda places: places[place][at]

    def window(places: dict) -> torch.Tensor:
        base = places[place][at]
        source = base if view.tracked else base.detach()
        size, stride, offset = known(places["input"])
        grad = view.differentiable or (
            torch.is_grad_enabled() and not source.requires_grad)
        with torch.set_grad_enabled(grad):
            return source.as_strided(
                size, stride, source.storage_offset() + offset)
    return window
