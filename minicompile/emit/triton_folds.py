"""Reductions of a block along its last axis, in Triton.

A table has how two blocks combine, and how one is reduced. argmax and
argmin carry a second block, the places: the first place of the best value
wins, and NaN is better than every number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core.index import Index
from ..core.loops import neutral as neutral_number
from .operations import held
from .stages import Local
from .triton_ops import TYPES, convert, literal


@dataclass(frozen=True)
class Rule:
    """A reduction: two blocks become one, a block becomes a column.

    `better` says, of argmax and argmin, which of two values wins.
    """

    combine: str
    across: str
    better: str = ""


def _reduced(function: str, better: str = "") -> Rule:
    """The Rule of a function of two numbers."""
    return Rule(f"device.{function}({{0}}, {{1}})",
                f"tl.reduce({{0}}, 1, device.{function}, keep_dims=True)",
                better)


RULES: dict[str, Rule] = {
    "sum": Rule("{0} + {1}", "tl.sum({0}, 1, keep_dims=True)"),
    "prod": _reduced("multiply"),
    "max": _reduced("maximum"),
    "min": _reduced("minimum"),
    "any": Rule("{0} | {1}", "tl.max({0}, 1, keep_dims=True)"),
    "all": Rule("{0} & {1}", "tl.min({0}, 1, keep_dims=True)"),
    "argmax": _reduced("maximum", "device.above"),
    "argmin": _reduced("minimum", "device.below"),
}


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
        text, given = convert(text, given, torch.bool), torch.bool
    return convert(text, given, working_type(fold))


def neutral(fold: Local) -> str:
    """What changes no result, as text."""
    kind, name = working_type(fold), fold.node.reduction
    return literal(neutral_number(name.removeprefix("arg"), kind), kind)


def begin(fold: Local) -> list[str]:
    """Lines before the first block of a row."""
    lines = [f"{block(fold)} = tl.full([XBLOCK, RBLOCK], {neutral(fold)}, "
             f"{TYPES[working_type(fold)]})"]
    if RULES[fold.node.reduction].better:
        lines.append(f"{places(fold)} = "
                     "tl.broadcast_to(lane, [XBLOCK, RBLOCK])")
    return lines


def step(fold: Local, text: str) -> list[str]:
    """Lines that take one more block of a row in."""
    rule, old = RULES[fold.node.reduction], block(fold)
    if not rule.better:
        return [f"{old} = {rule.combine.format(old, text)}"]
    return [f"new = {text}", f"better = {rule.better}(new, {old})",
            f"{old} = tl.where(better, new, {old})",
            f"{places(fold)} = tl.where(better, r, {places(fold)})"]


def finish(fold: Local, text: str, looped: bool,
           size: Index) -> list[str]:
    """Lines that reduce a last block to the result, named `block`.

    No place in a row is as large as the row's `size`.
    """
    rule, name = RULES[fold.node.reduction], block(fold)
    if not rule.better:
        across = rule.across.format(text)
        result = convert(across, working_type(fold), fold.dtype)
        return [f"{name} = {result}"]
    across = rule.across.format(name)
    place = places(fold) if looped else "r"
    return [*([] if looped else [f"{name} = {text}"]),
            f"top = {across}",
            f"best = ({name} == top) | ({name} != {name})",
            f"{name} = tl.min(tl.where(best, {place}, {size}), 1, "
            "keep_dims=True).to(tl.int64)"]


def block(fold: Local) -> str:
    """The name of the block that is reduced, then of the result."""
    return f"{fold.node.reduction}{fold.number}"


def places(fold: Local) -> str:
    """The name of the block of places."""
    return f"place{fold.number}"
