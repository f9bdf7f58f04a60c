"""Chapter 7: which values to save when memory is scarce.

In: the joint graph, the budget, and the cut of chapter 3. Out: the names
of the values to save. Read choose.py, then peak.py.
"""

from .choose import choose
from .peak import bound_peak, front, peak, scored

__all__ = ["bound_peak", "choose", "front", "peak", "scored"]
