"""Chapter 7: the values to save when memory is scarce.

In: a joint graph, a budget, and the cut of chapter 3. Out: the names of
the values to save. The choice is the reference's; without it all is saved
that the backward reads. PyTorch's is
torch/_functorch/partitioners.py:choose_saved_values_set.
"""

from ..core import load

load(__name__, __path__)
