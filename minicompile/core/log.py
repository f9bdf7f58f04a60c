"""The log of each stage's work: `MINICOMPILE_LOGS=guards,...` shows it.

The artifacts have the names of TORCH_LOGS. Warnings about falling back to
eager are always shown, once for each place and reason.
"""

from __future__ import annotations

import logging
import os
import warnings

from .errors import one_of

#: The artifacts that can be asked for, comma separated; "all" has all.
ARTIFACTS = ("graph_breaks", "recompiles", "guards", "graph_code",
             "joint_graph", "fusion", "output_code", "perf_hints",
             "dynamic")

logger = logging.getLogger("minicompile")


def asked() -> set[str]:
    """What MINICOMPILE_LOGS asks for now; OptionError for a wrong name."""
    names = {name.strip() for name in os.environ.get(
        "MINICOMPILE_LOGS", "").split(",")} - {""}
    for name in names:
        one_of("MINICOMPILE_LOGS artifact", name, (*ARTIFACTS, "all"))
    return names


asked()  # a wrong name is an error now


def show(artifact: str, text: str) -> None:
    """Print `text` to standard error if MINICOMPILE_LOGS asks for it."""
    if asked().isdisjoint((artifact, "all")):
        return
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.info("[%s] %s", artifact, text)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn with `text`, once in this process."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=3)


def forget_warnings() -> None:
    """Let every warning be shown again (for reset())."""
    _warned.clear()
