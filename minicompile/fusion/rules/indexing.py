"""Rules: a point decides what is read: which tensor, or at which place.

`cat` puts tensors one after the other. At a given point exactly one of
them is read, and which one is known only when the loop runs. So the loop
reads all of them under masks: this is predication. If the point is known
to lie in one source, no mask is needed: a slice of a `cat` is its source.
The same question, inside or not, gives padding and `x[1:3] = y`.

`gather`, `embedding`, `index_select` and `x[places]` name places by whole
numbers. A place is part of an index, as a loop variable is: a number that
the kernel computes, and that is less than the dimension's size. So an
operand that is computed is computed there, and nowhere else: the cross
entropy of a row reads one logit more, and the row is never written.

A GPU's kernel stops at a wrong place, as eager's does. Others cannot: an
operator checks the places and raises; until it has, a wrong place stands
for the nearest right one, so that no kernel reads outside of a tensor.

A loop stores to each place once, unless numbers name the places: then two
elements may name the same one. A GPU's memory itself adds, one number after
the other. For `scatter_add` PyTorch's kernel does so, too. For a table's
gradient, and that of `x[places]`, it sorts the places first, and is three
times as slow. A sum in the order in which numbers come is not the same in
each run: where a program asks for that, PyTorch's kernel runs. On a CPU one
thread adds, in the order of the numbers, and by vectors. Ours also computes
the numbers that it adds, so the messages of a graph's edges are never
written. Where a tensor gets one new slice, at one place, as a cache of keys
does for each word, a GPU's kernel puts it there instead of adding it.

Inductor's are `indirect_indexing` and `check_bounds` of
torch/_inductor/ops_handler.py, and the store mode `atomic_add` in
torch/_inductor/lowering.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import torch
from torch.utils._pytree import tree_leaves

from ...core.errors import where_of
from ...core.graph import CHECK, FAILED
from ...core.index import (Atom, Index, Variable, atoms_of, in_range,
                           index, least_of, not_negative, product,
                           substitute)
from ...core.loops import (SIMPLIFY, Const, Expression, Load, Loop, Op,
                           Position, flatten, picked, rewrite, walk)
from ...core.schedule import Extern
from ...core.semantics.ranges import bounds
from ..group import counted
from ..lower import strides_of
from ..lowerings import (RULES, LoweringContext, Point, Value, axes,
                         broadcast, cast, elements, fakes, indices_of,
                         literal, loaded, number, operation, points, sight,
                         view)


@dataclass(frozen=True)
class Picked(Variable):
    """A number from 0 to `size` - 1 that a kernel computes: `value`.

    As part of an index it makes an indirect load.
    """

    name: str = field(compare=False)
    value: Expression

    def moved(self, values: Mapping[Atom, Index]) -> Index:
        """The number picked where the kernel's variables are replaced."""
        return index(replace(self, value=rewrite(self.value, at=values)))


TRUE = Const(True, torch.bool)


def compare(name: str, where: Index, end: Index) -> Expression:
    """Whether `where` is "lt" or "ge" `end`: a constant if that is known.
    The terms of `where` without a variable go to the other side; what is
    left does not fall with its first variable."""
    for rest, holds in ((where - end, "ge"), (end - 1 - where, "lt")):
        if not_negative(rest):
            return Const(name == holds, torch.bool)
    start = substitute(where, {v: index(0) for v in atoms_of(where)
                               if isinstance(v, Variable)})
    where, end = where - start, end - start
    if where.terms and where.terms[0][1] < 0:
        name, where, end = "ge" if name == "lt" else "lt", -where, -end + 1
    return Op(name, (Position(where, torch.int64),
                     Position(end, torch.int64)), torch.bool)


def decided(node: Expression) -> Expression:
    """The node, or the constant or operand that it always equals."""
    match node:
        case Op("lt" | "ge" as name, (Position(place), Position(end))):
            return compare(name, place, end)
        case Op("eq", (Position(one), Position(other))) if one == other:
            return TRUE
        case Op("logical_and", (Const(truth) as known, other) | (
                other, Const(truth) as known)):
            return other if truth else known
        case Op("where", (Const(test), *sides), dtype):
            return cast(sides[not test], dtype)
        case Op("cast", (Const(value),), dtype):
            wide = torch.float64 if isinstance(value, float) else None
            held = torch.tensor(value, dtype=wide).to(dtype)
            return Const(held.item(), dtype)
        case Load(mask=Const(test)):
            return replace(node, mask=None) if test else Const(
                0, node.dtype)
    return node


#: So many elements are read or passed over for each place, at least.
SPARSE = 4
#: The types of the devices whose kernels stop at a wrong place.
STOPS = {"cuda"}
#: The numbers to which the memory of a device adds.
ADDABLE = {"cuda": (torch.float32,), "cpu": (torch.float32, torch.float64)}


def with_axis(point: Point, axis: int, where: Index) -> Point:
    """The point, or the shape, with another Index at one place."""
    return (*point[:axis], where, *point[axis:][1:])


#: A comparison of two numbers, or a condition of two conditions.
test = partial(operation, dtype=torch.bool)
#: Whether both conditions hold.
both = partial(test, "logical_and")


def inside_or(a: Value, at: Point, other: Expression | None,
              also: Expression = TRUE) -> Expression:
    """`a` at a point, or `other` where the point lies outside of it, or
    `also` does not hold; without `other`, no such point occurs."""
    inside = reduce(both, (
        compare(name, i, end) for i, size in zip(at, a.shape, strict=True)
        for name, end in (("ge", index(0)), ("lt", size))), also)
    if isinstance(inside, Const):
        return a.at(at) if inside.value else other
    def masked(part: Expression) -> Expression:
        match part:
            case Load(mask=mask):
                return replace(part, mask=both(mask or TRUE, inside))
            case Op("checked", (place, end), dtype):
                return operation("checked", operation(
                    "where", inside, place, Const(0, dtype)), end)
        return part
    part = rewrite(a.at(at), masked)
    return part if other is None else operation(
        "where", inside, part, other)


def cat(context: LoweringContext, sources: Sequence[Value],
        axis: int = 0) -> Value:
    """Sources one after the other along a dimension."""
    axis, point, found = axis % len(context.shape), context.point, None
    start = context.shape[axis]
    for source in reversed(sources):
        start -= source.shape[axis]
        found = inside_or(source.to(context.dtype), with_axis(
            point, axis, point[axis] - start), found)
    return context.value(found)


def pad(context: LoweringContext, a: Value, widths: Sequence[int],
        fill: bool | int | float = 0) -> Value:
    """`a` with `fill` around it; negative widths cut it off."""
    inner = len(a.shape) - len(widths) // 2
    left = [0] * inner + [*widths[-2::-2]]
    return context.value(inside_or(
        a, tuple(i - n for i, n in zip(context.point, left)),
        cast(number(fill), context.dtype)))


def slice_scatter(context: LoweringContext, a: Value, source: Value,
                  axis: int = 0, *_) -> Value:
    """`a` with `source` in place of the part that a slice views."""
    (fake, _, *args), kwargs = fakes(context.node)
    part = sight(torch.ops.aten.slice, fake, *args, **kwargs)
    axis %= len(a.shape)
    inner = product(a.shape[axis + 1:])
    step, start = (each // inner for each in indices_of([
        part.stride(axis), part.storage_offset()]))
    before = (start + step - 1) // step
    point = context.point
    place = point[axis] - start + before * step  # not negative
    return context.value(inside_or(
        source.to(a.dtype), with_axis(point, axis, place // step - before),
        a.at(point), test("eq", *(Position(each, torch.int64) for each in (
            place % step, index(0))))))


def flip(context: LoweringContext, a: Value, axes: Sequence[int]) -> Value:
    """`a` backwards along some dimensions."""
    axes = {axis % (len(a.shape) or 1) for axis in axes}
    return a.moved(context.shape, tuple(
        size - 1 - i if axis in axes else i
        for axis, (i, size) in enumerate(zip(context.point, a.shape))))


def rolled(context: LoweringContext, a: Value, by: Sequence[int],
           axes: Sequence[int] = ()) -> Value | None:
    """`a`, whose elements move along some dimensions, and come in again on
    the other side. A processor divides slowly: there, one of two slices is
    read."""
    if not axes and len(a.shape) != 1:
        return None
    for shift, axis in zip(by, axes or (0,), strict=True):
        size, point = a.shape[axis], context.point
        place = point[axis] + (size - index(shift) % size)
        if context.device.type == "cpu":
            first, second = (with_axis(point, axis, where) for where in (
                place, place - size))
            a = context.value(inside_or(a, first, inside_or(
                a, second, None)))
        else:
            a = a.moved(context.shape, with_axis(point, axis, place % size))
    return a


def repeat(context: LoweringContext, a: Value, *_) -> Value:
    """`a` laid several times side by side."""
    skip = len(context.shape) - len(a.shape)
    return a.moved(context.shape, tuple(
        i % size for i, size in zip(context.point[skip:], a.shape)))


def named(context: LoweringContext, places: Value, size: Index,
          point: Point, name: str = "", wraps: bool = False,
          sure: bool = False) -> Index:
    """The place named at a point by `places`, an Index below `size`.

    If it `wraps`, -1 is the last place. Raises, as eager does, if a place
    is outside; unless PyTorch is `sure` that none is.
    """
    found = places.element
    if isinstance(found, Position) and in_range(found.index, size):
        return places.at(point).index
    low, high = bounds(found)
    if 0 <= low and high < least_of(size):
        return index(Picked(f"{context.node.name}{name}", size,
                            places.at(point)))
    places = places.to(torch.int64)
    least, most, first, last = map(number, (
        -size if wraps else 0, size, 0, size - 1))
    stops = not sure and places.device.type in STOPS
    if not (sure or stops):
        each = once(places)
        right = context.lowering.view(context.node, context.reduce(
            "all", replace(each, element=both(
                test("ge", each.element, least),
                test("lt", each.element, most)))), ())
        context.lowering.steps.append(Extern(
            CHECK, (right, f"{FAILED}index out of bounds for a dimension "
                    f"of size {size}"), {}, (None,), where_of(
                        context.node)))
        context.lowering.made.pop(context.node)  # what is there: the check

    value = places.at(point)
    if wraps:
        value = operation("where", test("lt", value, first), operation(
            "add", value, most), value)
    value = operation("checked", value, most) if stops else operation(
        "minimum", operation("maximum", value, first), last)
    return index(Picked(f"{context.node.name}{name}", size, value))


def once(value: Value) -> Value:
    """The value without what is repeated along a dimension."""
    used = {atom for part in walk(value.element) if hasattr(part, "index")
            for atom in atoms_of(part.index)}
    shape = tuple(size if axis in used or not not_negative(size - 1)
                  else index(1)
                  for axis, size in zip(axes(value.shape), value.shape))
    return value.moved(shape, points(axes(shape)))


def read_at(along: Callable[..., Point | None], context: LoweringContext,
            a: Value, *rest, **_) -> Value | None:
    """`a` at the point that `along` finds for the other operands.

    If `a` is computed, the result is stored here, where the rest of its
    row is computed. Places are not: any loop knows them. The operator is
    called where a loop is no better. That is if it picks most elements of
    a computed operand, or on a CPU of any, or there moves what lies in
    memory to memory. (On an H200 a loop moves it in 0.5 to 1.04 times the
    operator's time.)
    """
    node, lowering = context.node, context.lowering
    computed = not isinstance(a.element, Load | Position)
    picks = sum(elements(each.shape) for each in tree_leaves(rest)
                if isinstance(each, Value))
    few = SPARSE * picks <= max(elements(context.shape), elements(a.shape))
    cheap = few if computed else context.device.type in STOPS or (
        few and node not in lowering.uses.stored)
    if not (a.shape and cheap):
        return None
    where = along(context, a, *rest)
    value = where and a.moved(context.shape, where)
    return lowering.store(node, value, strides_of(
        node)) if computed and where else value


def gather(context: LoweringContext, a: Value, axis: int, places: Value,
           *_) -> Point:
    """Along one dimension, the element that `places` names."""
    axis, point = axis % len(a.shape), context.point
    return with_axis(point, axis, named(
        context, places, a.shape[axis], point))


def are_numbers(places: Sequence[Value | None]) -> bool:
    """Whether numbers name the places, and no truth for each."""
    return not any(each and each.dtype in (torch.bool, torch.uint8)
                   for each in places)


def indexed(context: LoweringContext, a: Value,
            places: Sequence[Value | None], wraps: bool = True,
            sure: bool = False) -> Point | None:
    """`a[places]`: tensors name places together, in dimensions that take
    the place of theirs; at the front, if theirs are not neighbours."""
    if not are_numbers(places):
        return None
    given = {axis: each for axis, each in enumerate(places)
             if each is not None}
    rank = max(len(each.shape) for each in given.values())
    start = min(given) if max(given) - min(given) < len(given) else 0
    end, point = start + rank, context.point
    rest = iter(point[:start] + point[end:])
    return tuple(
        named(context, given[axis], a.shape[axis],
              point[end - len(given[axis].shape):end], f"_{axis}", wraps,
              sure)
        if axis in given else next(rest) for axis in range(len(a.shape)))


def unsafe_index(context: LoweringContext, a: Value,
                 places: Sequence[Value | None]) -> Value | None:
    """`a[places]`, where every place is inside."""
    where = indexed(context, a, places, sure=True)
    return where and a.moved(context.shape, where)


def selected(context: LoweringContext, a: Value, axis: int, places: Value
             ) -> Point | None:
    """The slices along one dimension that `places` names."""
    one = broadcast(places, places.shape or (index(1),))
    axis %= len(a.shape)
    return indexed(context, a, [*[None] * axis, one], False)


def rows_of(context: LoweringContext, a: Value, places: Value, *_) -> Point:
    """The rows of a table that `places` names."""
    return indexed(context, a, [places], False)


def add_at(given: Callable[..., tuple | None], context: LoweringContext,
           *operands, **options) -> Value | None:
    """A tensor that is added to at some elements, or these replaced.

    `given` says to what it adds, what, and whether it replaces. Then come
    what would read those elements, and its operands.
    """
    found = given(context, *operands, **options)
    if not found:
        return None
    a, source, replaces, along, *rest = found
    where = context.device.type
    able = where in STOPS if replaces else (
        context.dtype in ADDABLE.get(where, ())
        and not torch.are_deterministic_algorithms_enabled())
    if not able:
        return None
    at = along(replace(context, shape=source.shape), a, *rest)
    if not any(map(picked, at)):
        return None  # the places are a loop's own
    node, lowering = context.node, context.lowering
    lowering.fill(node, a, context.shape, suffix="before")
    old = lowering.steps[-1].buffer
    new = replace(old, name=lowering.fresh(node), into=old.name)
    lowering.steps.append(counted(Loop(
        new, flatten(at, old.stride), axes(source.shape),
        source.element, where=where_of(node),
        origin=lowering.origin(node), replaces=replaces)))
    return loaded(new)


def scatter_add(_: LoweringContext, a: Value, axis: int, places: Value,
                source: Value) -> tuple | None:
    """`source` is added to the elements that `gather` reads."""
    shape = places.shape
    return shape and (a, source.moved(shape, points(axes(shape))), False,
                      gather, axis, places)


def index_add(_: LoweringContext, a: Value, axis: int, places: Value,
              source: Value, alpha: float = 1, replaces: bool = False
              ) -> tuple | None:
    """`source`, times `alpha`, is added to what `index_select` reads, or
    `replaces` it. It replaces one slice alone: of several places that are
    the same, no kernel could say which is the last."""
    axis %= len(a.shape) or 1
    if not (a.shape and len(places.shape) == 1) or (
            source.dtype, source.shape) != (a.dtype, with_axis(
                a.shape, axis, places.shape[0])):
        return None  # it raises, or has no dimension
    if replaces and places.shape != (index(1),):
        return None
    given = source if alpha == 1 else source.then(
        "mul", literal(alpha, a.dtype))
    return a, given, replaces, selected, axis, places


def index_put(context: LoweringContext, a: Value, places: Sequence,
              source: Value, accumulate: bool = False, sure: bool = False
              ) -> tuple | None:
    """`source` is added to `a[places]`, or replaces it if that is one
    place."""
    one = all(each is None or {*each.shape} <= {index(1)}
              for each in places)
    if not are_numbers(places) or not (accumulate or one):
        return None
    shape = indices_of(torch.ops.aten.index.Tensor(
        *fakes(context.node)[0][:2]).shape)
    return (a, broadcast(source, shape), not accumulate,
            partial(indexed, sure=sure), places)


def table_gradient(context: LoweringContext, source: Value, places: Value,
                   rows: int, padding: int, by_count: bool) -> tuple | None:
    """`source` is added to zeros, in the rows that `embedding` reads; but
    not to the row of `padding`."""
    zero, point = Const(0, context.dtype), points(axes(source.shape))
    if padding >= 0:
        is_padding = test("eq", places.at(point[:-1]), number(padding))
        source = replace(source, element=operation(
            "where", is_padding, zero, source.element))
    return None if by_count else (
        context.value(zero), source, False, rows_of, places)


SIMPLIFY.append(decided)
RULES |= {
    **{name: partial(add_at, given) for name, given in (
        ("scatter_add", scatter_add), ("index_add", index_add),
        ("index_copy", partial(index_add, replaces=True)),
        ("index_put", index_put),
        ("_unsafe_index_put", partial(index_put, sure=True)),
        ("embedding_dense_backward", table_gradient))},
    "cat": cat, "constant_pad_nd": pad, "flip": flip, "repeat": repeat,
    "roll": rolled, "slice_scatter": slice_scatter,
    "_unsafe_index.Tensor": unsafe_index,
    **dict.fromkeys(("unsafe_split", "unsafe_split_with_sizes"),
                    lambda *given: view(*given)),  # with its own memory
    **{name: partial(read_at, along) for name, along in (
        ("gather", gather), ("index_select", selected),
        ("embedding", rows_of),
        ("index.Tensor", indexed))}}
