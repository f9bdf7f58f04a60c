"""torch.cond: both branches become graphs, and one node chooses.

In: a predicate, two functions and their operands. Out: what they return,
as results of one node. Both branches are followed, whatever the predicate
will be, so they must write to nothing and return tensors that look alike.
PyTorch's is
torch/_dynamo/variables/higher_order_ops.py:CondHigherOrderVariable.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from ...core.branches import cond
from ..reasons import REASONS, unsupported
from ..recorder import storage
from ..rules import rule
from .subgraphs import recording, unchanged


REASONS["branch"] = (
    "a branch of torch.cond {what}, which no graph can choose between",
    "let both branches return new tensors that look alike, and write to "
    "nothing")


@rule(torch.cond)
def _cond(tracer, pred, true_fn, false_fn, operands=()):
    if not torch.is_tensor(pred):
        chosen = true_fn if tracer.truth(pred) else false_fn
        return tracer.call(chosen, tuple(tracer.unpacked(operands)))
    if pred.numel() != 1:
        raise unsupported("branch", "is chosen by several values")
    given = list(filter(torch.is_tensor, pytree.tree_leaves(operands)))
    true, made, spec = _branch(tracer, true_fn, operands, given)
    false, others, other = _branch(tracer, false_fn, operands,
                                   [*given, *true.captured])
    if spec != other or list(map(_looks, made)) != list(
            map(_looks, others)):
        raise unsupported("branch", "returns other shapes than the other:"
                          f" {list(map(_looks, made))} and "
                          f"{list(map(_looks, others))},")
    for each in false.captured:
        true.placeholder(each)
    graphs = [side.finish(filter(torch.is_tensor, results))
              for side, results in ((true, made), (false, others))]
    found = iter(tracer.recorder.function(cond, (
        pred, *graphs, [*given, *true.captured, *false.captured]), {}))
    return pytree.tree_unflatten([next(found) if torch.is_tensor(each)
                                  else each for each in made], spec)


def _branch(tracer, function, operands, given: list):
    """A branch being recorded, the leaves it returns, their structure."""
    outer, grad = tracer.recorder, torch.is_grad_enabled()
    written = set(outer.written)
    with recording(tracer, given, grad) as inner, unchanged(
            tracer, "branch", "changes something outside"):
        leaves, spec = pytree.tree_flatten(
            tracer.call(function, tuple(tracer.unpacked(operands))))
    inputs = {storage(t) for t in [*given, *inner.captured]
              if torch.is_tensor(t)}
    if inputs & (outer.written - written):
        raise unsupported("branch", "writes to its operands")
    made = [storage(t) for t in leaves if torch.is_tensor(t)]
    if inputs & {*made} or len({*made}) < len(made):
        raise unsupported("branch", "returns one memory twice, or an "
                          "operand's,")
    return inner, leaves, spec


def _looks(value):
    """What must be the same of a result in both branches."""
    if not torch.is_tensor(value):
        return value
    return value.dtype, tuple(value.shape), value.stride(), value.device
