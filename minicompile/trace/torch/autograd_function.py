"""A user's autograd.Function: its forward and its backward as graphs.

In: a call of `apply`. Out: one node, `autograd_function`, that holds two
graphs. The user's backward is followed at the call, in the same trace,
so its guards are the call's; autograd runs the graph of it, never a
derivative of the forward. PyTorch's is
torch/_dynamo/variables/higher_order_ops.py:AutogradFunctionApplyVariable.
"""

from __future__ import annotations

import inspect
from itertools import zip_longest

import torch
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx

from .. import attributes
from ..constant_types import CONSTANTS, IDENTITIES
from ..reasons import unsupported
from ..rules import rule
from .subgraphs import inner_recorder, refilled, tensors, unchanged


METHODS = ("forward", "setup_context", "backward")


class Context(FunctionCtx):
    """What stands for `ctx`: its methods are PyTorch's own."""

    to_save = dirty_tensors = non_differentiable = ()
    materialize_grads = True

    def __getattr__(self, name: str):
        if name in ("saved_variables", *dir(BackwardCFunction)):
            raise unsupported("attribute", f"ctx.{name}")
        raise AttributeError(f"ctx has no attribute {name!r}")


@rule(Function.apply.__func__)
def _apply(tracer, kind: type, *args, **named):
    """The results of `kind.apply(*args)`, as one node."""
    forward, setup, backward = (attributes.load(tracer, kind, name) for
                                name in METHODS)
    apart = setup is not Function.setup_context
    if named:
        raise unsupported("builtin", "apply with keyword arguments")
    if apart:
        bound = tracer.native(inspect.signature(forward).bind, args)
        bound.apply_defaults()
        args = bound.args
    given = [*filter(torch.is_tensor, args)]
    ctx = tracer.own(tracer.own(Context)())
    ctx.needs_input_grad = tuple(
        torch.is_tensor(a) and a.requires_grad for a in args)
    wanted = torch.is_grad_enabled() and any(ctx.needs_input_grad)
    layouts = [(t.size(), t.stride()) for t in given]
    with inner_recorder(tracer, given, False) as ahead:
        made = tracer.call(forward, args if apart else (ctx, *args))
        if apart:
            tracer.call(setup, (ctx, args, made))
        if layouts != [(t.size(), t.stride()) for t in given]:
            raise unsupported("effect", "a forward that reshapes its input")
        results = [*filter(torch.is_tensor, several(made))]
        saved = tensors(ctx.to_save)
        back, held = None, []
        if wanted:
            back, held = _backward(tracer, backward, ctx, args, made,
                                   saved)
        graph = ahead.finish((*results, *saved, *held))
    marks = (len(results), len(saved), _places(ctx.dirty_tensors, given),
             _places(ctx.non_differentiable, results))
    whole = refilled(tuple(several(made)), tracer.recorder.function(
        autograd_function, (graph, back, marks, ahead.captured, *given),
        {}))
    return whole if isinstance(made, tuple) else whole[0]


def several(made) -> tuple:
    """What a forward or a backward returned, as a tuple."""
    made = made if isinstance(made, tuple) else (made,)
    for each in made:
        if not isinstance(each, (torch.Tensor, *IDENTITIES)) and (
                type(each) not in CONSTANTS):
            raise unsupported("result", f"a {type(each).__name__} of an "
                              "autograd.Function")
    return made


def _places(chosen, among: list) -> tuple[int, ...]:
    """Where the chosen tensors stand."""
    return tuple(k for k, each in enumerate(among)
                 if any(each is one for one in chosen))


def _backward(tracer, backward, ctx: Context, args, made, saved: list):
    """The backward as a graph, and the tensors it reads unsaved.

    It takes the saved tensors, a gradient for each result, and those.
    """
    tangents = [torch.empty_like(each, requires_grad=False)
                if torch.is_tensor(each) else None
                for each in several(made)]
    flows = tensors(tangents)
    if not ctx.materialize_grads and len(flows) > 1:
        raise unsupported("gradient", "a backward that may be given None")
    ctx.saved_tensors = ctx.to_save
    with inner_recorder(tracer, [*saved, *flows], False) as inner, (
            torch._C._DisableAutocast()), (
            unchanged(tracer, "effect", "a backward", vars(ctx))):
        found = several(tracer.call(backward, (ctx, *tangents)))
        pairs = [*zip_longest(found, args)]
        if any(each is not None and not torch.is_tensor(arg)
               for each, arg in pairs):
            raise unsupported("gradient", "a gradient of no tensor")
        graph = inner.finish(tuple(each for each, arg in pairs
                                   if torch.is_tensor(arg)))
    return graph, inner.captured


class Traced(Function):
    """A user's Function, made of its two graphs."""

    @staticmethod
    def forward(ctx, forward, backward, marks, captured, *tensors):
        results, saved, dirty, blind = marks
        made = forward(*tensors, *captured)
        ctx.save_for_backward(*made[results:results + saved])
        ctx.held, ctx.graph = made[results + saved:], backward
        ctx.mark_dirty(*[tensors[k] for k in dirty])
        ctx.mark_non_differentiable(*[made[k] for k in blind])
        return made[:results]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *tangents):
        return (None,) * 4 + ctx.graph(*ctx.saved_tensors, *tangents,
                                       *ctx.held)


def autograd_function(forward, backward, marks, captured, *tensors):
    """What the graph `forward` returns; `backward` differentiates it.

    `marks`: how many results, how many tensors saved, the places of the
    tensors written to, and of the results without a gradient.
    """
    return super(Function, Traced).apply(
        forward, backward, marks, captured, *tensors)
