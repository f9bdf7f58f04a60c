"""Loops split where the parts of a concatenation meet.

An element of a concatenation is a choice among all its parts, made at
each point. Between two seams the choice is known: there a kernel is a
smaller one, without it; of very many parts a few share one. If a stack is
reduced along its new dimension, each part has one element, and the
reduction becomes as many operations.
Inductor stores each part by itself: torch/_inductor/ir.py:ConcatKernel.
"""

from dataclasses import replace
from functools import reduce

import torch

from ...core.index import Variable, coefficient, in_range, index
from ...core.loops import (REDUCTIONS, SIMPLIFY, Const, Kernel, Loop, Op,
                           Position, rewrite, walk)
from ..cpp import BODIES
from .cpu import OrderedWriter, adds, interleaved, with_parts

#: Into about how many pieces a kernel is split, at most.
MOST_PIECES = 64


def split_at_seams(kernel: Kernel, most: int = MOST_PIECES,
                   among: tuple[Variable, ...] | None = None
                   ) -> tuple[Kernel, ...]:
    """Kernels that do the same together, with no seam inside.

    Some seams stay. Along a variable that is read side by side, vectors
    have masks; the steps of an interleaved one are written out.
    """
    few = interleaved(kernel)
    variable, cuts = seams(kernel, tuple(v for v in (
        kernel.ranges + kernel.reduced if among is None else among)
        if v is not few))
    cuts = cuts[::1 + len(cuts) // (most + 1)]
    if len(cuts) < 2:
        return (kernel,)
    pieces = tuple(restricted(kernel, variable, start, stop)
                   for start, stop in zip(cuts, [
                       *cuts[1:], int(variable.size)]))
    if variable in kernel.ranges:
        return tuple(part for piece in pieces for part in split_at_seams(
            piece, most // len(pieces), not_beside(piece)))
    alone = kernel.reduced == (variable,) and len(pieces) == variable.size
    return (unrolled(kernel, pieces),) if alone and not any(
        variable in loop.ranges for loop in kernel.loops) else (kernel,)


def not_beside(kernel: Kernel) -> tuple[Variable, ...]:
    """The variables whose neighbours are not read side by side."""
    return tuple(v for v in kernel.ranges if any(
        coefficient(load.index, v) not in (0, 1)
        for loop in kernel.loops for load in loop.loads))


def seams(kernel: Kernel, among: tuple[Variable, ...]
          ) -> tuple[Variable | None, list[int]]:
    """The variable with the most seams, and where its pieces start."""
    found = {v: {0} for v in among}
    for node in walk(*(loop.value for loop in kernel.loops)):
        match node:
            case Op("lt" | "ge", (Position(place), Position(at))):
                for variable, cuts in found.items():
                    step = coefficient(place, variable) or index(0)
                    rest = place - index(variable) * step
                    cut = ((at + step - 1) // step).constant or 0
                    if (0 < cut < (variable.size.constant or 0)
                            and in_range(rest, step)
                            and (rest == 0 or at % step == 0)):
                        cuts.add(cut)
    best = max(found, key=lambda v: len(found[v]), default=None)
    return best, sorted(found.get(best, ()))


def restricted(kernel: Kernel, variable: Variable, start: int,
               stop: int) -> Kernel:
    """The kernel for the values of a variable from `start` to `stop`."""
    part = Variable(variable.name, index(stop - start))
    parts = (part,) if stop - start > 1 else ()
    made = with_parts(kernel, variable, parts,
                      sum(map(index, parts), index(start)))
    return replace(made, loops=tuple(
        replace(loop, value=rewrite(loop.value, SIMPLIFY[-1]))
        for loop in made.loops))


def unrolled(kernel: Kernel, pieces: tuple[Kernel, ...]) -> Kernel:
    """The kernel, its reductions as operations on the pieces' values."""
    def whole(loop: Loop, *parts: Loop) -> Loop:
        if not loop.reduced:
            return loop
        dtype, (start, name) = loop.value.dtype, REDUCTIONS[loop.reduction]
        sums = dtype.is_floating_point and loop.reduction == "sum"
        work = torch.float64 if sums else dtype
        total = reduce(lambda a, b: Op(name, (a, b), work), [
            *[Const(start, work)] * sums, *(
                Op("cast", (part.value,), work) for part in parts)])
        return replace(loop, reduced=(), reduction=None,
                       value=Op("cast", (total,), dtype))
    return replace(kernel, reduced=(), loops=tuple(map(
        whole, kernel.loops, *(piece.loops for piece in pieces))))


def in_pieces(kernel: Kernel) -> list[str]:
    """The lines inside the function, each piece in a block. If there is
    enough work, threads are woken once for all pieces."""
    writers = [*map(OrderedWriter, split_at_seams(kernel))]
    if len(writers) == 1:
        return writers[0].body()
    work = (kernel.rows * kernel.row_length).constant or 0
    together = work > writers[0].worth and not adds(kernel)
    lines = []
    for writer in writers:
        writer.together = together
        lines += ["    {", *writer.body(), "    }"]
    return ["#pragma omp parallel", "    {", *lines, "    }"] if (
        together) else lines


BODIES.append(in_pieces)
