"""Replay: a program's kernel launches recorded once, launched as one.

In: a compiled graph's forward and backward as boxed calls. Out: the same
calls, which on CUDA replay a recording. The idea: the only memory a
replay may overwrite is memory that no Python object can reach. Both files
are rows of the reference. PyTorch's is
torch/_inductor/cudagraph_trees.py.
"""

from collections.abc import Callable

from ..core import load

__all__ = ["GRAPHED"]

#: Makes a graphed function of a graph's programs and their schedules.
GRAPHED: list[Callable] = []

load(__name__, __path__)
