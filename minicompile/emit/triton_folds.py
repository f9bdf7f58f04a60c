"""Reductions of a block along its last axis, in Triton.

Two blocks are combined by the operation that the reduction repeats.
argmax and argmin carry a second block, the places: the first place of the
best value wins, and NaN is better than every number.
"""

from __future__ import annotations

import torch

from ..core.index import Index
from ..core.loops import REDUCTIONS
from ..core.loops import neutral as neutral_number
from .operations import BETTER, FORMS, held
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


def working_type(fold: Local) -> torch.dtype:
    """The type in which a reduction works; narrow integers are widened."""
    given = fold.operands[0].dtype
    if fold.node.reduction in ("any", "all"):
        return torch.int32
    narrow = not given.is_floating_point and given.itemsize < 4
    return torch.int32 if narrow else held(given)


def to_working_type(fold: Local, text: str) -> str:
    """The value to reduce, in the type in which the reduction works."""
    given = fold.operands[0].dtype
    if fold.node.reduction in ("any", "all"):
        text, given = TRITON.convert(text, given, torch.bool), torch.bool
    return TRITON.convert(text, given, working_type(fold))


def neutral(fold: Local) -> str:
    """What changes no result, as text."""
    kind, name = working_type(fold), fold.node.reduction
    return TRITON.literal(
        neutral_number(name.removeprefix("arg"), kind), kind)


def begin(fold: Local) -> list[str]:
    """Lines before the first block of a row."""
    lines = [f"{block(fold)} = tl.full([XBLOCK, RBLOCK], {neutral(fold)}, "
             f"{TRITON.types[working_type(fold)]})"]
    if fold.node.reduction in BETTER:
        lines.append(f"{places(fold)} = "
                     "tl.broadcast_to(lane, [XBLOCK, RBLOCK])")
    return lines


def step(fold: Local, text: str) -> list[str]:
    """Lines that take one more block of a row in."""
    name, old = fold.node.reduction, block(fold)
    if name not in BETTER:
        form = FORMS[REDUCTIONS[name][1]]
        combined = form.text("triton", working_type(fold)).format(old, text)
        return [f"{old} = {combined}"]
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
        result = TRITON.convert(across(fold, text), working_type(fold),
                                fold.dtype)
        return [f"{name} = {result}"]
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
