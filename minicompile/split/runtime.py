"""Running the compiled halves as one function that autograd knows.

In: a `Joint`, its `Pair` and the two compiled halves. Out: `run(inputs:
list) -> tuple`. The idea: a `torch.autograd.Function` whose backward runs
the compiled backward. Around it stands what a graph cannot say: autograd
hears of writes, and views are made of the real memory. The backward is
that of the tangents that come. All that it has to know of the graphs is
plain data, `FACTS`. PyTorch's is
torch/_functorch/_aot_autograd/runtime_wrappers.py; its missing gradients
are zeros.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from types import SimpleNamespace as Facts

import torch
from torch import fx
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.autograd.graph import increment_version

from ..core.graph import Boxed, boxed, is_number, value
from ..core.guard import is_plain
from ..core.state import eager_is_watched, kept
from .joint import Joint, Pair, lineage, partition

ONCE = ("the compiled graph{} has only a first derivative{}; for gradients "
        'under create_graph use compile(..., backend="eager"), which runs '
        "the traced graph under autograd")

#: Gives the backward from these results; of operators, if one watches.
Backwards = Callable[[tuple[int, ...], bool], Boxed]

#: What gives a Function the values that it saved, given the tangents.
SAVED: list[Callable[..., list]] = [
    lambda facts, ctx, given: list(ctx.saved_tensors)]


def make_runtime(joint: Joint, pair: Pair | None, forward: Boxed,
                 backward: Boxed | None = None,
                 notes: Counter | None = None,
                 facts: Facts | None = None,
                 others: Backwards | None = None) -> Boxed:
    """The callable that gives the user's results from the inputs.

    `forward` and `backward` run the two halves of `pair`. If others than
    its tangents come, `others` gives the backward from these; by default it
    runs operator by operator. A call in which a written input shares memory
    with another runs the original graph, which `notes` counts. If the
    `facts` are given, it needs no graph but those of `joint.source` and
    `joint.results`.
    """
    facts = facts or Facts(**{
        name: find(joint, pair) for name, find in FACTS.items()})
    if torch._C._is_any_autocast_enabled():  # its casts are in it already
        forward = no_autocast(forward)
    if facts.views or backward is not None:
        forward = apart(forward, facts.forward_outputs)
    if backward is not None:
        others = others or (lambda come, _: boxed(partition(
            joint, facts.saved.keys(), come).backward))

        @cache
        def backwards(come: tuple[int, ...], watched: bool) -> Boxed:
            usual = come == facts.given and not watched
            return no_autocast(backward if usual else others(come, watched))

        run = STEPS[-1](facts, joint.source, autograd_function(
            facts, forward, backwards))
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


def apart(run: Boxed, count: int) -> Boxed:
    """`run`, whose first `count` results are no views to autograd. A user
    may not write to a Function's view, nor detach any view in place."""
    def call(inputs: list) -> tuple:
        outputs = run(inputs)
        return *[part.detach() if part._is_view() else part
                 for part in outputs[:count]], *outputs[count:]
    return call


def autograd_function(facts: Facts, run_forward: Boxed,
                      backwards: Backwards) -> type:
    """A Function whose backward is that of the tangents that come."""
    count, kept = facts.forward_outputs, facts.saved.values()
    numbers = [k for k in kept if k in facts.numbers]
    saved = [k for k in kept if k not in facts.numbers]
    blind = [k for k in range(count) if k not in facts.tangents]
    lock = Lock()

    class Compiled(torch.autograd.Function):
        """One compiled graph, as autograd sees it."""

        @staticmethod
        def forward(ctx, *inputs):
            outputs = run_forward(list(inputs))
            values = [*inputs, *outputs]
            ctx.save_for_backward(*[values[k] for k in saved])
            results = outputs[:count]
            if blind:
                ctx.mark_non_differentiable(*[results[k] for k in blind])
            ctx.set_materialize_grads(False)
            ctx.numbers = [inputs[k] for k in numbers]
            ctx.layouts = facts.layouts or {
                k: layout(results[k]) for k in facts.tangents}
            return results

        @staticmethod
        def backward(ctx, *given):
            come = tuple([
                k for k in facts.tangents if given[k] is not None])
            if not come:
                return by_input(facts, ())
            values = SAVED[-1](facts, ctx, given) if saved else []
            if torch.is_grad_enabled():  # create_graph
                raise RuntimeError(ONCE.format("", ""))
            ctx.maybe_clear_saved_tensors()  # all but retained ones
            with torch.no_grad():
                values += [fit(given[k], *ctx.layouts[k]) for k in come]
                values[:0] = ctx.numbers
                watched = eager_is_watched() or not all(  # one of vmap's
                    torch._C._has_storage(given[k]) for k in come)
                with lock:  # another thread may make it, too
                    run = backwards(come, watched)
                found = run(values)
            return by_input(facts, found)

    return Compiled


def trainable(facts: Facts, _: fx.GraphModule, function: type) -> Boxed:
    """`function` as a call that records a step of autograd's."""
    # Function.apply looks for transforms and defaults, which we have not.
    apply = super(torch.autograd.Function, function).apply

    def run(inputs: list) -> tuple:
        for k in facts.unreached:  # else autograd would visit what they
            inputs[k] = inputs[k].detach()  # come from
        return apply(*inputs)

    return run if torch.is_grad_enabled() else torch.enable_grad()(run)


#: What calls a Function of a graph; the last is in use.
STEPS: list[Callable[[Facts, fx.GraphModule, type], Boxed]] = [trainable]


def by_input(facts: Facts, gradients) -> tuple:
    """For each input its gradient, or None."""
    found = dict(zip(facts.gradients, gradients))
    return tuple(map(found.get, range(facts.inputs)))


def layouts(joint: Joint, _: Pair) -> dict[int, tuple]:
    """The layouts of the tangents; none if sizes vary."""
    fakes = [value(node) for node in joint.tangent_nodes]
    vary = any(fake._has_symbolic_sizes_strides for fake in fakes)
    return {} if vary else dict(zip(joint.tangents, map(layout, fakes)))


def layout(tensor: torch.Tensor) -> tuple:
    """How the backward expects the gradient of a result to be laid out:
    size and strides. It has no gaps."""
    like = torch.empty_like(tensor, device="meta")
    return like.size(), like.stride()


def fit(gradient: torch.Tensor, size, stride) -> torch.Tensor:
    """The gradient with the strides that the backward expects; it can be
    expanded, or sparse, or be yet to conjugate."""
    if is_plain(gradient) and gradient.stride() == stride:
        return gradient
    whole = gradient.to_dense()
    return whole.new_empty_strided(size, stride).copy_(whole)


def finished(facts: Facts, joint: Joint, run: Boxed, notes: Counter
             ) -> Boxed:
    """`run`, then results made; autograd is told of the inputs that it
    writes to."""
    written, together = facts.mutated, [*facts.mutated, *facts.tracked]
    seen = [k for k in written if k not in facts.unseen]
    run = unnoticed(run, facts.unseen) if facts.unseen else run
    make = joint.results and boxed(joint.results)
    source = kept()(boxed(joint.source))  # it may fail under no_grad

    def call(inputs: list) -> tuple:
        if torch._C._are_functorch_transforms_active():
            return source(inputs)
        if together and overlap(inputs, together):
            notes["a written input shares memory with another"] += 1
            return source(inputs)
        if written and not torch.is_inference_mode_enabled():
            if any([inputs[k].is_inference() for k in written]):
                return source(inputs)  # it raises
            increment_version([inputs[k] for k in seen])
        given = list(inputs) if make else ()
        outputs = run(inputs)
        return make([*given, *outputs]) if make else outputs
    return call


def unnoticed(run: Boxed, unseen: Iterable[int]) -> Boxed:
    """`run`, after which these inputs have the versions they had."""
    def call(inputs: list) -> tuple:
        with _unsafe_preserve_version_counter(tuple([
                inputs[k] for k in unseen
                if not inputs[k].is_inference()])):
            return run(inputs)
    return call


def overlap(inputs: list, written: list[int]) -> bool:
    """Whether a written input shares its memory with another input."""
    owners = [torch._C._storage_id(part) for part in inputs
              if isinstance(part, torch.Tensor)]
    return len(set(owners)) < len(owners) and any(
        counts[torch._C._storage_id(inputs[k])] > 1
        for counts in [Counter(owners)] for k in written)


#: All that the runtime has to know of the halves, as plain data: inputs,
#: and results of the forward, are numbers.
FACTS: dict[str, Callable[[Joint, Pair], object]] = {
    **{name: lambda joint, _, name=name: getattr(joint, name)
       for name in "forward_outputs mutated unseen tracked tangents "
                   "gradients".split()},
    "inputs": lambda joint, _: len(joint.primals),
    "wanted": lambda joint, _: any(
        getattr(value(node), "requires_grad", False)
        for node in joint.primals),
    "unreached": lambda joint, _: [
        k for k, gradient in zip(joint.gradients, joint.grads)
        if gradient is None and any(joint.grads)],
    "views": lambda joint, _: any(
        len(lineage(node)) > 1 for node in joint.outputs),
    "saved": lambda _, pair: pair and pair.saved,
    "given": lambda _, pair: pair and pair.tangents,
    "numbers": lambda joint, _: [
        k for k, node in enumerate(joint.primals) if is_number(node)],
    "layouts": layouts}
