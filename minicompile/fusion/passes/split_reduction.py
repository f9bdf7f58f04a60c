"""Split reductions: of few, long rows, or of columns in a row kernel.

A device reduces many rows at a time, but one row in one place. So the sum
of a million numbers is 64 sums of parts, and the sum of those. A million
and one does not divide by 64: the last part is padded with the number
that changes nothing. PyTorch's is `num_splits` of torch/_inductor/ir.py.

If what is reduced asks for a reduction of each row, as a loss does after a
softmax, the rows are the parts: one trip to memory finds both. On a GPU
each part of a softmax takes its own maximum, so that one trip finds its
sum, too. The exponentials are computed once more at the end.

The backward of a norm reads a gradient and an input row by row, and again
down each column for the gradients of its weights: as two kernels, it reads
everything twice. Here the kernel of the parts of the columns joins that of
the rows. Chunks of the rows take the place of the parts: a program walks
along the rows of one, and stores what it has added up in each column.
Inductor's is MixOrderReduction of torch/_inductor/scheduler.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf

import torch
from torch import fx

from ...core.index import atoms_of, coefficient, guess, index, product
from ...core.loops import (Buffer, Const, Expression, Load, Loop, draws,
                           neutral, row_major, unflatten)
from ...core.loops import walk as nodes_of
from ...core.machines.cost import WALKING
from .. import MERGING
from ..group import Body, Group, Groups, IterationDomain, fits
from ..lowerings import (SPLITS, LoweringContext, Value, axes, broadcast,
                         divided_by, elements, literal, loaded, operation,
                         points)
from ..rules.arithmetic import MOMENTS, moments, reshaped, squared
from ..rules.indexing import inside_or, test, with_axis
from .memory import NEAREST, touched, variables_of

#: Chunks of the rows, at most; the rows and the elements of one step.
CHUNKS, ROWS, STEP = 256, 8, 4096
#: Below so many elements, times those of a row, two kernels are as fast: a
#: program that walks along short rows has little to do at a time.
WORTH = 3 << 30
#: Rows of fewer bytes are not walked along by a program that draws random
#: numbers for them: it is busy, and could read twice as much meanwhile.
BUSY = 4096


@dataclass(frozen=True)
class Share:
    """The numbers that keep a device busy.

    At most `few` rows of more than `whole` elements are split, into `many`
    parts in all, of at least `least`; if there are no more than `worth`,
    one step is faster. `beside` columns, neighbours in memory, are reduced
    in one place; of fewer than `narrow`, neighbours are of different parts.
    """

    few: int
    whole: int
    many: int
    least: int
    worth: int
    beside: int
    narrow: int


SHARES = {"cpu": Share(7, 8191, 64, 4096, 1 << 17, 16, 16),
          "cuda": Share(128, 1 << 15, 1024, 1024, 1 << 15, 64, 128)}


def parts_wanted(value: Value, reduced: tuple[int, ...]) -> int:
    """Into how many parts to split each row; 1: not worth it."""
    share = SHARES.get(value.device.type)
    total = elements(value.shape)
    if share is None or total <= share.worth:
        return 1
    length = elements(value.shape[axis] for axis in reduced)
    rows, least, whole = total // length, share.least, share.whole
    order, strides = laid_out(value, reduced)
    if 1 in strides and 1 not in [strides[axis] for axis in reduced]:
        # neighbours in memory are of different rows
        rows, least = (ceil(n / share.beside) for n in (rows, least))
        whole = 2 * least - 1
    if rows > share.few or length <= whole:
        return 1
    wanted = min(ceil(share.many / rows), length // least)
    sizes = [value.shape[axis].constant for axis in order[-len(reduced):]]
    return wanted if None in sizes else even(
        wanted, min(share.many, wanted * 3 // 2), sizes)


def even(wanted: int, most: int, sizes: list[int]) -> int:
    """About `wanted` parts, such that each is a block of the sizes; more
    rather than fewer, up to `most`."""
    parts = 1
    for size in sizes:
        left = ceil(wanted / parts)
        if left < size:
            fits = [n for n in range(1, max(left, most // parts) + 1)
                    if size % n == 0]
            near = next((n for n in fits if n >= left), fits[-1])
            return parts * near if (
                2 * near > left or len(sizes) > 1) else left
        parts *= size
    return parts


def laid_out(value: Value, reduced: tuple[int, ...]
             ) -> tuple[list[int], list[int]]:
    """The dimensions, those that are reduced last, as they lie in memory;
    and how far apart there the neighbours along each dimension are.

    Of the loads that vary within a row, the largest decide: the gradient
    of a cross entropy also reads one label a row.
    """
    names = axes(value.shape)
    inner = {names[axis] for axis in reduced}
    loads = {part.index: elements(
        v.size for v in names if v in variables_of(part.index))
        for part in nodes_of(value.element)
        if isinstance(part, Load) and inner & variables_of(part.index)}
    found = [[guess(coefficient(where, v) or index(0)) for v in names]
             for where, count in loads.items()
             if count == max(loads.values())]
    strides = next((each for each in found if 1 in each), [0] * len(names))
    return sorted(range(len(names)), key=lambda k: (
        k in reduced, -strides[k] * (k in reduced), k)), strides


def split_rows(context: LoweringContext, kind: str, value: Value,
               reduced: tuple[int, ...]) -> Value | None:
    """The reduction of each row's parts, then of their results; or None.
    The rows of a reduction that the value asks for are parts."""
    inner = along_rows(context, value, reduced)
    if inner:
        return context.reduce(kind, context.reduce(
            kind, value, inner, True), reduced)
    parts = parts_wanted(value, reduced)
    if parts == 1:
        return None
    fill = partial(context.lowering.fill, context.node, kind=kind)
    if kind == "sum" and value.device.type in WALKING and (
            most := maxima(context, value.dtype)):
        return faded(fill, *most)
    rows = in_rows(value, reduced)
    some = in_parts(rows, parts, kind)
    *size, _ = some.shape
    made = fill(some, (*size,), (len(size),), suffix="part",
                stride=row_major(size), whole=rows)
    return fill(made, (*size[1:],), (0,))


def along_rows(context: LoweringContext, value: Value,
               reduced: tuple[int, ...]) -> list[int]:
    """Some of the reduced dimensions, if a reduction along these, row by
    row, is asked for: one kernel does both, and reads a row once."""
    names = axes(value.shape)
    asked = {part.buffer: inner for part in nodes_of(value.element)
             if isinstance(part, Load) and 0 < len(inner := [
                 axis for axis in reduced if names[axis]
                 not in variables_of(part.index)]) < len(reduced)}
    for step in context.lowering.steps if asked else ():
        inner = isinstance(step, Loop) and step.reduction and asked.get(
            step.buffer.name)
        if inner and all(
                elements(v.size for v in part) == elements(
                    size for axis, size in enumerate(value.shape)
                    if (axis in inner) == (part is step.reduced))
                for part in (step.ranges, step.reduced)):
            return inner
    return []


def in_rows(value: Value, reduced: tuple[int, ...]) -> Value:
    """The value with what is reduced in its last dimension."""
    order, _ = laid_out(value, reduced)
    shape = tuple(value.shape[k] for k in order)
    turned = value.moved(shape, tuple(
        points(axes(shape))[order.index(k)] for k in range(len(order))))
    sizes = shape[:-len(reduced)]
    return reshaped(turned, (*sizes, product(shape[-len(reduced):])))


def in_parts(rows: Value, parts: int, kind: str,
             turns: bool = True) -> Value:
    """Parts of one length of each row, the first of all rows first; what
    the last lacks does not change a reduction of this kind. Where only a
    few columns lie side by side, parts may take `turns` along the row."""
    *sizes, total = rows.shape
    shape = index(parts), *sizes, (total + (parts - 1)) // parts
    part, *others, place = points(axes(shape))
    *_, step = laid_out(rows, (len(sizes),))[1]
    turns = turns and 1 < step < SHARES[rows.device.type].narrow
    place = place * parts + part if turns else part * shape[-1] + place
    return replace(rows, shape=shape, element=inside_or(
        rows, (*others, place), Const(neutral(kind, rows.dtype),
                                      rows.dtype)))


def maxima(context: LoweringContext, dtype: torch.dtype
           ) -> tuple[Loop, Buffer] | None:
    """The maxima of the parts of rows, and those of the rows, if the node
    adds up the exponentials of all elements' distances to the latter, and
    rounds nothing."""
    def given(node: object, name: str) -> tuple:
        return node.args if isinstance(node, fx.Node) and str(
            node.target) == f"aten.{name}" and not node.kwargs else ()

    powers, along = (*given(context.node, "sum.dim_IntList"), 0, 0)[:2]
    away, = given(powers, "exp.default") or (None,)
    x, most = given(away, "sub.Tensor") or (None, None)
    if given(most, "amax.default") != (x, along, True):
        return None
    loops = {step.buffer.name: step for step in context.lowering.steps
             if isinstance(step, Loop)}
    whole = loops.get(context.lowering.values[most].element.buffer)
    part = whole and loops.get(getattr(whole.value, "buffer", ""))
    return (part, whole.buffer) if part and part.whole and (
        part.whole.dtype == dtype) else None


def faded(fill: Callable[..., Value], part: Loop, most: Buffer) -> Value:
    """The sum of a row's exponentials, from those of its parts. A part's
    are of the distances to its own maximum, so that one trip to memory
    finds both; they count for as much as that is below the row's."""
    some = in_parts(part.whole, int(part.buffer.shape[0]), "max")
    own = loaded(part.buffer)
    *size, _ = some.shape

    def exp(a: Expression, b: Expression) -> Expression:
        return operation("exp", operation("sub", a, b))

    sums = fill(replace(some, element=exp(some.element, own.at(points(
        axes((*size,)))))), (*size,), (len(size),), suffix="part",
        stride=row_major(size))
    share = exp(own.element, broadcast(loaded(most), own.shape).element)
    nothing = test("eq", own.element, Const(-inf, own.dtype))
    return fill(replace(own, element=operation(
        "where", nothing, share, operation("mul", sums.element, share))),
        (*size[1:],), (0,))


def split_moments(context: LoweringContext, a: Value,
                  reduced: tuple[int, ...]) -> tuple[Value, Value] | None:
    """Both sums of each part, in one trip to memory; then of the parts.

    An element is as far from the mean as from its part's own mean, and as
    that is from the whole one's: their squares add up over a part.
    """
    parts = parts_wanted(a, reduced)
    total = product(a.shape[axis] for axis in reduced)
    if parts == 1 or total % parts != 0:
        return None
    some = in_parts(in_rows(a, reduced), parts, "sum", turns=False)
    *size, length = some.shape

    def added(a: Value, reduced: tuple[int, ...]) -> Value:
        return context.lowering.fill(context.node, a, with_axis(
            a.shape, *reduced, index(1)), reduced, "sum")

    sums, squares = (reshaped(each, (*size,)) for each in moments(
        added, some, (len(size),)))
    whole = added(sums, (0,))
    between = squared(divided_by(sums, length), divided_by(whole, total))
    all_squares = replace(squares, element=operation(
        "add", squares.element, operation(
            "mul", between.element, literal(length, a.dtype))))
    return whole, added(all_squares, (0,))


def join_columns(groups: Groups) -> None:
    """Join groups that reduce rows with those that reduce columns: with
    all that fit, or with some."""
    for rows in list(groups.all):
        if groups.find(rows) is not rows or not rows.body or (
                rows.body.loops[0].buffer.device.type not in WALKING
                or (rows.body.domain.row.constant or 0) <= 1):
            continue  # no kernel can walk along such rows
        near = {groups.find(reader): None for name, _ in rows.body.reads
                for reader in groups.readers[name][-NEAREST:]}
        found = [other for other in (*near, *rows.users - near.keys())
                 if other is not rows and fitting(rows.body, other.body)]
        for several in (found, *([columns] for columns in found)):
            if join(groups, rows, several) and several is found:
                break


def fitting(rows: Body, columns: Body | None) -> bool:
    """Whether `columns` reduces nothing but parts of the columns of those
    rows."""
    return columns is not None and all(
        loop.whole and loop.buffer.device == rows.loops[0].buffer.device
        and (product(loop.whole.shape[:-1]), loop.whole.shape[-1]) == (
            rows.domain.row, rows.domain.rows) for loop in columns.loops)


def join(groups: Groups, rows: Group, several: list[Group]) -> bool:
    """Give all reductions of fitting columns to the rows' group, if that
    is legal and saves trips to memory; whether it did."""
    domain = rows.body.domain
    body = Body(domain, tuple(
        going_down(loop, domain)
        for columns in several for loop in columns.body.loops))
    chunks = {loop.buffer.name: loop for loop in body.loops}
    last = {groups.find(reader) for name in chunks
            for reader in groups.readers.get(name, ())}
    if not several or not all(
            group.body and all(over_chunks(loop, chunks, domain)
                               for loop in group.body.loops)
            for group in last) or any(
            rows.is_apart(columns) or any(
                other.before & columns.own for other in (rows, *several))
            for columns in several) or not (
            fits(rows.body, body) and is_worth(rows.body, body)):
        return False
    for columns in several:
        rows.absorb(columns, Body(domain, rows.body.loops + tuple(
            chunks[loop.buffer.name] for loop in columns.body.loops)))
    ends = sorted(last, key=hash)
    for group in ends:
        group.steps = {place: over_chunks(loop, chunks, domain)
                       for place, loop in group.steps.items()}
        loops = tuple(group.steps.values())
        group.body = Body(IterationDomain.of(next(
            loop for loop in loops if loop.reduction)), loops)
        groups.join(ends[0], group)
    return True


def going_down(loop: Loop, rows: IterationDomain) -> Loop:
    """A reduction of parts of columns as one down the rows of each chunk;
    its results lie where those of the parts would."""
    row, element = map(index, rows.variables)
    step = max(ROWS, STEP // (1 << (int(rows.row) - 1).bit_length()))
    length = (rows.rows + step * CHUNKS - 1) // (step * CHUNKS) * step
    chunks = (rows.rows + length - 1) // length if (
        length.constant) else index(CHUNKS)
    return replace(
        loop, ranges=rows.variables, reduced=(), down=length,
        index=row // length * rows.row + element, value=loop.whole.at(
            (*unflatten(element, loop.whole.shape[:-1]), row)),
        buffer=replace(loop.buffer, shape=(chunks, rows.row),
                       stride=(rows.row, index(1))))


def over_chunks(loop: Loop, chunks: dict[str, Loop],
                rows: IterationDomain) -> Loop | None:
    """A reduction of the parts of columns as one of their chunks, a loop
    over columns as it is, and None for any other."""
    if not loop.reduction:
        return loop if loop.ranges == axes((rows.row,), "i") else None
    made = chunks.get(getattr(loop.value, "buffer", ""))
    if made is None:
        return None
    chunk = axes(made.buffer.shape[:1], "r")
    return loop.over({loop.reduced[0]: points(chunk)[0]}, loop.ranges,
                     chunk)


def is_worth(rows: Body, columns: Body) -> bool:
    """Whether both ask for the same elements, and enough of them; and
    whether registers hold a row and the columns' reductions."""
    row, element = rows.domain.variables
    loops = rows.loops + columns.loops
    count, width = elements((row.size, element.size)), int(element.size)
    size = max((load.dtype.itemsize for loop in loops for load in loop.loads
                if element in atoms_of(load.index)), default=0)
    if count * width < WORTH or (width * size < BUSY and draws(loops)):
        return False
    reads = {*rows.reads, *columns.reads}
    held = sum(element in atoms_of(where) for _, where in reads) + sum(
        max(4, loop.value.dtype.itemsize) // 4
        for loop in loops if loop.reduction and not loop.reduced)
    return any(4 * touched(where) >= count for _, where in
               columns.reads.keys() & {*rows.reads, *rows.stores.items()}
               ) and (1 << (width - 1).bit_length()) * held <= WALKING[
                   loops[0].buffer.device.type]


SPLITS.append(split_rows)
MOMENTS.append(split_moments)
MERGING.append(join_columns)
