"""Compiled graphs that a page calls with what they were not made for."""

from unittest.mock import patch

from minicompile.core.options import Options
from minicompile.fusion.passes import memory
from minicompile.pipeline import CompiledGraph, lower_ours
from minicompile.trace import Trace


def lowered(traced: Trace) -> CompiledGraph:
    """A trace's compiled graph, whose kernels store into fresh memory: a
    result of another size than expected has no room for theirs."""
    with patch.object(memory, "REUSING", ()):
        return lower_ours(traced.graph, traced.example_inputs, "fused",
                          Options())
