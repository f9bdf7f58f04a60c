"""Chapter 3: forward and backward recorded as one graph, cut in two.

In: the torch-level graph and its fake inputs. Out: a callable that
autograd can differentiate. Read joint.py, decompose.py, recorder.py,
functional_inputs.py, in_place_writes.py, output_aliases.py, record.py,
partition.py, max_flow.py, recompute_costs.py, gradients.py, runtime.py
and aot_partitioner.py, in that order.
"""

from ..core import load
from .aot_partitioner import partition_joint_module
from .gradients import require_twice
from .joint import Joint
from .partition import Pair, partition
from .recompute_costs import Plan, cut
from .record import record
from .runtime import make_runtime

__all__ = ["Joint", "Pair", "Plan", "cut", "make_runtime", "partition",
           "partition_joint_module", "record", "require_twice"]

load(__name__, __path__)
