"""Reductions in C++: what accumulates, how it starts, how it goes on.

A reduction repeats an operation of the table. It has an accumulator for
the vector loop (its names begin with `a`), and where many elements are
reduced a total of these (`w`): a double for floats, so that a long sum is
exact enough. Threads that share a row have a total each (`p`). Lanes, in
brackets behind the names, are rows.
"""

from __future__ import annotations

import torch

from ..core.loops import REDUCTIONS, neutral
from .target import CPP
from .operations import BETTER, FORMS, held
from .stages import Local

#: The operators that let OpenMP's vector loop work apart.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}
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
    return kind(fold) in BETTER


def flagged(fold: Local, lane: str) -> bool:
    """Whether NaNs are noted apart, so that vectors can take the max."""
    return (not lane and kind(fold) in ("max", "min")
            and accumulated(fold).is_floating_point)


def variables(fold: Local, level: str,
              lane: str) -> list[tuple[str, str, str]]:
    """(type, name, start) of the accumulator's variables."""
    dtype, name = accumulated(fold), kind(fold)
    start = CPP.literal(neutral(name.removeprefix("arg"), dtype), dtype)
    wide = level != "a" and name == "sum" and dtype == torch.float32
    found = [("double" if wide else CPP.types[dtype],
              f"{level}{fold.number}", start)]
    if places(fold):
        found.append(("int64", f"{level}i{fold.number}", "~least"))
    if level == "a" and flagged(fold, lane):
        found.append(("int", f"nan{fold.number}", "0"))
    return found


def clauses(folds: tuple[Local, ...]) -> str:
    """The clauses for a vector loop over elements."""
    found: dict[str, list[str]] = {}
    for fold in folds:
        found.setdefault(CLAUSES[kind(fold)], []).append(f"a{fold.number}")
        if flagged(fold, ""):
            found.setdefault("|", []).append(f"nan{fold.number}")
    return "".join(f" reduction({sign}:{', '.join(names)})"
                   for sign, names in found.items())


def add(fold: Local, value: str, position: str, lane: str) -> list[str]:
    """Lines that add an element's value to the accumulator."""
    value = CPP.convert(value, fold.operands[0].dtype, accumulated(fold))
    if not flagged(fold, lane):
        return join(fold, "a", lane, value, position)
    number, sign = fold.number, ">" if kind(fold) == "max" else "<"
    return [f"a{number} = {value} {sign} a{number} ? {value} : a{number};",
            f"nan{number} |= {value} != {value};"]


def join(fold: Local, level: str, lane: str, value: str,
         position: str = "") -> list[str]:
    """Lines that join a value, or another accumulator's, to this one."""
    number, type = fold.number, CPP.types[accumulated(fold)]
    into = f"{level}{number}{lane}"
    if not places(fold):
        form = FORMS[REDUCTIONS[kind(fold)][1]]
        return [f"{into} = {form.cpp.format(into, value, type=type)};"]
    at, better = f"{level}i{number}{lane}", f"better{number}"
    return [f"const bool {better} = {BETTER[kind(fold)]}<{type}>({value}, "
            f"{position}, {into}, {at});",
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
    if variables(fold, level, lane)[0][0] != CPP.types[accumulated(fold)]:
        text = f"(float){text}"
    return CPP.convert(text, accumulated(fold), fold.dtype)
