"""Running the compiled halves as one function that autograd knows.

In: a `Joint`, its `Pair` and the two compiled halves. Out: `run(inputs:
list) -> tuple`. The idea: a `torch.autograd.Function` whose backward runs
the compiled backward. Around it stands what a graph cannot say: autograd
hears of writes, and views are made of the real memory. A gradient that no
tangent reaches is None, and an error waits only where a second derivative
is not zero. All that it has to know of the graphs is plain data, `FACTS`.
PyTorch's is torch/_functorch/_aot_autograd/runtime_wrappers.py; its
missing gradients are zeros, and every second derivative raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace as Facts

import torch
from torch import fx
from torch.autograd.graph import increment_version

from ..core.errors import where_of
from ..core.graph import Boxed, bare, is_number, value
from ..core.state import kept
from .joint import Joint, Pair

INPUT = -1  # the label of what changes with an input that is differentiated

DOUBLE_BACKWARD = (
    "minicompile compiled only the first derivative of what begins at {}; "
    'for the second, use compile(..., backend="eager"), which runs the '
    "traced graph under autograd")

#: What gives a Function the values that it saved, given the tangents.
SAVED: list[Callable[..., list]] = [
    lambda facts, ctx, given: list(ctx.saved_tensors)]


def make_runtime(joint: Joint, pair: Pair | None, forward: Boxed,
                 backward: Boxed | None = None,
                 notes: Counter | None = None,
                 facts: Facts | None = None) -> Boxed:
    """The callable that gives the user's results from the inputs.

    `forward` and `backward` run the two halves of `pair`. A call in which
    a written input shares memory with another runs the original graph,
    which `notes` counts. If the `facts` are given, it needs no graph but
    those of `joint.source` and `joint.results`.
    """
    facts = facts or Facts(**{
        name: find(joint, pair) for name, find in FACTS.items()})
    if facts.autocast:  # the graph's casts are in it already
        forward = no_autocast(forward)
    if backward is not None:
        run = trainable(facts, autograd_function(
            facts, joint.source, forward, no_autocast(backward)))
    else:
        run = torch.no_grad()(forward) if facts.wanted else forward
    plain = backward is None and not (
        joint.results or facts.mutated or facts.tracked)
    return run if plain else finished(
        facts, joint, run, Counter() if notes is None else notes)


def no_autocast(run: Boxed) -> Boxed:
    """`run`, outside of whatever autocast region it is called in."""
    def call(inputs: list) -> tuple:
        with torch._C._DisableAutocast():
            return run(inputs)
    return call


def autograd_function(facts: Facts, source: fx.GraphModule,
                      run_forward: Boxed, run_backward: Boxed) -> type:
    """A Function whose backward is the compiled backward."""
    count = facts.forward_outputs
    numbers = [k for k in facts.saved if k in facts.numbers]
    saved = [k for k in facts.saved if k not in facts.numbers]
    blind = [k for k in range(count) if k not in facts.tangents]
    saves = len(saved)

    class Compiled(torch.autograd.Function):
        """One compiled graph, as autograd sees it."""

        @staticmethod
        def forward(ctx, *inputs):
            outputs = run_forward(list(inputs))
            anchor = torch.empty(0)  # autograd's way to the inputs
            values = [*inputs, *outputs]
            ctx.save_for_backward(*[values[k] for k in saved], anchor)
            results = tuple([  # a user may not write to a Function's view
                part.detach() if part._is_view() else part
                for part in outputs[:count]])
            if blind:
                ctx.mark_non_differentiable(*[results[k] for k in blind])
            ctx.set_materialize_grads(False)
            ctx.numbers = [inputs[k] for k in numbers]
            ctx.layouts = facts.layouts or [
                layout(results[k]) for k in facts.tangents]
            return *results, anchor

        @staticmethod
        def backward(ctx, *given):
            values = SAVED[-1](facts, ctx, given) if saves else []
            anchor = values[saves] if saves else None
            ctx.maybe_clear_saved_tensors()  # all but retained ones
            with torch.no_grad():
                values[saves:] = [fit(given[k], *form) for k, form
                                  in zip(facts.tangents, ctx.layouts)]
                values[:0] = ctx.numbers
                found = run_backward(values)
            found = dict(zip(facts.gradients, as_eager(
                facts, source, found, given, anchor)))
            return tuple(map(found.get, range(facts.inputs)))

    return Compiled


def trainable(facts: Facts, function: type) -> Boxed:
    """`function` as a call that records a step of autograd's."""
    # Function.apply looks for transforms and defaults, which we have not.
    apply = super(torch.autograd.Function, function).apply

    def run(inputs: list) -> tuple:
        for k in facts.unreached:  # else autograd would visit what they
            inputs[k] = inputs[k].detach()  # come from
        return apply(*inputs)[:-1]

    return run if torch.is_grad_enabled() else torch.enable_grad()(run)


def made_of(joint: Joint, _: Pair) -> list[frozenset[int]]:
    """For each gradient the outputs whose tangents it is made of, and
    INPUT if it is no linear function of these."""
    starts = {joint.primals[k]: INPUT for k in joint.gradients} | dict(
        zip(joint.tangent_nodes, joint.tangents))
    labels = joint.after({node: frozenset([label])
                          for node, label in starts.items()})
    return [labels.get(gradient, frozenset()) for gradient in joint.grads]


def as_eager(facts: Facts, source: fx.GraphModule, found, tangents,
             anchor: torch.Tensor | None) -> list:
    """The gradients, None for those whose tangents are all None, and with
    an error where they would be differentiated: under create_graph.

    They vary with tangents and inputs; the history of `anchor` leads to
    the inputs.
    """
    parts = facts.parts
    given = {k for k, tangent in enumerate(tangents) if tangent is not None}
    if not given.issuperset(facts.tangents):
        found = [gradient if made <= {INPUT} or made & given else None
                 for gradient, made in zip(found, parts)]
    if not torch.is_grad_enabled():
        return found
    found = list(found)
    varying = {k: tangents[k] for k in given if tangents[k].requires_grad}
    if anchor is not None:
        varying[INPUT] = anchor
    places = [k for k, gradient in enumerate(found)
              if gradient is not None and not parts[k].isdisjoint(varying)]
    if not places:
        return found
    lines = map(where_of, source.graph.nodes)
    error = torch._C._functions.DelayedError(DOUBLE_BACKWARD.format(
        next(filter(None, lines), "a graph")), len(places) + len(varying))
    marked = error(*[found[k] for k in places], *varying.values())
    for k, gradient in zip(places, marked):
        found[k] = gradient
    return found


def layouts(joint: Joint, _: Pair) -> list[tuple]:
    """The layouts of the tangents; none if sizes vary."""
    fakes = [value(node) for node in joint.tangent_nodes]
    vary = any(fake._has_symbolic_sizes_strides for fake in fakes)
    return [] if vary else [*map(layout, fakes)]


def layout(tensor: torch.Tensor) -> tuple:
    """How the backward expects the gradient of a result to be laid out:
    size, strides, dtype, device. It has no gaps."""
    like = torch.empty_like(tensor, device="meta")
    return like.size(), like.stride(), tensor.dtype, tensor.device


def fit(gradient: torch.Tensor | None, size, stride, dtype,
        device) -> torch.Tensor:
    """The gradient with the strides that the backward expects.

    A gradient can be None (zeros), expanded, or laid out in another way.
    """
    if gradient is not None and gradient.stride() == stride:
        return gradient
    fitted = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return fitted.zero_() if gradient is None else fitted.copy_(gradient)


def finished(facts: Facts, joint: Joint, run: Boxed, notes: Counter
             ) -> Boxed:
    """`run`, then results made; autograd is told of the inputs that it
    writes to."""
    written, together = facts.mutated, [*facts.mutated, *facts.tracked]
    make = joint.results and bare(joint.results)
    source = kept()(bare(joint.source))  # it may fail under no_grad

    def call(inputs: list) -> tuple:
        if torch._C._are_functorch_transforms_active():
            return source(*inputs)
        if together and overlap(inputs, together):
            notes["a written input shares memory with another"] += 1
            return source(*inputs)
        if written and not torch.is_inference_mode_enabled():
            if any([inputs[k].is_inference() for k in written]):
                return source(*inputs)  # it raises
            increment_version([inputs[k] for k in written])
        given = list(inputs) if make else ()
        outputs = run(inputs)
        return make(*given, *outputs) if make else outputs
    return call


def overlap(inputs: list, written: list[int]) -> bool:
    """Whether a written input shares its memory with another input."""
    owners = [torch._C._storage_id(part) for part in inputs
              if isinstance(part, torch.Tensor)]
    return len(set(owners)) < len(owners) and any(
        owners.count(torch._C._storage_id(inputs[k])) > 1 for k in written)


#: All that the runtime has to know of the halves, as plain data: inputs,
#: and results of the forward, are numbers.
FACTS: dict[str, Callable[[Joint, Pair], object]] = {
    **{name: lambda joint, _, name=name: getattr(joint, name)
       for name in "autocast forward_outputs mutated tracked tangents "
                   "gradients".split()},
    "inputs": lambda joint, _: len(joint.primals),
    "wanted": lambda joint, _: any(
        getattr(value(node), "requires_grad", False)
        for node in joint.primals),
    "unreached": lambda joint, _: [
        k for k, gradient in zip(joint.gradients, joint.grads)
        if gradient is None and any(joint.grads)],
    "saved": lambda _, pair: [*pair.saved.values()],
    "numbers": lambda joint, _: [
        k for k, node in enumerate(joint.primals) if is_number(node)],
    "layouts": layouts, "parts": made_of}
