"""The compiler's work shown to people: explain() and the tour."""

from ..core import load
from .gather import (COMMANDS, GraphBreak, PrintedKernel, Report,
                     explain)

__all__ = ["COMMANDS", "GraphBreak", "PrintedKernel", "Report", "explain"]

load(__name__, __path__)
