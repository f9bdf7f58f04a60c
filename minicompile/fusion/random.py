"""The lowering rule of random numbers, which are arithmetic as well.

In: a seed in memory, the number of a draw. Out: a Value whose element is
computed from the seed and from where the element stands, wherever and
however often it is asked for. Inductor's is `inductor_random` in
torch/_inductor/inductor_prims.py.
"""

from __future__ import annotations

import torch

from ..core.index import Symbol, index
from ..core.layout import flatten, row_major
from ..core.loops import Expression, Op, Position
from .site import Site
from .values import Point, Value


def uniform(site: Site, seed: Value, draw: int, _) -> Value:
    """uniform(seed, draw, size): the offset counts the draws.

    The kernel is given the count: it serves all layers of a model.
    """
    def body(point: Point) -> Expression:
        key, offset = (seed.at((index(k),)) for k in (0, 1))
        if draw:
            number = Symbol(f"draw{draw}", draw, draw, draw, str(draw))
            offset = Op("add", (offset, Position(index(number),
                                                 torch.int64)), torch.int64)
        place = Position(flatten(point, row_major(site.shape)), torch.int64)
        return Op("uniform", (key, offset, place), torch.float32)
    return site.value(body)


RANDOM = {"minicompile.uniform": uniform}
