"""Chapter 3: forward and backward recorded as one graph, cut in two.

In: the torch-level graph and its fake inputs. Out: a callable that
autograd can differentiate. Read joint.py, decompose.py, recorder.py,
random.py, inputs.py, watch.py, results.py, record.py, simplify.py,
partition.py, flow.py, saving.py, gradients.py, runtime.py and seam.py, in
that order.
"""

from ..core.reference import load
from .gradients import require_twice
from .joint import Joint
from .partition import Pair, partition
from .record import record
from .runtime import make_runtime
from .saving import Plan, cut
from .seam import partition_joint_module

__all__ = ["Joint", "Pair", "Plan", "cut", "make_runtime", "partition",
           "partition_joint_module", "record", "require_twice"]

load(__name__, __path__)
