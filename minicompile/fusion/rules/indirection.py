"""Rules: a tensor says at which place another one is read.

`gather`, `embedding`, `index_select` and `x[places]` name places by whole
numbers. A place is part of an index, as a loop variable is: a number that
the kernel computes, and that is less than the dimension's size. So an
operand that is computed is computed there, and nowhere else: the cross
entropy of a row reads one logit more, and the row is never written.

A kernel cannot raise. An operator checks the places and raises as eager
does; until it has, a wrong place stands for the nearest right one, so that
no kernel reads outside of a tensor. Inductor's are `indirect_indexing` and
`check_bounds` of torch/_inductor/sizevars.py and ops_handler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils._pytree import tree_leaves

from ...core.errors import where_of
from ...core.index import Index, in_range, index
from ...core.loops import Const, Expression, Load, Op, Picked, Position
from ...core.schedule import Extern
from ..lower import strides_of
from ..lowerings import RULES, LoweringContext
from ..values import Point, Value, broadcast, elements
from .predication import both, with_axis


#: So many elements are read or passed over for each place, at least.
FEW = 4
#: What a GPU moves while the check of places is launched, in elements.
CHECK = {"cuda": 1 << 15}


def test(name: str, a: Expression, b: Expression) -> Expression:
    """A comparison of two whole numbers."""
    return Op(name, (a, b), torch.bool)


def named(context: LoweringContext, places: Value, size: Index,
          name: str = "", wraps: bool = False) -> Callable[[Point], Index]:
    """What `places` says at a point, as an Index below `size`.

    If it `wraps`, -1 is the last place. Raises, as eager does, if a place
    is outside.
    """
    found = places.element
    if isinstance(found, Position) and in_range(found.index, size):
        return lambda point: places.at(point).index
    places = places.to(torch.int64)
    least, most, first, last = (
        Position(index(end), torch.int64) if index(end).constant is None
        else Const(int(end), torch.int64)
        for end in (-size if wraps else 0, size, 0, size - 1))
    right = context.lowering.view(context.node, context.reduce(
        "all", places.map(lambda place: both(
            test("ge", place, least), test("lt", place, most)),
            torch.bool)), ())
    context.lowering.steps.append(Extern(
        torch.ops.aten._assert_async.msg, (
            right, f"index out of bounds for a dimension of size {size}"),
        {}, (None,), where_of(context.node)))

    def place(point: Point) -> Index:
        value = places.at(point)
        if wraps:
            value = Op("where", (test("lt", value, first), Op("add", (
                value, most), torch.int64), value), torch.int64)
        for limit, end in (("maximum", first), ("minimum", last)):
            value = Op(limit, (value, end), torch.int64)
        return index(Picked(f"{context.node.name}{name}", size, value))
    return place


def reading(along: Callable[..., Callable[[Point], Point] | None]
            ) -> Callable:
    """The rule of an operator that reads its first operand at the places
    that `along` finds for the others.

    What is computed is stored here, where the rest of its row is computed.
    The operator does what a loop does no better: it moves what lies in
    memory to memory, moves little, or picks most elements one by one.
    """
    def rule(context: LoweringContext, a: Value, *rest, **_
             ) -> Value | None:
        node, lowering = context.node, context.lowering
        computed = not isinstance(a.element, Load)
        picks = sum(elements(each.shape) for each in tree_leaves(rest)
                    if isinstance(each, Value))
        made, check = elements(context.shape), CHECK.get(a.device.type, 0)
        few = FEW * picks <= max(made, elements(a.shape))
        if not (a.shape and few and (computed or made >= check
                                     and node not in lowering.uses.stored)):
            return None
        where = along(context, a, *rest)
        value = where and context.value(lambda point: a.at(where(point)))
        return lowering.store(node, value, strides_of(
            node)) if computed and where else value
    return rule


def gather(context: LoweringContext, a: Value, axis: int, places: Value,
           *_) -> Callable[[Point], Point]:
    """Along one dimension, the element that `places` names."""
    axis %= len(a.shape)
    place = named(context, places, a.shape[axis])
    return lambda point: with_axis(point, axis, place(point))


def index_select(context: LoweringContext, a: Value, axis: int,
                 places: Value) -> Callable[[Point], Point]:
    """Along one dimension, the slices that `places` names."""
    axis %= len(a.shape)
    place = named(context, places, a.shape[axis])
    return lambda point: with_axis(point, axis, place(
        point[axis:axis + len(places.shape)]))


def embedding(context: LoweringContext, a: Value, places: Value, *_
              ) -> Callable[[Point], Point]:
    """The row that each place names."""
    place = named(context, places, a.shape[0])
    return lambda point: (place(point[:-1]), point[-1])


def indexed(context: LoweringContext, a: Value,
            places: Sequence[Value | None]
            ) -> Callable[[Point], Point] | None:
    """`a[places]`: tensors name places together, in dimensions that take
    the place of theirs; at the front, if theirs are not neighbours."""
    given = {axis: each for axis, each in enumerate(places)
             if each is not None}
    if any(each.dtype in (torch.bool, torch.uint8)
           for each in given.values()):
        return None
    rank = max(len(each.shape) for each in given.values())
    start = min(given) if max(given) - min(given) < len(given) else 0
    shape = context.shape[start:start + rank]
    found = {axis: named(context, broadcast(each, shape), a.shape[axis],
                         f"_{axis}", wraps=True)
             for axis, each in given.items()}

    def where(point: Point) -> Point:
        rest = iter(point[:start] + point[start + rank:])
        return tuple(
            found[axis](point[start:start + rank]) if axis in found
            else next(rest) for axis in range(len(a.shape)))
    return where


RULES |= {name: reading(along) for name, along in (
    ("gather", gather), ("index_select", index_select),
    ("embedding", embedding), ("index.Tensor", indexed))}
