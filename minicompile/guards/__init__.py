"""Guards: what must hold for a graph to be reused, and why it did not."""

from ..core.reference import load
from ..core.state import global_state
from .check import Check, build_check
from .explain import Failure

__all__ = ["Check", "Failure", "build_check", "global_state"]

load(__name__, __path__)
