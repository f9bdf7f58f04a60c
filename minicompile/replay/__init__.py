"""Chapter 6: a program's kernel launches recorded once, launched as one.

In: a compiled graph's forward and backward as boxed calls, and their
programs. Out: the same calls, replayed where that is safe. A file of the
reference records; without it programs are launched step by step.
PyTorch's is torch/_inductor/cudagraph_trees.py.
"""

from collections.abc import Callable

from ..core import load

#: What gives the calls of one graph, graphed; the last is in use.
GRAPHED: list[Callable] = []

load(__name__, __path__)
