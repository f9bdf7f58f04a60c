"""Operators that take functions: attention with a score, loops, regions.

In: the call of a higher-order operator. Out: for `flex_attention` and
`while_loop` a node of PyTorch's own operator, its functions being graphs;
a tensor that a function reads around itself becomes an operand. Nobody
knows how often a `while_loop` will run, so what it carries must look the
same after each step, and it has no gradient. A `scan` runs once for each
slice: a short one is unrolled into the graph. A nested compile region is
followed where it stands. PyTorch's is
torch/_dynamo/variables/higher_order_ops.py.
"""

from __future__ import annotations

import operator

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import (tree_flatten, tree_leaves, tree_map,
                                 tree_unflatten)

from ..calls import inline
from ..reasons import unsupported
from ..rules import rule
from ..symbolic_shapes import Fakes, settled
from .subgraphs import Inner, followed, fresh, looks, resolved, unchanged
from .transforms import alike

#: How PyTorch names the modules that the rules here are about.
HOME = "torch._higher_order_ops."

#: A scan over more slices than this stays a graph break.
LONGEST_SCAN = 64

flex_attention = torch.ops.higher_order.flex_attention
while_loop = torch.ops.higher_order.while_loop

for _operator in (flex_attention, while_loop):
    _operator.py_impl(Fakes)(_operator.python_key_table[FakeTensorMode])


@rule((HOME + "invoke_subgraph",
       "mark_compile_region.<locals>.wrap.<locals>.inner"))
def _region(function, tracer, *args, **kwargs):
    return inline(tracer, function, args, kwargs)


@rule((HOME + "invoke_subgraph", "invoke_subgraph_placeholder"))
def _in_a_region(tracer, function, *args, **kwargs):
    return tracer.call(function, args, kwargs)


@rule((HOME + "scan", "scan"))
def _scan(tracer, combine_fn, init, xs, *, dim=0, reverse=False):
    init, xs = resolved(tracer, (init, xs))
    rows, counts = [], {
        settled(each.shape[dim]) if torch.is_tensor(each) else 0
        for each in tree_leaves(xs)}
    count = counts.pop() if len(counts) == 1 else 0
    if not 0 < count <= LONGEST_SCAN:
        raise unsupported("branch", f"scan is called {count} times")
    carry = init
    for at in reversed(range(count)) if reverse else range(count):
        given = carry, tree_map(lambda x, at=at: tracer.recorder.method(
            "select", (x, dim, at), {}), xs)
        with unchanged(tracer, "branch", "scan changes something outside"):
            made = tracer.call(combine_fn, given)
        fresh("scan", tree_leaves(made), tree_leaves(given))
        carry, row = made
        if look(carry) != look(init):
            raise unsupported("branch", "scan returns another carry")
        rows.append(row)
    return carry, tree_map(
        lambda *parts: tracer.recorder.function(torch.stack, (parts,), {}),
        *(reversed(rows) if reverse else rows))


@rule((HOME + "while_loop", "while_loop"))
def _while_loop(tracer, cond_fn, body_fn, carried_inputs):
    carried, spec = tree_flatten(resolved(tracer, carried_inputs))
    if not all(map(torch.is_tensor, carried)):
        raise unsupported("branch", "while_loop carries a number")
    given = [alike(each)() for each in carried]
    again = tree_unflatten(given, spec)
    test, goes_on = followed(tracer, "while_loop", cond_fn, again, given)
    body, made = followed(tracer, "while_loop", body_fn, again,
                          [*given, *test.captured])
    leaves = tree_leaves(made)
    fresh("while_loop", leaves, [*given, *body.captured])
    if look(made) != look(again) or not torch.is_tensor(goes_on) or (
            looks(goes_on)[:2] != (torch.bool, ())):
        raise unsupported("branch", "while_loop returns something else")
    for each in body.captured:
        test.placeholder(each)
    captured = (*test.captured, *body.captured)
    if torch.is_grad_enabled() and any(
            each.requires_grad for each in (*carried, *captured, *leaves)
            if torch.is_tensor(each)):
        raise unsupported("branch", "while_loop needs a gradient")
    return tree_unflatten(tracer.recorder.function(while_loop, (
        test.finish(goes_on), body.finish(tuple(leaves)), tuple(carried),
        captured), {}), spec)


def look(value) -> tuple:
    """What must stay the same of what a loop carries."""
    leaves, spec = tree_flatten(value)
    return spec, [*map(looks, leaves)]


class Scores(Inner):
    """The graph of a score: a tensor as an index looks up a number."""

    def function(self, target, args, kwargs):
        if target is operator.getitem and all(
                torch.is_tensor(each) for each in tree_leaves(args[1])):
            target = torch.ops.aten.index.Tensor
            args = args[0], tree_leaves(args[1])
        return super().function(target, args, kwargs)


@rule(("torch._dynamo.decorators", "mark_static"))
def _mark_static(tracer, value, *dims):
    """Nothing: it is a wish about sizes, and changes no result."""


@rule(flex_attention)
def _flex_attention(tracer, query, key, value, score_mod, block_mask, scale,
                    kernel_options):
    score = query.new_empty((), requires_grad=query.requires_grad)
    places = [query.new_empty((), dtype=torch.int32) for _ in range(4)]
    graphs, captured = [], []
    for function, given in ((score_mod, [score, *places]),
                            (block_mask[-1], places)):
        inner, made = followed(tracer, "flex_attention", function, given,
                               given, None, Scores)
        graphs.append(inner.finish(made))
        captured.append(tuple(inner.captured))
    return tracer.recorder.function(flex_attention, (
        query, key, value, graphs[0], (*block_mask[:-1], graphs[1]), scale,
        kernel_options, *captured), {})
