"""Chapter 7: the values to save when memory is scarce.

In: the joint graph, the budget, and the cut of chapter 3. Out: the names
of the values to save. The reference finds smaller plans, and bounds the
peak.
"""

from ..core import load
from .choose import choose

__all__ = ["choose"]

load(__name__, __path__)
