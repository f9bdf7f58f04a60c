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
from ..reasons import unsupported
from ..rules import rule
from .subgraphs import followed, fresh, looks, resolved


@rule(torch.cond)
def _cond(tracer, pred, true_fn, false_fn, operands=()):
    if not torch.is_tensor(pred):
        chosen = true_fn if tracer.truth(pred) else false_fn
        return tracer.call(chosen, tuple(tracer.unpacked(operands)))
    if pred.numel() != 1:
        raise unsupported("branch", "torch.cond takes several values")
    operands = resolved(tracer, operands)
    given = list(filter(torch.is_tensor, pytree.tree_leaves(operands)))
    true, made, spec = _branch(tracer, true_fn, operands, given)
    false, others, other = _branch(tracer, false_fn, operands,
                                   [*given, *true.captured])
    one, two = [list(map(looks, each)) for each in (made, others)]
    if spec != other or one != two:
        raise unsupported("branch", "torch.cond returns other shapes than "
                          f"the other: {one} and {two}")
    for each in false.captured:
        true.placeholder(each)
    graphs = [side.finish((*filter(torch.is_tensor, results),))
              for side, results in ((true, made), (false, others))]
    found = iter(tracer.recorder.function(cond, (
        pred, *graphs, [*given, *true.captured, *false.captured]), {}))
    return pytree.tree_unflatten([next(found) if torch.is_tensor(each)
                                  else each for each in made], spec)


def _branch(tracer, function, operands, given: list):
    """A branch being recorded, the leaves it returns, their structure."""
    inner, made = followed(tracer, "torch.cond", function,
                           tuple(tracer.unpacked(operands)), given)
    leaves, spec = pytree.tree_flatten(made)
    fresh("torch.cond", leaves, [*given, *inner.captured])
    return inner, leaves, spec
