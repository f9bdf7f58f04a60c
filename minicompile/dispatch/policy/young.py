"""Garbage collection while compiling: young objects only.

In: what serves a miss, and what brings a graph down. Out: the same. A look
at all objects of PyTorch takes 0.1 s, and the many that a compiler makes,
most of which stay, would cause several. Without this file it takes longer.
"""

import contextlib
import gc

from ...pipeline import LOWER
from .. import AT_MISS

#: A threshold that is never reached.
NEVER = 1 << 30


@contextlib.contextmanager
def young_only():
    """Let the garbage collector look at young objects only."""
    *young, old = gc.get_threshold()
    if old == NEVER:  # another thread compiles, too
        yield
        return
    gc.set_threshold(*young, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*young, old)


for rows in AT_MISS, LOWER:
    rows[-1] = young_only()(rows[-1])
