"""Chapter 7: the values to save when memory is scarce.

In: a joint graph, a budget, and the cut of chapter 3. Out: the names of
the values to save. The choice is the reference's; without it all is saved
that the backward reads. PyTorch's is
torch/_functorch/partitioners.py:choose_saved_values_set.
"""

from collections.abc import Callable

from ..core import load

#: What chooses the values to save within a budget, given `cut`.
WITHIN: list[Callable[..., frozenset[str]]] = []

load(__name__, __path__)
