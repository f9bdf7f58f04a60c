"""Running the compiled halves as one function that autograd knows.

In: a `Joint`, its `Pair` and the two compiled halves. Out: `run(inputs:
list) -> tuple`. The idea: a `torch.autograd.Function` whose backward runs
the compiled backward. Around it stands what a graph cannot say: autograd
hears of writes, and views are made of the real memory. A gradient that no
tangent reaches is None, and an error waits only where a second derivative
is not zero. PyTorch's is
torch/_functorch/_aot_autograd/runtime_wrappers.py; its missing gradients
are zeros, and every second derivative raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch.autograd.graph import increment_version

from ..core.errors import where_of
from ..core.graph import Boxed, bare, is_number, value
from .joint import Joint, Pair

INPUT = -1  # the label of what changes with an input that is differentiated

DOUBLE_BACKWARD = (
    "minicompile compiled only the first derivative of what begins at {}; "
    'for the second, use compile(..., backend="eager"), which runs the '
    "traced graph under autograd")

#: What makes of a Function one that does more as eager does.
FUNCTIONS: list[Callable[[Joint, type], type]] = []


def make_runtime(joint: Joint, pair: Pair, forward: Boxed,
                 backward: Boxed | None = None,
                 notes: Counter | None = None) -> Boxed:
    """The callable that gives the user's results from the inputs.

    `forward` and `backward` run the two halves of `pair`. A call in which
    a written input shares memory with another runs the original graph,
    which `notes` counts.
    """
    if joint.autocast:  # the graph's casts are in it already
        forward = no_autocast(forward)
    if backward is not None:
        function = autograd_function(
            joint, pair, forward, no_autocast(backward))
        for change in FUNCTIONS:
            function = change(joint, function)
        run = trainable(joint, function)
    else:
        wanted = any(getattr(value(node), "requires_grad", False)
                     for node in joint.primals)
        run = torch.no_grad()(forward) if wanted else forward
    plain = backward is None and not (
        joint.results or joint.mutated or joint.tracked)
    return run if plain else finished(
        joint, run, Counter() if notes is None else notes)


def no_autocast(run: Boxed) -> Boxed:
    """`run`, outside of whatever autocast region it is called in."""
    def call(inputs: list) -> tuple:
        with torch._C._DisableAutocast():
            return run(inputs)
    return call


def autograd_function(joint: Joint, pair: Pair, run_forward: Boxed,
                      run_backward: Boxed) -> type:
    """A Function whose backward is the compiled backward."""
    count, parts = joint.forward_outputs, made_of(joint)
    fakes = [value(node) for node in joint.tangent_nodes]
    vary = any(fake._has_symbolic_sizes_strides for fake in fakes)
    expected = [] if vary else [*map(layout, fakes)]
    blind = [k for k in range(count) if k not in joint.tangents]
    numbers, saved = [[k for k in pair.saved.values() if (
        k < len(joint.primals) and is_number(joint.primals[k])) is number]
        for number in (True, False)]
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
            ctx.layouts = expected or [
                layout(results[k]) for k in joint.tangents]
            return *results, anchor

        @staticmethod
        def backward(ctx, *given):
            values = list(ctx.saved_tensors) if saves else []
            anchor = values[saves] if saves else None
            ctx.maybe_clear_saved_tensors()  # all but retained ones
            with torch.no_grad():
                values[saves:] = [fit(given[k], *form) for k, form
                                  in zip(joint.tangents, ctx.layouts)]
                values[:0] = ctx.numbers
                found = run_backward(values)
            found = dict(zip(joint.gradients, as_eager(
                joint, found, parts, given, anchor)))
            return tuple(map(found.get, range(len(joint.primals))))

    return Compiled


def trainable(joint: Joint, function: type) -> Boxed:
    """`function` as a call that records a step of autograd's."""
    unreached = [k for k, gradient in zip(joint.gradients, joint.grads)
                 if gradient is None and any(joint.grads)]
    # Function.apply looks for transforms and defaults, which we have not.
    apply = super(torch.autograd.Function, function).apply

    def run(inputs: list) -> tuple:
        for position in unreached:  # else autograd would visit what it
            inputs[position] = inputs[position].detach()  # comes from
        return apply(*inputs)[:-1]

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
             tangents, anchor: torch.Tensor | None) -> list:
    """The gradients, None for those whose tangents are all None, and with
    an error where they would be differentiated: under create_graph.

    They vary with tangents and inputs; the history of `anchor` leads to
    the inputs.
    """
    given = {k for k, tangent in enumerate(tangents) if tangent is not None}
    if not given.issuperset(joint.tangents):
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
    lines = map(where_of, joint.source.graph.nodes)
    error = torch._C._functions.DelayedError(DOUBLE_BACKWARD.format(
        next(filter(None, lines), "a graph")), len(places) + len(varying))
    marked = error(*[found[k] for k in places], *varying.values())
    for k, gradient in zip(places, marked):
        found[k] = gradient
    return found


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


def finished(joint: Joint, run: Boxed, notes: Counter) -> Boxed:
    """`run`, then results made; autograd is told of the inputs that it
    writes to."""
    written, together = joint.mutated, joint.mutated + joint.tracked
    make = joint.results and bare(joint.results)

    def call(inputs: list) -> tuple:
        if torch._C._are_functorch_transforms_active():
            return joint.source(*inputs)
        if together and overlap(inputs, together):
            notes["a written input shares memory with another"] += 1
            return joint.source(*inputs)
        if written and not torch.is_inference_mode_enabled():
            if any([inputs[k].is_inference() for k in written]):
                return joint.source(*inputs)  # it raises
            increment_version([inputs[k] for k in written])
        kept = list(inputs) if make else ()
        outputs = run(inputs)
        return make(*kept, *outputs) if make else outputs
    return call


def overlap(inputs: list, written: list[int]) -> bool:
    """Whether a written input shares its memory with another input."""
    owners = [torch._C._storage_id(part) for part in inputs
              if isinstance(part, torch.Tensor)]
    return len(set(owners)) < len(owners) and any(
        owners.count(torch._C._storage_id(inputs[k])) > 1 for k in written)

