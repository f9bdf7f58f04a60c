"""Loops split where the parts of a concatenation meet.

An element of a concatenation is a choice among all its parts, made at
each point. Between two seams the choice is known: there a kernel is a
smaller one, without it. If a stack is reduced along its new dimension, each
part has one element, and the reduction becomes as many operations.
Inductor stores each part by itself: torch/_inductor/ir.py:ConcatKernel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import torch

from ...core.index import Variable, index, least_of, most_of
from ...core.loops import (REDUCTIONS, Const, Expression, Kernel, Load,
                           Loop, Op, Position, rewrite, walk)
from ..cpp import PIECES

#: Into how many pieces a kernel is split, at most.
MOST = 64
#: Comparisons of a position, and whether they hold from the number on.
COMPARED = {"lt": False, "ge": True}


def split_at_seams(kernel: Kernel) -> tuple[Kernel, ...]:
    """Kernels that do the same together, with no seam inside."""
    variable, cuts = seams(kernel)
    if not 1 < len(cuts) <= MOST:
        return (kernel,)
    bounds = list(zip(cuts, [*cuts[1:], int(variable.size)]))
    if variable in kernel.ranges:
        return tuple(restricted(kernel, variable, start, stop)
                     for start, stop in bounds)
    alone = kernel.reduced == (variable,) and all(
        loop.reduction in ("sum", "prod", "max", "min", "any", "all")
        for loop in kernel.loops if variable in loop.ranges + loop.reduced)
    return (replace(kernel, reduced=(), loops=tuple(
        unrolled(loop, variable) if loop.reduced else loop
        for loop in kernel.loops)),) if alone and all(
            stop - start == 1 for start, stop in bounds) else (kernel,)


def seams(kernel: Kernel) -> tuple[Variable | None, list[int]]:
    """The variable with the most seams, and where its pieces start."""
    found: dict[Variable, set[int]] = {}
    tests = (test for loop in kernel.loops for node in walk(loop.value)
             if isinstance(node, Op) and node.name == "where"
             for test in walk(node.operands[0]))
    for test in tests:
        match test:
            case Op(name, (Position(place), number)) if name in COMPARED:
                at = value_of(number)
            case _:
                continue
        for variable in kernel.ranges + kernel.reduced:
            size = variable.size.constant
            if at is None or size is None:
                continue
            rest = (index(at) - place + index(variable)).constant
            if rest is not None:
                found.setdefault(variable, {0}).update(
                    {rest} if 0 < rest < size else ())
    best = max(found, key=lambda v: len(found[v]), default=None)
    return best, sorted(found.get(best, ()))


def value_of(node: Expression) -> int | None:
    """The whole number that a node is, if it is one."""
    if isinstance(node, Const):
        return int(node.value) if node.value == int(node.value) else None
    return node.index.constant if isinstance(node, Position) else None


def restricted(kernel: Kernel, variable: Variable, start: int,
               stop: int) -> Kernel:
    """The kernel for the values of a variable from `start` to `stop`."""
    part = Variable(variable.name, index(stop - start))
    parts = (part,) if stop - start > 1 else ()
    change = {variable: sum(map(index, parts), index(start))}

    def over(variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        return tuple(new for v in variables
                     for new in (parts if v == variable else (v,)))
    loops = (loop.over(change, over(loop.ranges), loop.reduced)
             for loop in kernel.loops)
    return replace(kernel, ranges=over(kernel.ranges), loops=tuple(
        replace(loop, value=rewrite(loop.value, decided))
        for loop in loops))


def unrolled(loop: Loop, variable: Variable) -> Loop:
    """The loop with a reduction of known length as operations."""
    dtype = loop.value.dtype
    work = torch.float64 if dtype.is_floating_point and (
        loop.reduction == "sum") else dtype
    values = [Op("cast", (rewrite(loop.over(
        {variable: index(at)}, loop.ranges, ()).value, decided),), work)
        for at in range(int(variable.size))]
    name = REDUCTIONS[loop.reduction][1]
    total = reduce(lambda a, b: Op(name, (a, b), work), values)
    return replace(loop, reduced=(), reduction=None,
                   value=Op("cast", (total,), dtype))


def decided(node: Expression) -> Expression:
    """The node, or the constant or operand that it always equals."""
    match node:
        case Op(name, (Position(place), other)) if name in COMPARED:
            at = value_of(other)
            if at is not None and most_of(place) < at:
                return Const(not COMPARED[name], torch.bool)
            if at is not None and least_of(place) >= at:
                return Const(COMPARED[name], torch.bool)
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


PIECES.append(split_at_seams)
