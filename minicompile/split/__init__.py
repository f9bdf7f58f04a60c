"""Chapter 3: forward and backward recorded as one graph, cut in two.

In: the torch-level graph and its fake inputs. Out: a callable that
autograd can differentiate. Read joint.py, decompose.py, recorder.py,
record.py, simplify.py, flow.py, saving.py, partition.py and runtime.py,
in that order.
"""

from .joint import Joint
from .partition import Pair, partition
from .record import record
from .runtime import make_runtime
from .saving import cut

__all__ = ["Joint", "Pair", "cut", "make_runtime", "partition", "record"]
