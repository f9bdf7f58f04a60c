"""Guards: what must hold for a graph to be reused, and why it did not."""

from .check import Check, build_check
from .explain import Failure
from .state import global_state

__all__ = ["Check", "Failure", "build_check", "global_state"]
