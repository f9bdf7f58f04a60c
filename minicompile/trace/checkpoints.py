"""torch.utils.checkpoint: what is inside is marked, and traced as it is.

In: a call of `checkpoint`. Out: what the function returns; its nodes carry
the region's number in `meta["recompute"]`, and chapter 3 computes them
once more in the backward instead of saving them. PyTorch wraps a region
in an operator: torch/_higher_order_ops/wrap.py:TagActivationCheckpoint.
"""

from __future__ import annotations

from torch.utils.checkpoint import checkpoint, noop_context_fn

from .reasons import unsupported
from .rules import rule


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
