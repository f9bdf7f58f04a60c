"""Stage 5: schedules printed as programs, compiled and loaded."""

from ..core import load
from .program import Program, emit

__all__ = ["Program", "emit"]

load(__name__, __path__)
