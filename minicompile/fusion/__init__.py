"""Stage 4: ATen operators become loops, loops are fused into kernels."""

from ..core import load
from .schedule import fuse

__all__ = ["fuse"]

load(__name__, __path__)
