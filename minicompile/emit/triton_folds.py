"""Reductions of a block along its last axis, in Triton.

A table has the neutral element, how two blocks combine, and how one is
reduced. argmax and argmin carry a second block, the places: the first
place of the best value wins, and NaN is better than every number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core.index import Index
from .operations import held
from .stages import Local
from .triton_ops import TYPES, convert, literal


@dataclass(frozen=True)
class Rule:
    """A reduction: neutral element, two blocks into one, one block.

    `lowest` and `highest` as neutral elements are the type's own. Where
    integers are reduced in another way, that follows.
    """

    neutral: str
    combine: str
    across: str
    combine_integers: str = ""
    across_integers: str = ""
    better: str = ""  # of argmax and argmin


_MAX = ("lowest", "device.maximum({0}, {1})",
        "tl.reduce({0}, 1, device.maximum, keep_dims=True)",
        "tl.maximum({0}, {1})", "tl.max({0}, 1, keep_dims=True)")
_MIN = ("highest", "device.minimum({0}, {1})",
        "tl.reduce({0}, 1, device.minimum, keep_dims=True)",
        "tl.minimum({0}, {1})", "tl.min({0}, 1, keep_dims=True)")

RULES: dict[str, Rule] = {
    "sum": Rule("0", "{0} + {1}", "tl.sum({0}, 1, keep_dims=True)"),
    "prod": Rule("1", "{0} * {1}",
                 "tl.reduce({0}, 1, device.multiply, keep_dims=True)"),
    "max": Rule(*_MAX),
    "min": Rule(*_MIN),
    "any": Rule("0", "{0} | {1}", "tl.max({0}, 1, keep_dims=True)"),
    "all": Rule("1", "{0} & {1}", "tl.min({0}, 1, keep_dims=True)"),
    "argmax": Rule(*_MAX, better="device.above"),
    "argmin": Rule(*_MIN, better="device.below"),
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
    kind, name = working_type(fold), RULES[fold.node.reduction].neutral
    if name == "0" or name == "1":
        return literal(int(name), kind)
    sign = -1 if name == "lowest" else 1
    if kind.is_floating_point:
        return literal(sign * float("inf"), kind)
    info = torch.iinfo(kind)
    return literal(info.min if sign < 0 else info.max, kind)


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
        return [f"{old} = {_of(rule, fold, 'combine').format(old, text)}"]
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
        across = _of(rule, fold, "across").format(text)
        result = convert(across, working_type(fold), fold.dtype)
        return [f"{name} = {result}"]
    across = _of(rule, fold, "across").format(name)
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


def _of(rule: Rule, fold: Local, what: str) -> str:
    """The rule's text for floats, or for integers if it has its own."""
    if working_type(fold).is_floating_point:
        return getattr(rule, what)
    return getattr(rule, f"{what}_integers") or getattr(rule, what)
