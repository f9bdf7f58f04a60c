"""torch.func: a transform of a function becomes one node around a graph.

In: a call of what `grad`, `vmap`, `jacrev` or another transform made of a
function. Out: its result, as results of one node. The transform is asked
first what tensors it would give to the function: a vmap's have one
dimension less. The function is traced on such tensors, into a graph of
its own. The node then applies PyTorch's transform to that graph, on fake
tensors now, on real ones later, or while chapter 3 records what autograd
and vmap make of it. So transforms of transforms are graphs in graphs.
PyTorch's is
torch/_dynamo/variables/higher_order_ops.py:FunctorchHigherOrderVariable.
"""

from __future__ import annotations

import inspect
from functools import partial

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..names import closure, load_cell
from ..rules import rule
from .subgraphs import followed, resolved

#: What takes a function, and gives the function that it makes of it.
TRANSFORMS = {name: getattr(torch.func, name) for name in (
    "grad", "grad_and_value", "jacfwd", "jacrev", "vmap")}


def transform(*call) -> tuple:
    """What `torch.func`'s transform of a graph gives: the leaves of it."""
    return tuple(tree_leaves(play(*call)))


def play(name: str, options: dict, graph, captured, args, kwargs):
    """The same in its containers.

    The graph takes the tensors among the arguments, and captured ones.
    """
    return applied(name, options, lambda *args, **kwargs: graph(
        *tensors(args, kwargs), *captured), args, kwargs)


def applied(name: str, options: dict, function, args, kwargs):
    """The transform of a function, called."""
    if name == "jvp":
        return torch.func.jvp(function, *args, **options)
    return TRANSFORMS[name](function, **options)(*args, **kwargs)


def tensors(*values) -> list[torch.Tensor]:
    """The tensors in nested containers."""
    return [*filter(torch.is_tensor, tree_leaves(values))]


class Asked(BaseException):
    """What a transform was about to give to its function."""

    def __init__(self, args, kwargs):
        leaves, self.spec = tree_flatten((args, kwargs))
        self.leaves = [*map(alike, leaves)]
        self.grad = torch.is_grad_enabled()


def alike(leaf):
    """What makes a tensor that looks so, and belongs to no transform."""
    return partial(
        torch.empty_strided, tuple(leaf.shape), leaf.stride(),
        dtype=leaf.dtype, device=leaf.device,
        requires_grad=leaf.requires_grad) if torch.is_tensor(leaf) else leaf


def probe(*args, **kwargs):
    """Called by a transform: stop it, and tell what it gives."""
    raise Asked(args, kwargs)


def transformed(tracer, name: str, options: dict, function, args, kwargs):
    """The result of a transform's call, as one node."""
    args, kwargs = resolved(tracer, (args, kwargs))
    tracer.recorder.argument((args, kwargs), [])  # or it is refused
    try:
        return tracer.native(applied, (name, options, probe, args, kwargs))
    except Asked as asked:
        given = asked
    inside, more = tree_unflatten([
        each() if type(each) is partial else each
        for each in given.leaves], given.spec)
    grad = torch.is_grad_enabled()
    torch._C._set_grad_enabled(given.grad)
    try:
        inner, made = followed(tracer, name, function, inside,
                               tensors(inside, more), more)
    finally:
        torch._C._set_grad_enabled(grad)
    specs = []

    def run(*call):
        leaves, spec = tree_flatten(play(*call))
        specs.append(spec)
        return tuple(leaves)

    call = name, options, inner.finish(made), inner.captured, args, kwargs
    found = tracer.recorder.run("call_function", transform, run, call, {})
    return tree_unflatten(found, specs[-1])


def call_made(name: str, function, tracer, *args, **kwargs):
    """A call of what a transform made, in the trace or before it."""
    cells = zip(function.__code__.co_freevars, closure(tracer, function))
    parts = {key: load_cell(tracer, cell, key) for key, cell in cells}
    options = {key: parts[key] for key in inspect.signature(
        TRANSFORMS[name]).parameters if key in parts}
    return transformed(tracer, name, options, options.pop("func"), args,
                       kwargs)


for _name, _make in TRANSFORMS.items():
    rule(_make)(lambda tracer, *args, _make=_make, **kwargs: tracer.own(
        tracer.native(_make, args, kwargs)))
    _made = _make(abs)
    rule((_made.__globals__["__name__"], _made.__code__.co_qualname))(
        partial(call_made, _name))


@rule(torch.func.hessian)
def _hessian(tracer, func, argnums=0):
    return tracer.call(torch.func.jacfwd, (tracer.call(
        torch.func.jacrev, (func, argnums)), argnums))


@rule(torch.func.jvp)
def _jvp(tracer, func, primals, tangents, **options):
    return transformed(tracer, "jvp", options, func, (primals, tangents),
                       {})
