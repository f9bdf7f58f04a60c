"""Reductions of a block along its last axis, in Triton.

Two blocks are combined by the operation that the reduction repeats.
argmax and argmin carry a second block, the places: the first place of the
best value wins, and NaN is better than every number.
"""

from __future__ import annotations

from ..core.index import Index
from ..core.loops import REDUCTIONS
from .operations import BETTER
from .stages import Local
from .target import TRITON

#: How a block is reduced to a column, where there is a short way.
ACROSS = {"sum": "tl.sum({0}, 1, keep_dims=True)",
          "any": "tl.max({0}, 1, keep_dims=True)",
          "all": "tl.min({0}, 1, keep_dims=True)"}


def across(fold: Local, text: str) -> str:
    """A block reduced to a column."""
    name = fold.node.reduction.removeprefix("arg")
    reduced = ACROSS.get(name, "tl.reduce({0}, 1, device."
                         f"{REDUCTIONS[name][1]}, keep_dims=True)")
    return reduced.format(text)


def begin(fold: Local) -> list[str]:
    """Lines before the first block of a row."""
    kind = TRITON.types[TRITON.accumulator(fold)]
    lines = [f"{block(fold)} = tl.full([XBLOCK, RBLOCK], "
             f"{TRITON.neutral(fold)}, {kind})"]
    if fold.node.reduction in BETTER:
        lines.append(f"{places(fold)} = "
                     "tl.broadcast_to(lane, [XBLOCK, RBLOCK])")
    return lines


def step(fold: Local, text: str) -> list[str]:
    """Lines that take one more block of a row in."""
    name, old = fold.node.reduction, block(fold)
    if name not in BETTER:
        return [f"{old} = {TRITON.combined(fold, old, text)}"]
    return [f"new = {text}", f"better = device.{BETTER[name]}(new, {old})",
            f"{old} = tl.where(better, new, {old})",
            f"{places(fold)} = tl.where(better, r, {places(fold)})"]


def finish(fold: Local, text: str, looped: bool,
           size: Index) -> list[str]:
    """Lines that reduce a last block to the result, named `block`.

    No place in a row is as large as the row's `size`.
    """
    name = block(fold)
    if fold.node.reduction not in BETTER:
        result = across(fold, text)
        kind = TRITON.accumulator(fold)
        return [f"{name} = {TRITON.convert(result, kind, fold.dtype)}"]
    place = places(fold) if looped else "r"
    return [*([] if looped else [f"{name} = {text}"]),
            f"top = {across(fold, name)}",
            f"best = ({name} == top) | ({name} != {name})",
            f"{name} = tl.min(tl.where(best, {place}, {size}), 1, "
            "keep_dims=True).to(tl.int64)"]


def block(fold: Local) -> str:
    """The name of the block that is reduced, then of the result."""
    return f"{fold.node.reduction}{fold.number}"


def places(fold: Local) -> str:
    """The name of the block of places."""
    return f"place{fold.number}"
