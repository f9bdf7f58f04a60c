"""Reductions in C++: what accumulates, how it starts, how it goes on.

A reduction repeats an operation of the table. It has an accumulator for
the vector loop (its names begin with `a`), and where many elements are
reduced a total of these (`w`): a double for floats, so that a long sum is
exact enough. Threads that share a row have a total each (`p`). Lanes, in
brackets behind the names, are rows.
"""

from __future__ import annotations

import torch

from .operations import BETTER
from .stages import Local
from .target import CPP

#: The operators that let OpenMP's vector loop work apart.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}


def places(fold: Local) -> bool:
    """Whether the fold looks for a position."""
    return fold.node.reduction in BETTER


def flagged(fold: Local, lane: str) -> bool:
    """Whether NaNs are noted apart, so that vectors can take the max."""
    return (not lane and fold.node.reduction in ("max", "min")
            and fold.dtype.is_floating_point)


def widened(fold: Local, level: str) -> bool:
    """Whether the total of sums of floats is a double."""
    return (level != "a" and fold.node.reduction == "sum"
            and CPP.accumulator(fold) == torch.float32)


def variables(fold: Local, level: str,
              lane: str) -> list[tuple[str, str, str]]:
    """(type, name, start) of the accumulator's variables."""
    dtype = CPP.accumulator(fold)
    if widened(fold, level):
        dtype = torch.float64
    found = [(CPP.types[dtype], f"{level}{fold.number}", CPP.neutral(fold))]
    if places(fold):
        found.append(("int64", f"{level}i{fold.number}", "~least"))
    if level == "a" and flagged(fold, lane):
        found.append(("int", f"nan{fold.number}", "0"))
    return found


def clauses(folds: tuple[Local, ...]) -> str:
    """The clauses for a vector loop over elements."""
    found: dict[str, list[str]] = {}
    for fold in folds:
        sign = CLAUSES[fold.node.reduction]
        found.setdefault(sign, []).append(f"a{fold.number}")
        if flagged(fold, ""):
            found.setdefault("|", []).append(f"nan{fold.number}")
    return "".join(f" reduction({sign}:{', '.join(names)})"
                   for sign, names in found.items())


def add(fold: Local, value: str, position: str, lane: str) -> list[str]:
    """Lines that add an element's value to the accumulator."""
    if not flagged(fold, lane):
        return join(fold, "a", lane, value, position)
    number, sign = fold.number, "<>"[fold.node.reduction == "max"]
    return [f"a{number} = {value} {sign} a{number} ? {value} : a{number};",
            f"nan{number} |= {value} != {value};"]


def join(fold: Local, level: str, lane: str, value: str,
         position: str = "") -> list[str]:
    """Lines that join a value, or another accumulator's, to this one."""
    number, type = fold.number, CPP.types[CPP.accumulator(fold)]
    into = f"{level}{number}{lane}"
    if not places(fold):
        return [f"{into} = {CPP.combined(fold, into, value)};"]
    at, better = f"{level}i{number}{lane}", f"better{number}"
    beats = BETTER[fold.node.reduction]
    return [f"const bool {better} = {beats}<{type}>({value}, {position}, "
            f"{into}, {at});",
            f"{into} = {better} ? {value} : {into};",
            f"{at} = {better} ? {position} : {at};"]


def total(fold: Local, level: str, lane: str) -> str:
    """The accumulator's value; NaN if one was noted."""
    name = f"{level}{fold.number}{lane}"
    if level == "a" and flagged(fold, lane):
        return f"nan{fold.number} ? not_a_number : {name}"
    return name


def result(fold: Local, level: str, lane: str) -> str:
    """The finished reduction, in the type that holds it."""
    if places(fold):
        return f"{level}i{fold.number}{lane}"
    text = total(fold, level, lane)
    if widened(fold, level):
        text = f"(float){text}"
    return CPP.convert(text, CPP.accumulator(fold), fold.dtype)
