"""The log of each stage's work: `MINICOMPILE_LOGS=guards,...` shows it.

The artifacts have the names of TORCH_LOGS. Warnings about falling back to
eager are always shown, once for each place and reason.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache

from .errors import one_of

#: The artifacts that can be asked for, and what each shows.
ARTIFACTS = {
    "graph_breaks": "where a graph ends, and why",
    "recompiles": "the guard that failed in each entry, before a new one",
    "guards": "the check of each entry",
    "graph_code": "the traced graph",
    "joint_graph": "forward and backward as one graph",
    "fusion": "the kernels as loops",
    "output_code": "the programs",
    "perf_hints": "why kernels stay apart, and why nothing is replayed",
    "memory": "the plans that a bound on the peak is chosen from",
    "dynamic": "the sizes and numbers that became symbols",
}

#: Each is told which stage begins, or "" when none follows.
BEGINS: list[Callable[[str], None]] = []

logger = logging.getLogger("minicompile")


def asked() -> set[str]:
    """The names in MINICOMPILE_LOGS now; OptionError for a wrong one."""
    names = {name.strip() for name in os.environ.get(
        "MINICOMPILE_LOGS", "").split(",")} - {""}
    for name in names:
        one_of("MINICOMPILE_LOGS artifact", name,
               (*ARTIFACTS, "all", "help"))
    return names


if "help" in asked():  # a wrong name is an error now
    print("MINICOMPILE_LOGS is a list of these, or all:", *(
        f"{name:13} {what}" for name, what in ARTIFACTS.items()),
        sep="\n  ", file=sys.stderr)


def show(artifact: str, what: object) -> None:
    """Print `what` to standard error if MINICOMPILE_LOGS asks for it."""
    if asked().isdisjoint((artifact, "all")):
        return
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
    logger.info("[%s] %s", artifact, what)


def begin(stage: str) -> None:
    """A stage begins its work on a graph, in this thread."""
    for tell in BEGINS:
        tell(stage)


@cache
def warn_once(text: str) -> None:
    """Warn with `text`, once in this process."""
    warnings.warn(text, stacklevel=3)


#: Let every warning be shown again (for reset()).
forget_warnings = warn_once.cache_clear
