"""Passes that save memory, and trips to it.

A value with several readers is stored if that moves fewer bytes than
computing it for each of them; and so is one of which many sums read all.
A norm before a layer of one row is such a value: each output is a sum.

Horizontal fusion: groups that do not need each other join as well. Groups
that read the same elements read them once, if these are many enough:
twelve masks drawn from one seed are not worth drawing together, because
eleven would have to be kept. Groups over the same points, which read other
results of the same step, share its launch.

The order of the groups is the graph's, but memory is freed early. A group
that frees at least as much as it takes runs as soon as it can: after it,
no more memory is in use than before. In a backward pass that is a weight's
gradient, which is the last to need an activation and may stand at the
graph's end.

Writes to inputs are done by the steps that compute the new values. A
kernel can store a value where the input lies, if no later step reads the
old input; an operator such as `index_copy` can if it has a form that
writes. Within a kernel, the thread that overwrites an element must be the
only one that reads it, and must read it first. On a CPU no kernel writes
before a step that may find an index out of range. Checks come first of all:
where one fails, nothing is written. Fresh memory costs more on a CPU than
the trip to it, so a kernel also stores over a value that it is the last to
read.

Inductor's are torch/_inductor/memory.py, and `fuse_nodes` and
`decide_inplace_update` of torch/_inductor/scheduler.py.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import fx

from ...core.graph import CHECK
from ...core.index import (Division, Index, Variable, atoms_of, guess,
                           product)
from ...core.loops import (Buffer, Kernel, Load, Op, picked, row_major,
                           walk)
from ...core.schedule import (Extern, Step, View, made_by, readers_of,
                              reads_of, views_in)
from .. import MERGING, ORDERING, STORING
from ..group import PLACES, Body, Group, Groups, IterationDomain
from ..lower import SAVINGS, Lowering, Uses
from ..lowerings import Value, elements

#: A launch takes at least as long as reading so many elements.
LAUNCH = 2 ** 14

#: A value is stored that more sums than these read, if computing it for
#: all of them takes as long as some launches.
MANY, WORK = 64, 2 ** 26

#: The types of devices where fresh memory costs more than old memory.
REUSING = {"cpu"}

#: Operators whose results are tensors that nothing else holds.
FRESH = {getattr(torch.ops.aten, name).default for name in (
    "mm", "addmm", "bmm", "baddbmm", "convolution",
    "embedding_dense_backward")}

#: How many steps of a reader's other operands are looked at.
NEAR = 16

#: How many of the groups that read a buffer are tried for a merge.
NEAREST = 8


@lru_cache(maxsize=10_000)
def variables_of(where: Index) -> frozenset[Variable]:
    """The loop variables that an index depends on."""
    alone = frozenset(atom for atom in atoms_of(where)
                      if type(atom) is Variable)
    return alone.union(*(
        variables_of(part.index) for pick in picked(where)
        for part in walk(pick.value) if hasattr(part, "index")))


def touched(where: Index) -> int:
    """About how many elements an index reaches."""
    count = 1
    for atom in {atom for atoms, _ in where.terms for atom in atoms}:
        match atom:
            case Variable(_, size):
                count *= guess(size)
            case Division(sign, dividend, divisor):
                inner, by = touched(dividend), guess(divisor)
                count *= min(inner, by) if sign == "%" else -(-inner // by)
    return min(count, elements(v.size for v in variables_of(where)))


def saves(uses: Uses, node: fx.Node, value: Value) -> bool:
    """Whether storing a value moves fewer bytes than computing it again.

    Storing moves all that it reads once. The value itself moves once, and
    once more for each reader but the first, which runs in the kernel that
    stores it. Not storing moves all that it reads once per reader, except
    what the reader reads anyway.
    """
    readers = uses.readers[node]
    if len(readers) < 2:
        return False
    own = uses.counts[node] * value.dtype.itemsize
    loads = {load: min(own, touched(load.index) * load.dtype.itemsize)
             for load in walk(value.element) if isinstance(load, Load)}
    besides = [read_besides(uses, reader, node) for reader in readers]
    again = sum(size for anyway in besides for load, size in loads.items()
                if load.buffer not in anyway)
    return sum(loads.values()) + own * len(readers) < again


def repeats(uses: Uses, node: fx.Node, value: Value) -> bool:
    """Whether many sums, each over all of the value, would compute it from
    several tensors so often that storing it takes less time."""
    counts, kinds = uses.counts, [*map(type, walk(value.element))]
    sums = {(counts.get(each, 0), counts.get(total, 0))
            for each in uses.readers[node] for total in uses.readers[each]}
    return kinds.count(Load) > 1 and any(
        many == counts[node] * totals and MANY < totals < many
        and many * kinds.count(Op) > WORK for many, totals in sums)


def read_besides(uses: Uses, reader: fx.Node, node: fx.Node) -> set[str]:
    """The inputs of the graph, or what lies in memory, that a reader of a
    node reads at all its elements for its other operands."""
    found, waiting, seen = set(), [reader], {node}
    for each in waiting:
        for source in each.all_input_nodes:
            if source in seen:
                continue
            seen.add(source)
            if uses.counts.get(source, 0) < uses.counts[node]:
                continue
            if source.op == "placeholder" or source in uses.stored:
                found.add(source.name)
            elif uses.rules.get(source) and len(waiting) < NEAR:
                waiting.append(source)
    return found


def shares(first: Body, second: Body) -> bool:
    """Whether both read the same elements, and enough of them to be
    worth it that the results of both are there earlier than needed."""
    enough = min(guess(body.domain.rows * body.domain.row)
                 for body in (first, second)) / 4 - LAUNCH
    return any(touched(where) >= enough
               for _, where in first.reads.keys() & second.reads)


def in_columns(first: Body, second: Body) -> list[Index]:
    """Where elements of a loop over all of them lie in the columns that
    another loop reduces."""
    if (first.domain.row == 1) == (second.domain.row == 1):
        return []
    return [*dict.fromkeys(
        loop.turned for loop in first.loops + second.loops
        if loop.turned is not None and not loop.whole)]


def resembles(first: Body, second: Body) -> bool:
    """Whether the loops of one run over the points of the other's, and
    read different elements: what both read has been judged already."""
    mine, theirs = ({IterationDomain.of(loop) for loop in body.loops}
                    for body in (first, second))
    return (mine <= theirs or theirs <= mine) and not (
        first.reads.keys() & second.reads)


def horizontal(groups: Groups) -> None:
    """Merge each group with those that read the same elements, and with
    those that read other results of the same step."""
    for group in list(groups.all):
        if group.body is None or groups.find(group) is not group:
            continue
        for name in dict.fromkeys(name for name, _ in group.body.reads):
            for other in groups.readers[name][-NEAREST:]:
                groups.join(other, group, shares)
        for dep in list(groups.find(group).deps):
            if len(dep.users) <= NEAREST:
                for other in list(dep.users):
                    groups.join(other, group, resembles)


def reorder(groups: Groups, kept: Collection[str],
            dying: Iterable[Buffer]) -> list[Group]:
    """The groups in an order in which some run early.

    `kept` are buffers that are never freed, `dying` inputs that are.
    """
    alive = {group: list(group.steps.values())
             for group in groups.ordered()}
    reads = {group: reads_of(steps).keys()
             for group, steps in alive.items()}
    readers = {name: set(map(groups.find, each))  # those still to run
               for name, each in groups.readers.items()}
    made = {group: {b.name: b.nbytes for step in steps
                    for b in made_by(step)}
            for group, steps in alive.items()}
    sizes = {b.name: b.nbytes for b in dying}
    for own in made.values():
        sizes |= own

    def takes(group: Group) -> int:
        """Bytes of memory the group needs, less what it sets free."""
        return sum(size for name, size in made[group].items()
                   if name in kept or readers.get(name, set()) - {group}
                   ) - sum(sizes.get(name, 0)
                           for name in reads[group] - made[group].keys()
                           if name not in kept and readers[name] == {group})

    found: dict[Group, None] = {}
    for first in alive:
        ready = [first]
        while ready:
            group = ready.pop()
            if group in found or not group.deps <= found.keys():
                continue
            found[group] = None
            near = set(group.users)
            for name in reads[group]:
                readers[name].discard(group)
                if len(readers[name]) == 1:
                    near |= readers[name]
            ready += sorted((other for other in near if takes(other) <= 0),
                            key=lambda other: -other.own)
    return list(found)


def in_place(steps: list[Step], lowered: Lowering) -> dict[str, View]:
    """Make steps store into inputs; the writes that none of them can."""
    inputs = {given.name: given for given in lowered.inputs
              if isinstance(given, Buffer)}
    checks = checks_first(steps)
    last = max(checks, last_to_raise(steps, {
        value.buffer for value in lowered.writes.values()}))
    returned, readers = reads_of(lowered.outputs), readers_of(steps)
    makers = {made.name: place for place, step in enumerate(steps)
              for made in made_by(step)}
    left, copies = {}, set()
    for name, value in lowered.writes.items():
        place, reading = makers.get(value.buffer), readers.get(name, set())
        fills = () if place is None else made_by(steps[place])
        made = {each.name: each for each in fills}.get(value.buffer)
        copy = made and made.into
        if copy in makers and readers[copy] == {place} and is_copy(
                steps[makers[copy]], copy, inputs[name]):
            made, reading = replace(made, into=""), reading - {makers[copy]}
        if made and made.name not in returned and (
                form(value) == form(made)) and place >= (
                    checks if isinstance(steps[place], Extern)
                    or made.device.type != "cpu" else last) and can_store(
                        steps, place, inputs[name], made, reading):
            steps[place] = storing(steps[place], made.name, name)
            copies.add(copy)
        else:
            left[name] = value
    over_dead(steps, {*returned, *copies, *(
        v.buffer for v in left.values())}, readers)
    steps[:] = filter(None, [without(step, copies) for step in steps])
    return left


def checks_first(steps: list[Step]) -> int:
    """Put the checks of values, and all that these need, before the other
    steps, and count them."""
    first, needed = set(), set()
    for step in reversed(steps):
        if getattr(step, "target", None) is CHECK or not needed.isdisjoint(
                each.name for each in made_by(step)):
            first.add(id(step))
            needed |= reads_of(step).keys()
    steps.sort(key=lambda step: id(step) not in first)
    return len(first)


def last_to_raise(steps: list[Step], written: Collection[str]) -> int:
    """How many steps there are up to the last operator that reads whole
    numbers: one may be out of range. Those whose results are `written` do
    not count."""
    return max([place for place, step in enumerate(steps, 1)
                if isinstance(step, Extern) and written.isdisjoint(
                    each.name for each in made_by(step)) and any(
                    view.dtype == torch.int64 for view in views_in(step))
                ], default=0)


def is_copy(step: Kernel, name: str, given: Buffer) -> bool:
    """Whether this buffer, to which others then add, copies the input."""
    loop = next(each for each in step.loops if each.buffer.name == name)
    return form(loop.buffer) == form(given) and loop.value == Load(
        given.name, loop.index, given.dtype)


def without(step: Step, names: Collection[str]) -> Step | None:
    """The step without the loops that fill these buffers; None if it fills
    no other."""
    if isinstance(step, Extern) or names.isdisjoint(step.written):
        return step
    rest = replace(step, loops=tuple(
        loop for loop in step.loops if loop.buffer.name not in names))
    return rest if rest.written else None


def over_dead(steps: list[Step], kept: Collection[str],
              readers: dict[str, set[int]]) -> None:
    """Make kernels store over what they are the last to read."""
    fresh: dict[str, Buffer] = {}
    over = {""}
    for place, step in enumerate(steps):
        is_kernel = isinstance(step, Kernel)
        for made in made_by(step) if is_kernel else ():
            for name in step.read:
                if name in fresh and can_store(
                        steps, place, fresh[name], made, readers[name]):
                    steps[place] = storing(steps[place], made.name, name)
                    over.add(name)
                    del fresh[name]
                    break
        if is_kernel or step.target in FRESH:
            fresh |= {each.name: each for each in made_by(steps[place])
                      if each.device.type in REUSING
                      and each.name not in kept and each.into in over}


def storing(step: Step, name: str, into: str) -> Step:
    """The step, with a result stored in another buffer's memory."""
    if isinstance(step, Extern):
        return replace(step, target=writing(step))
    return replace(step, loops=tuple(
        replace(loop, buffer=replace(loop.buffer, into=into))
        if loop.buffer.name == name else loop for loop in step.loops))


def writing(step: Extern) -> Callable | None:
    """The operator that writes the call's only result over its first
    argument, such as `index_copy_`; None if there is none."""
    space, name, overload = f"{step.target}..".split(".")[:3]
    packet = getattr(torch.ops.aten, f"{name}_", None)
    return getattr(packet, overload, None) if (
        space == "aten" and len(step.outputs) == 1) else None


def can_store(steps: list[Step], place: int, given: Buffer, made: Buffer,
              readers: set[int]) -> bool:
    """Whether a step can store what it has made in the input's memory.

    All steps that read the input's old value must come before it. None
    may be an operator that returns a view: that would see the new one.
    """
    return (form(given) == form(made)
            and not made.into and max(readers, default=-1) <= place
            and not any(isinstance(steps[reader], Extern)
                        and steps[reader].aliases for reader in readers)
            and (over_itself(steps[place], given) if isinstance(
                steps[place], Extern) else place not in readers
                or in_turn(steps[place], made, given)))


def over_itself(step: Extern, given: Buffer) -> bool:
    """Whether the call changes some elements of its first argument, which
    is all of the input, and reads it nowhere else."""
    first, *others = views_in(step) or [None]
    return first is not None and step.args[0] is first and (
        writing(step) is not None and first.buffer == given.name
        and form(first) == form(given)
        and all(view.buffer != given.name for view in others))


def form(of: Buffer | View) -> tuple:
    """How it fills memory: its layout, or its length if it is row-major."""
    layout = of.shape, of.stride
    return of.dtype, product(of.shape) if (
        of.stride == row_major(of.shape)) else layout


def in_turn(kernel: Kernel, made: Buffer, given: Buffer) -> bool:
    """Whether the thread that overwrites an element of an input is the
    one that reads it, and reads it first.

    Threads of one row may read what another has written. A CPU has one
    for each row, which stores in its last pass.
    """
    place, store = next(each for each in enumerate(kernel.loops)
                        if each[1].buffer.name == made.name)
    alone = not kernel.reduced or made.device.type in REUSING and (
        all(loop.down is None for loop in kernel.loops))
    return alone and all(
        number <= place and load.index == store.index
        and loop.ranges + loop.reduced == store.ranges
        for number, loop in enumerate(kernel.loops)
        for load in loop.loads if load.buffer == given.name)


SAVINGS.extend((saves, repeats))
MERGING.append(horizontal)
PLACES.append(in_columns)
ORDERING.append(reorder)
STORING.append(in_place)
