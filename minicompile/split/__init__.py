"""Chapter 3: forward and backward recorded as one graph, cut in two.

In: the torch-level graph and its fake inputs. Out: a callable that
autograd can differentiate. Read joint.py, recorder.py, aliases.py,
record.py and runtime.py, in that order.
"""

from ..core import load
from .joint import CHOOSE, Joint, Pair, partition
from .record import record
from .runtime import make_runtime

__all__ = ["CHOOSE", "Joint", "Pair", "make_runtime", "partition", "record"]

load(__name__, __path__)
