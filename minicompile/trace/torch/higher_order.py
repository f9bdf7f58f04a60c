"""Operators that take functions: choices, loops, attention, transforms.

In: the call of a higher-order operator. Out: results of one node that
holds the functions' graphs; tensors that they read around themselves are
operands. Checkpoints, nested compile regions and associative scans are
followed where they stand. A transform of torch.func gives a function its
first tensors while it is traced; the node applies it to that one's graph.
PyTorch's is torch/_dynamo/variables/higher_order_ops.py.
"""

import inspect
from collections import Counter
from functools import partial

import torch
from torch._higher_order_ops.associative_scan import (
    associative_scan_op, generic_associative_scan)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint, noop_context_fn

from ...core.graph import tensors_of
from ...core.sizes import python_forms
from ..frame import closure, load_cell
from ..python.callbacks import unwatched
from ..reasons import unsupported
from ..recorder import Fakes
from ..rules import rule
from .subgraphs import (fresh_results, followed, refilled, resolved,
                        storages)

#: How PyTorch names the modules that the rules here are about.
HOME = "torch._higher_order_ops."

cond = torch.ops.higher_order.cond
flex_attention = torch.ops.higher_order.flex_attention
while_loop = torch.ops.higher_order.while_loop

for _operator in (cond, flex_attention, while_loop):
    _operator.py_impl(Fakes)(_operator.python_key_table[FakeTensorMode])


# Regions that are followed where they stand


@rule(checkpoint)
def _checkpoint(tracer, function, *args, use_reentrant=None,
                preserve_rng_state=True, context_fn=noop_context_fn,
                determinism_check="default", debug=False, early_stop=True,
                **kwargs):
    """The call; its nodes carry the number of the outermost region."""
    if use_reentrant is not False or context_fn is not noop_context_fn:
        raise unsupported("library", "checkpoint with use_reentrant=True, "
                          "or with a context_fn,")
    recorder, region = tracer.recorder, tracer.clock
    outside, writes = {*recorder.graph.nodes}, Counter(recorder.written)
    made = tracer.call(function, args, kwargs)
    for node in recorder.graph.nodes:
        if node not in outside and node.op != "placeholder":
            node.meta["recompute"] = region
    given = storages([node.meta["val"] for node, _ in recorder.placed])
    if torch.is_grad_enabled() and given & (
            recorder.written - writes).keys():  # in eager, once more
        raise unsupported("library", "checkpoint of a write")
    return made


# Choices and loops


@rule((HOME + "invoke_subgraph", "invoke_subgraph_placeholder"),
      (HOME + "utils", "_maybe_compile_and_run_fn"))
def _run_now(tracer, function, *args, **kwargs):
    return tracer.enter(function, args, kwargs)


@rule(associative_scan_op)
def _associative_scan(tracer, combine_fn, xs, additional_inputs=()):
    return tracer.call(generic_associative_scan, (combine_fn, xs), {
        "additional_inputs": additional_inputs})


@rule(torch.cond)
def _cond(tracer, pred, true_fn, false_fn, operands=()):
    operands = tracer.unpacked(operands)
    if not torch.is_tensor(pred):
        return tracer.call(true_fn if tracer.truth(pred) else false_fn,
                           operands)
    if pred.numel() != 1:
        raise unsupported("branch", "torch.cond takes several values")
    operands = resolved(tracer, operands)
    sides, captured = followed(tracer, "torch.cond", (true_fn, false_fn),
                               operands)
    made = sides[0][1]
    graphs = [side.finish(tuple(fresh_results(
        "torch.cond", each, made, (operands, captured))))
        for side, each in sides]
    return refilled(made, tracer.recorder.function(cond, (
        pred, *graphs, [*tensors_of(operands), *captured]), {}))


@rule((HOME + "while_loop", "while_loop"))
def _while_loop(tracer, cond_fn, body_fn, carried_inputs):
    """The values carried look the same after each of its many turns."""
    carried = resolved(tracer, carried_inputs)
    leaves = tree_leaves(carried)
    if not all(map(torch.is_tensor, leaves)):
        raise unsupported("branch", "while_loop carries a number")
    again = tree_map(alike, carried)
    ((test, goes_on), (body, made)), captured = followed(
        tracer, "while_loop", (cond_fn, body_fn), again)
    results = fresh_results("while_loop", made, again, (again, captured))
    if not torch.is_tensor(goes_on) or goes_on.dim() or (
            goes_on.dtype is not torch.bool):
        raise unsupported("branch", "while_loop asks something else")
    if torch.is_grad_enabled() and any(
            each.requires_grad
            for each in tensors_of((carried, captured, made))):
        raise unsupported("branch", "while_loop needs a gradient")
    return refilled(carried, tracer.recorder.function(while_loop, (
        test.finish(goes_on), body.finish(tuple(results)),
        tuple(leaves), tuple(captured)), {}))


# Attention with a score


@rule(flex_attention)
def _flex_attention(tracer, query, key, value, score_mod, block_mask, scale,
                    kernel_options):
    score = query.new_empty((), requires_grad=query.requires_grad)
    places = [query.new_empty((), dtype=torch.int32) for _ in range(4)]
    graphs, operands = [], []
    for function, given in ((score_mod, [score, *places]),
                            (block_mask[-1], places)):
        [(inner, made)], captured = followed(
            tracer, "flex_attention", [function], given)
        graphs.append(inner.finish(made))
        operands.append(tuple(captured))
    return tracer.recorder.function(flex_attention, (
        query, key, value, graphs[0], (*block_mask[:-1], graphs[1]), scale,
        kernel_options, *operands), {})


# Transforms

#: The transforms: each takes a function and returns a new one.
TRANSFORMS = {name: getattr(torch.func, name) for name in (
    "grad", "grad_and_value", "jacfwd", "jacrev", "vmap")}


def transform(name: str, options: dict, graph, captured, args, kwargs
              ) -> tuple:
    """The leaves of the result of `torch.func`'s transform of a graph.

    The graph takes the tensors among the arguments, and captured ones.
    """
    return tuple(tree_leaves(TRANSFORMS[name](
        lambda *args, **kwargs: graph(*tensors_of((args, kwargs)),
                                      *captured), **options)(
        *args, **kwargs)))


def alike(leaf):
    """A new tensor that looks like another, or the value itself."""
    return torch.empty_strided(
        leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device,
        requires_grad=leaf.requires_grad) if torch.is_tensor(leaf) else leaf


def transformed(name: str, made, tracer, *args, **kwargs):
    """The result of a transform's function, called, as one node.

    That was made in the trace or before; its cells hold the options, and
    the user's function. This is followed, outside of the transform, when
    the transform calls it for the first time.
    """
    cells = zip(made.__code__.co_freevars, closure(tracer, made))
    held = {key: load_cell(tracer, cell, key) for key, cell in cells}
    options = {key: held[key] for key in inspect.signature(
        TRANSFORMS[name]).parameters if key in held}
    function = options.pop("func")
    args, kwargs = resolved(tracer, (args, kwargs))
    tracer.recorder.argument((args, kwargs), [])  # or it is refused
    parts = []

    @unwatched
    def called(*given, **named):
        if not parts:
            with torch._C._DisableFuncTorch():
                [(inner, made)], captured = followed(
                    tracer, name, [function], *tree_map(
                        alike, (given, named)))
                parts.extend((inner.finish(made), captured))
        graph, captured = parts
        return graph(*tensors_of((given, named)), *captured)

    with python_forms(tracer.recorder.sizes.symbols):
        made = tracer.native(
            TRANSFORMS[name](called, **options), args, kwargs)
    tracer.recorder.run(
        "call_function", transform, lambda *_: tuple(tree_leaves(made)),
        (name, options, *parts, args, kwargs), {})
    return made


for _name, _make in TRANSFORMS.items():
    rule(_make)(lambda tracer, *args, _make=_make, **kwargs: tracer.own(
        tracer.native(_make, args, kwargs)))
    _made = _make(abs)
    rule((_made.__globals__["__name__"], _made.__code__.co_qualname))(
        partial(transformed, _name))
