"""Chapter 7: which values to save when memory is scarce.

In: the joint graph, the budget, and the cut of chapter 3. Out: the names
of the values to save.
"""

from .choose import choose

__all__ = ["choose"]
