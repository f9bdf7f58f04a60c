"""torch.utils.checkpoint: a region that the backward computes once more.

In: a function and its arguments. Out: its result; the nodes that it made
carry the region's number, which the cut of chapter 3 honours. PyTorch's is
torch/_dynamo/variables/higher_order_ops.py:CheckpointHigherOrderVariable.
"""

from __future__ import annotations

from torch.utils.checkpoint import checkpoint, noop_context_fn

from ..reasons import unsupported
from ..rules import rule


@rule(checkpoint)
def _checkpoint(tracer, function, *args, use_reentrant=None,
                preserve_rng_state=True, context_fn=noop_context_fn,
                determinism_check="default", debug=False, early_stop=True,
                **kwargs):
    if use_reentrant is not False or context_fn is not noop_context_fn:
        raise unsupported("library", "checkpoint with use_reentrant=True, "
                          "or with a context_fn,")
    recorder, outer = tracer.recorder, tracer.recorder.region
    if outer is None:
        recorder.region = tracer.clock
    try:
        return tracer.call(function, args, kwargs)
    finally:
        recorder.region = outer
