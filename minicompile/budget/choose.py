"""Fewer saved bytes than the default, at the least recomputation.

In: a joint graph, a ceiling on saved bytes as a share of the default's,
and the cut of chapter 3. Out: the names of the values to save.
"""

from __future__ import annotations

from collections.abc import Callable


def choose(joint, budget: float, *, cut: Callable) -> set[str]:
    """The names of the values to save within `budget`."""
    return cut(joint)
