"""Replay: a program's kernel launches recorded once, launched as one.

In: a compiled graph's forward and backward as boxed calls. Out: the same
calls, which on CUDA replay a recording. The idea: the only memory a
replay may overwrite is memory that no Python object can reach. PyTorch's
is torch/_inductor/cudagraph_trees.py.
"""

from ..core import load
from .graphed_function import GraphedFunction, graphed

__all__ = ["GraphedFunction", "graphed"]

load(__name__, __path__)
