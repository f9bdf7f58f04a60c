"""Scans of rows: what all elements up to each one add up to.

A block of Triton's scans its elements in parallel, in as many steps as
their number has bits. A row that no block holds is walked along, and each
block starts from what those before it came to. In Inductor:
torch/_inductor/codegen/triton.py:TritonKernel.scan.
"""

from __future__ import annotations

from functools import partial

from ..triton import ACROSS, SCANNING, TRITON, TritonWriter
from ..writer import Fold


def scan(writer: TritonWriter, fold: Fold) -> None:
    """Write the reductions up to each element of a block."""
    name, dtype = writer.accumulator(fold), writer.accumulated(fold)
    part, made = f"{name}_part", f"{name}_here"
    combined = partial(TRITON.combined, fold.reduction, dtype)
    writer.add(f"{part} = {writer.part(fold)}", f"{made} = tl."
               f"{fold.reduction}({part}, {int(not writer.tiling.flat)})")
    if writer.has_steps(fold):
        writer.add(f"{made} = {combined(name, made)}", f"{name} = "
                   + combined(name, writer.across(fold, part)))
    writer.summed.add(fold)
    writer.texts[fold] = TRITON.convert(made, dtype, fold.dtype)


ACROSS["cumsum"] = "tl.sum"
SCANNING.append(scan)
