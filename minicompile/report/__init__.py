"""What the compiler did, for people: explain(), reports, the tour."""

from .gather import GraphBreak, Kernel, Report, explain

__all__ = ["GraphBreak", "Kernel", "Report", "explain"]
