"""Stage 5: schedules printed as programs, compiled and loaded."""

from .program import Program, emit

__all__ = ["Program", "emit"]
