"""Rules: random numbers, which are arithmetic as well.

A draw is computed from the seed in memory, the number of the draw and the
place of an element, wherever and however often it is asked for. The
kernel is given the number of the draw, so that one kernel serves all
layers of a model. Inductor's is `inductor_random` in
torch/_inductor/inductor_prims.py.
"""

from __future__ import annotations

import torch

from ...core.index import Symbol, index
from ...core.layout import flatten, row_major
from ...core.loops import Expression, Op, Position
from ..lowerings import RULES, LoweringContext
from ..values import Point, Value


def drawn(context: LoweringContext, seed: Value, draw: int, _) -> Value:
    """uniform(seed, draw, size): the offset counts the draws."""
    def body(point: Point) -> Expression:
        key, offset = (seed.at((index(k),)) for k in (0, 1))
        if draw:
            number = Symbol(f"draw{draw}", draw, draw, draw, str(draw))
            offset = Op("add", (offset, Position(index(number),
                                                 torch.int64)), torch.int64)
        place = Position(flatten(point, row_major(context.shape)),
                         torch.int64)
        return Op("uniform", (key, offset, place), torch.float32)
    return context.value(body)


RULES |= {"minicompile.uniform": drawn}
