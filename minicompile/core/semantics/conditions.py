"""Conditions on positions that always hold, or never.

In: a node of an expression whose parts have been decided. Out: what it
always equals, if its positions lie where a comparison is no question. A
loop that is cut into pieces loses the masks of the whole like that.
Inductor asks sympy: torch/_inductor/sizevars.py.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..index import not_negative
from ..loops import Const, Expression, Load, Op, Position

#: Comparisons of a position, and whether they hold from the number on.
COMPARED = {"lt": False, "ge": True}


def decided(node: Expression) -> Expression:
    """The node, or the constant or operand that it always equals."""
    match node:
        case Op(name, (Position(place), Position(at))) if name in COMPARED:
            if not_negative(place - at):
                return Const(COMPARED[name], torch.bool)
            if not_negative(at - 1 - place):
                return Const(not COMPARED[name], torch.bool)
        case Op("logical_and", operands):
            left = [o for o in operands if o != Const(True, torch.bool)]
            if Const(False, torch.bool) in left:
                return Const(False, torch.bool)
            if len(left) < 2:
                return left[0] if left else Const(True, torch.bool)
        case Op("where", (Const(test), *sides), dtype):
            side = sides[not test]
            return side if side.dtype == dtype else Op(
                "cast", (side,), dtype)
        case Load(mask=Const(test)):
            return replace(node, mask=None) if test else Const(
                node.other, node.dtype)
    return node
