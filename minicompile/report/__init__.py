"""What the compiler did, for people: explain(), reports, the tour."""

from .gather import GraphBreak, Report, explain
from .stages import PrintedKernel

__all__ = ["GraphBreak", "PrintedKernel", "Report", "explain"]
