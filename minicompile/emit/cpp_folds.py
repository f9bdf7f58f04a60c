"""Reductions in C++: what accumulates, how it starts, how it goes on.

A fold has an accumulator for the vector loop (its names begin with `a`),
and where many elements are reduced a total of these (`w`): a double for
floats, so that a long sum is exact enough. Threads that share a row have
a total each (`p`). Lanes, in brackets behind the names, are rows.
"""

from __future__ import annotations

import torch

from .cpp_ops import TYPES, convert
from .operations import held
from .stages import Local

#: By kind: the start for floats and for others, the operator that lets
#: the vector loop work apart, and how a value is added.
KINDS = {
    "sum": ("0", "0", "+", "{0} += {1};"),
    "prod": ("1", "1", "*", "{0} *= {1};"),
    "any": ("false", "false", "|", "{0} |= {1};"),
    "all": ("true", "true", "&", "{0} &= {1};"),
    "max": ("-infinity", "least<{type}>()", "max",
            "{0} = maximum<{type}>({0}, {1});"),
    "min": ("infinity", "most<{type}>()", "min",
            "{0} = minimum<{type}>({0}, {1});"),
    "argmax": ("-infinity", "least<{type}>()", "", "above"),
    "argmin": ("infinity", "most<{type}>()", "", "below"),
}
_OF_BOOLS = {"sum": "any", "max": "any", "prod": "all", "min": "all"}


def kind(fold: Local) -> str:
    """The reduction's name; of bools, one that keeps them bools."""
    name = fold.node.reduction
    of_bools = fold.operands[0].dtype == torch.bool
    return _OF_BOOLS.get(name, name) if of_bools else name


def accumulated(fold: Local) -> torch.dtype:
    """The dtype that the accumulator of the vector loop has."""
    if kind(fold) in ("any", "all"):
        return torch.bool
    return held(fold.operands[0].dtype)


def places(fold: Local) -> bool:
    """Whether the fold looks for a position."""
    return kind(fold) in ("argmax", "argmin")


def flagged(fold: Local, lanes: bool) -> bool:
    """Whether NaNs are noted apart, so that vectors can take the max."""
    return (not lanes and kind(fold) in ("max", "min")
            and accumulated(fold).is_floating_point)


def variables(fold: Local, level: str,
              lanes: bool) -> list[tuple[str, str, str]]:
    """(type, name, start) of the accumulator's variables."""
    dtype = accumulated(fold)
    floats, others, *_ = KINDS[kind(fold)]
    start = floats if dtype.is_floating_point else others.format(
        type=TYPES[dtype])
    wide = level != "a" and kind(fold) == "sum" and dtype == torch.float32
    found = [("double" if wide else TYPES[dtype],
              f"{level}{fold.number}", start)]
    if places(fold):
        found.append(("int64", f"{level}i{fold.number}", "most<int64>()"))
    if level == "a" and flagged(fold, lanes):
        found.append(("int", f"nan{fold.number}", "0"))
    return found


def clauses(folds: tuple[Local, ...]) -> str:
    """The clauses for a vector loop over elements; None: no vectors."""
    found: dict[str, list[str]] = {}
    for fold in folds:
        found.setdefault(KINDS[kind(fold)][2], []).append(
            f"a{fold.number}")
        if flagged(fold, False):
            found.setdefault("|", []).append(f"nan{fold.number}")
    return "".join(f" reduction({sign}:{', '.join(names)})"
                   for sign, names in found.items())


def add(fold: Local, value: str, position: str, lane: str) -> list[str]:
    """Lines that add an element's value to the accumulator."""
    value = convert(value, fold.operands[0].dtype, accumulated(fold))
    if not flagged(fold, bool(lane)):
        return join(fold, "a", lane, value, position)
    number, sign = fold.number, ">" if kind(fold) == "max" else "<"
    return [f"a{number} = {value} {sign} a{number} ? {value} : a{number};",
            f"nan{number} |= {value} != {value};"]


def join(fold: Local, level: str, lane: str, value: str,
         position: str = "") -> list[str]:
    """Lines that join a value, or another accumulator's, to this one."""
    number, type = fold.number, TYPES[accumulated(fold)]
    into = f"{level}{number}{lane}"
    rule = KINDS[kind(fold)][3]
    if not places(fold):
        return [rule.format(into, value, type=type)]
    at, better = f"{level}i{number}{lane}", f"better{number}"
    return [f"const bool {better} = {rule}<{type}>({value}, {position}, "
            f"{into}, {at});",
            f"{into} = {better} ? {value} : {into};",
            f"{at} = {better} ? {position} : {at};"]


def total(fold: Local, level: str, lane: str, lanes: bool) -> str:
    """The accumulator's value; NaN if one was noted."""
    name = f"{level}{fold.number}{lane}"
    if level == "a" and flagged(fold, lanes):
        return f"nan{fold.number} ? not_a_number : {name}"
    return name


def result(fold: Local, level: str, lane: str, lanes: bool) -> str:
    """The finished reduction, in the type that holds it."""
    if places(fold):
        return f"{level}i{fold.number}{lane}"
    text = total(fold, level, lane, lanes)
    if variables(fold, level, lanes)[0][0] != TYPES[accumulated(fold)]:
        text = f"(float){text}"
    return convert(text, accumulated(fold), fold.dtype)
