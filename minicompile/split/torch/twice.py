"""Second derivatives: the traced graph runs again, under autograd.

Out: a call of the compiled Function that remembers its inputs. Under
create_graph its backward, whose results have no history, does not run:
autograd differentiates a second run of the traced graph. Without this
file create_graph is an error, as it is in torch.compile.
"""

from collections.abc import Iterable
from functools import partial
from weakref import ref

import torch
from torch import fx

from ...core.errors import where_of
from ...core.graph import Boxed, boxed, is_random, tensors_of
from ...core.state import autocast, kept
from ..joint import Joint
from ..runtime import (FACTS, ONCE, SAVED, STEPS, Facts, by_input,
                       no_autocast)


def only_once(joint: Joint, _: object) -> str:
    """Why the traced graph cannot run again for what a call computed."""
    return next((why for why, holds in (
        ("it writes to its inputs", joint.mutated or joint.tracked),
        ("its results share memory", joint.results),
        ("it draws random numbers", any(
            map(is_random, joint.graph.graph.nodes)))) if holds), "")


def differentiable(step, facts: Facts, source: fx.GraphModule,
                   function: type) -> Boxed:
    """The call of a Function whose gradients have a history."""
    run, once = step(facts, source, function), function.backward
    tensors = [k for k in range(facts.inputs) if k not in facts.numbers]

    def call(inputs: list) -> tuple:
        then = ([], []) if facts.once else held(inputs, tensors)
        outputs = run(inputs)
        for k in facts.tangents[:1]:
            if step := outputs[k].grad_fn:
                step.inputs = then
        return outputs

    def backward(ctx, *given):
        if torch.is_grad_enabled() and any(
                each is not None for each in given):
            return again(facts, source, ctx, given)
        return once(ctx, *given)

    function.backward = staticmethod(backward)
    return call


def held(inputs: list, tensors: Iterable[int]) -> tuple[list, list]:
    """The inputs, with ways to the tensors that do not keep them alive;
    and the versions of these, None if one of them has none."""
    ways = [*inputs]
    for k in tensors:
        ways[k] = ref(ways[k])
    try:
        return ways, [inputs[k]._version for k in tensors]
    except RuntimeError:
        return ways, None


def again(facts: Facts, source: fx.GraphModule, ctx, given) -> tuple:
    """The gradients with a history, for create_graph.

    The gradient of an input is not that of what another was made of.
    """
    if {*facts.saved.values()} - {*facts.numbers}:
        SAVED[-1](facts, ctx, given)  # raises if one was written to
    why, (ways, versions) = facts.once, ctx.inputs
    inputs = [way() if type(way) is ref else way for way in ways]
    tensors = tensors_of(inputs)
    if any(each is None for each in inputs):
        why = "an input is gone"
    elif versions is None:
        why = "an input was made in inference mode"
    elif versions != [each._version for each in tensors]:
        why = "an input has changed since"
    if why:
        lines = filter(None, map(where_of, source.graph.nodes))
        raise RuntimeError(ONCE.format(
            f" that begins at {next(lines, 'a graph')}", f", as {why}"))
    for each in tensors:
        each._fix_weakref()  # as torch.utils.weak does
    inputs = [each.view_as(each) if isinstance(each, torch.Tensor) else each
              for each in inputs]
    run = boxed(source)
    for mode in facts.autocast:
        run = torch.autocast(*mode)(run)
    with kept([(torch._C._set_grad_enabled, facts.grad_mode)]):
        outputs = no_autocast(run)(inputs)
    come = [k for k in facts.tangents if given[k] is not None]
    return by_input(facts, torch.autograd.grad(
        [outputs[k] for k in come], [inputs[k] for k in facts.gradients],
        [given[k] for k in come], create_graph=True, allow_unused=True))


FACTS |= {"once": only_once, "autocast": lambda *_: autocast(),
          "grad_mode": lambda *_: torch.is_grad_enabled()}
STEPS.append(partial(differentiable, STEPS[-1]))
