"""Chapter 4: ATen ops become loops, and loops are fused into kernels."""

from .schedule import fuse
from .traffic import moved

__all__ = ["fuse", "moved"]
