"""The compiler's messages: each stage's work, and warnings.

In: the name of an artifact, or of a stage, and what was made. Out: rows of
the reference print and measure it; the road keeps it to itself. Warnings
about falling back to eager are always shown, each text once. PyTorch's is
torch/_logging/_internal.py.
"""

import sys
import warnings
from collections.abc import Callable
from functools import cache

#: Each is told the name of an artifact, and what it is in this graph.
SHOWN: list[Callable[[str, object], None]] = []

#: Each is told which stage begins, or "" when none follows.
BEGINS: list[Callable[[str], None]] = []


def show(artifact: str, what: object) -> None:
    """Tell those who print artifacts about one."""
    for tell in SHOWN:
        tell(artifact, what)


def enter(stage: str) -> None:
    """A stage begins its work on a graph, in this thread."""
    for tell in BEGINS:
        tell(stage)


@cache
def warn_once(text: str) -> None:
    """Warn with `text`, once in this process, at the line that calls us."""
    level, frame = 1, sys._getframe()
    while frame and frame.f_globals.get("__name__", "minicompile").split(
            ".")[0] == "minicompile":  # finish() has no name
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
