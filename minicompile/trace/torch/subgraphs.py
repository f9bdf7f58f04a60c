"""Graphs inside a graph, and the two of a user's autograd.Function.

In: a tracer, functions, and their arguments. Out: a graph of each; a
tensor from outside that it reads is captured, as an extra input. A call of
`apply` becomes one node with two graphs: the user's backward is followed
at the call, and autograd runs its graph. PyTorch's are SubgraphTracer in
torch/_dynamo/output_graph.py and AutogradFunctionApplyVariable in
torch/_dynamo/variables/higher_order_ops.py.
"""

import inspect
import itertools
import operator
from collections import Counter
from contextlib import contextmanager

import torch
from torch import fx
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from ...core.graph import tensors_of
from ...core.guard import is_a, is_constant
from ...core.sizes import Numbers
from .. import attributes
from ..reasons import unsupported
from ..reconstruct import Rebuild
from ..recorder import CONVERSIONS, Recorder, storage
from ..rules import rule

# A recorder whose inputs are found on the way


class Inner(Recorder):
    """A graph inside a graph; the outer values that it reads are inputs."""

    def __init__(self, outer: Recorder, tensors):
        vars(self).update(vars(outer), outer=outer, graph=fx.Graph(),
                          nodes={}, modules={}, captured=[])
        self.numbers, self.placed = Numbers(self.graph, self.where), []
        for tensor in tensors:
            self.placeholder(tensor)

    def placeholder(self, tensor: torch.Tensor | torch.SymInt) -> None:
        """Add an input for `tensor`, or for a size, of the outer graph."""
        node = self.place(f"given_{len(self.placed)}", tensor, None)
        self.nodes.setdefault(id(tensor), node)

    def node(self, fake: torch.Tensor) -> fx.Node:
        """The node of a tensor in this graph; captures an outer tensor."""
        if id(fake) not in self.nodes:
            self.outer.node(fake)
            self.captured.append(fake)
            self.placeholder(fake)
        return super().node(fake)

    def function(self, target, args, kwargs):
        """The same; a tensor used as an index is never read."""
        if target is operator.getitem and all(
                map(torch.is_tensor, tree_leaves(args[1]))):
            target = torch.ops.aten.index.Tensor
            args = args[0], tree_leaves(args[1])
        return super().function(target, args, kwargs)

    def finish(self, outputs) -> fx.GraphModule:
        """The graph, returning tensors in tuples, lists and dicts."""
        if any(is_a(each, dict) for each in tree_leaves(
                outputs, lambda part: is_a(part, dict)
                and type(part) is not dict)):
            raise unsupported("branch", "a function returns a dict of a "
                              "class of its own")
        self.graph.output(self.argument(outputs, []))
        return fx.GraphModule(self.modules, self.graph)


def graph(recorder: Recorder, value: fx.GraphModule) -> fx.Node:
    """A graph as an argument of a node."""
    name = f"graph_{len(recorder.modules)}"
    recorder.modules[name] = value
    return recorder.graph.get_attr(name)


CONVERSIONS[fx.GraphModule] = graph


@contextmanager
def inner_recorder(tracer, tensors):
    """Operators traced inside go to a graph of their own."""
    outer = tracer.recorder
    tracer.recorder = inner = Inner(outer, tensors)
    try:
        yield inner
    finally:
        tracer.recorder = outer


def followed(tracer, name: str, functions, args, kwargs=None
             ) -> tuple[list[tuple[Inner, object]], list]:
    """The graph and the result of each function; the tensors captured.

    No function may have effects. Each graph is given the tensors among
    the arguments, then all captured ones. `name` is the operator's.
    """
    inputs, made = tensors_of((args, kwargs)), []
    count = len(inputs)
    for function in functions:
        with inner_recorder(tracer, inputs) as inner, (
                unchanged(tracer, "branch",
                          f"{name} changes something outside, or writes to "
                          "its operands")):
            made.append((inner, tracer.call(function, args, kwargs)))
        inputs += inner.captured
    for inner, _ in made:
        for each in inputs[len(inner.placed):]:
            inner.placeholder(each)
    return made, inputs[count:]


def resolved(tracer, value):
    """Nested arguments of an operator, their dicts read from outside."""
    if type(value) is dict:
        return {key: resolved(tracer, part)
                for key, part in tracer.mapping(value).items()}
    return type(value)([resolved(tracer, part) for part in value]) if type(
        value) in (tuple, list) else value


def refilled(value, found):
    """A nested container with other tensors, those of a node."""
    rest = iter(found)
    return tree_map_only(torch.Tensor, lambda _: next(rest), value)


def fresh_results(name: str, made, like, given) -> list[torch.Tensor]:
    """The tensors among results, if they can be those of an operator.

    They look as those of `like` do, and each has a memory of its own.
    """
    own, found = storages(made), tensors_of(made)
    if own & storages(given) or len(own) < len(found):
        raise unsupported("branch", f"{name} returns one memory twice, or "
                          "an operand's")
    if looks(made) != looks(like):
        raise unsupported("branch", f"{name} returns other shapes than "
                          f"before: {looks(made)} and {looks(like)}")
    return found


def looks(value) -> tuple:
    """The facts of results that must be the same each time."""
    leaves, spec = tree_flatten(value)
    return spec, [
        (each.dtype, tuple(each.shape), each.stride(), each.device)
        if torch.is_tensor(each) else each for each in leaves]


def storages(values) -> set[int]:
    """The memory of the tensors among some values."""
    return {*map(storage, tensors_of(values))}


# No effects


@contextmanager
def unchanged(tracer, kind: str, what: str, own=(), free=()):
    """Code traced inside runs later, or not at all: it has no effects.

    Otherwise it is refused: `what` changes something, or writes to a
    tensor that it is given, but for those that are `free`.
    """
    before, recorder = Snapshot(tracer), tracer.recorder
    state, writes = before.text(own), Counter(recorder.written)
    yield
    given = storages([node.meta["val"] for node, _ in recorder.placed])
    if state != Snapshot(tracer).text(own) or (
            (recorder.written - writes).keys() & given - storages(free)):
        raise unsupported(kind, what)
    del before  # until now, so that no id was used twice


class Snapshot(Rebuild):
    """The text that makes all that the program may change, as it is now."""

    unfinished = "itself"

    def text(self, own) -> tuple:
        """The text; other statements, in any order; and the tensors."""
        rest = self.outside.statements(self)
        rest += [self.value(value) for names in (
            own, *(frame.names for frame in self.tracer.frames))
            for value in dict(names).values()]
        return self.function([]), sorted(rest), [*map(id, self.outputs)]

    def known(self, value) -> str:
        """An object, as which one it is."""
        self.named.append(value)
        return f"the_{id(value)}"


# autograd.Function


class Context(FunctionCtx):
    """The stand-in for `ctx`: its methods are PyTorch's own."""

    to_save = dirty_tensors = non_differentiable = ()
    materialize_grads = True

    def __getattr__(self, name: str):
        if name in ("saved_variables", *dir(BackwardCFunction)):
            raise unsupported("attribute", f"ctx.{name}")
        raise AttributeError(f"ctx has no attribute {name!r}")


@rule(Function.apply.__func__)
def _apply(tracer, kind: type, *args):
    """The results of `kind.apply(*args)`, as one node."""
    forward, setup, backward = (
        attributes.load_attr(tracer, kind, name)
        for name in ("forward", "setup_context", "backward"))
    apart = setup is not Function.setup_context
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
    with torch.no_grad(), inner_recorder(tracer, given) as ahead:
        made = tracer.call(forward, args if apart else (ctx, *args))
        if apart:
            tracer.call(setup, (ctx, args, made))
        if layouts != [(t.size(), t.stride()) for t in given]:
            raise unsupported("effect", "a forward that reshapes its input")
        whole, saved = several(made), tensors_of(ctx.to_save)
        results = [*filter(torch.is_tensor, whole)]
        back, held = None, []
        if wanted:
            back, held = _backward(tracer, backward, ctx, args, whole,
                                   saved)
        graph = ahead.finish((*results, *saved, *held))
    marks = (len(results), len(saved), *(
        tuple(k for k, each in enumerate(among)
              if any(each is one for one in chosen))
        for chosen, among in ((ctx.dirty_tensors, given),
                              (ctx.non_differentiable, results))))
    whole = refilled(whole, tracer.recorder.function(user_function, (
        graph, back, marks, ahead.captured, *given), {}))
    return whole if is_a(made, tuple) else whole[0]


def several(made) -> tuple:
    """The results of a forward or a backward, as a tuple."""
    made = made if is_a(made, tuple) else (made,)
    if not all(torch.is_tensor(each) or is_constant(each) for each in made):
        raise unsupported("result", "what an autograd.Function returns")
    return made


def _backward(tracer, backward, ctx: Context, args, made, saved: list):
    """The backward as a graph, and the tensors it reads unsaved.

    It takes the saved tensors, a gradient for each result, and those.
    """
    tangents = [torch.empty_like(each, requires_grad=False)
                if torch.is_tensor(each) else None
                for each in made]
    flows = tensors_of(tangents)
    if not ctx.materialize_grads and len(flows) > 1:
        raise unsupported("gradient", "a backward that may be given None")
    ctx.saved_tensors = ctx.to_save
    with inner_recorder(tracer, [*saved, *flows]) as inner, (
            torch._C._DisableAutocast()), (
            unchanged(tracer, "effect", "a backward", vars(ctx), flows)):
        found = several(tracer.call(backward, (ctx, *tangents)))
        pairs = [*itertools.zip_longest(found, args)]
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
    def backward(ctx, *tangents):
        ctx.in_python = True  # not while autograd adds up what it gave
        made = ctx.graph(*ctx.saved_tensors, *tangents, *ctx.held)
        ctx.in_python = False
        return (None,) * 4 + made


def user_function(forward, backward, marks, captured, *tensors):
    """The results of the graph `forward`; `backward` differentiates it.

    `marks`: how many results, how many tensors saved, the places of the
    tensors written to, and of the results without a gradient.
    """
    return super(Function, Traced).apply(
        forward, backward, marks, captured, *tensors)
