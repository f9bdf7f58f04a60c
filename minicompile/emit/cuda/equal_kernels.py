"""Equal kernels: printed once, and on a GPU launched together.

Two kernels are equal if they are the same graph of operations over buffers
of any names. The layers of a model have equal kernels, and an
optimizer has one for each parameter, too short to fill a GPU. Up to 16 of
these become one launch: the second number of a program chooses the member
whose tensors it works on. A kernel that runs early or late keeps memory
alive: what it writes, or what it alone still reads. So a kernel moves only
if both are small, like the last sums of a norm's backward.
Inductor's is torch/_inductor/codegen/triton_combo_kernel.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...core.index import Symbol, index, most_of
from ...core.loops import Expression, Kernel, Load, Position, rewrite
from ...core.schedule import Extern, Step, made_by, reads_of
from ..launch import TEXTS, TritonPrinter
from ..target import FUNCTIONS
from ..program import PLANS, Text, device_of
from ..triton import arguments, print_kernel

#: How many kernels are one launch, at most, and how many tensors it takes.
MOST_EQUAL, MOST_TENSORS = 16, 160
#: Elements of new memory that a kernel may fill earlier or later, and of
#: a buffer that nobody needs after it.
WRITTEN, READ = 1 << 14, 1 << 20


def recipe(kernel: Kernel) -> object:
    """A key of the kernel's whole computation, with numbered arguments."""
    names = [*kernel.read, *kernel.written, *sorted(kernel.internal)]
    numbers = {name: str(place) for place, name in enumerate(names)}
    draws = {index(symbol): index(Symbol(str(place))) for place, symbol
             in enumerate(kernel.symbols) if symbol.is_number}

    def numbered(node: Expression) -> Expression:
        match node:
            case Load():
                return replace(node, buffer=numbers[node.buffer])
            case Position(where, _):
                return replace(node, index=draws.get(where, where))
        return node
    return (kernel.ranges, kernel.reduced, len(kernel.internal), *(
        (numbers[loop.buffer.name], numbers.get(loop.buffer.into),
         loop.buffer.dtype, loop.buffer.device, loop.index,
         loop.ranges, loop.reduced, loop.reduction, loop.replaces,
         rewrite(loop.value, numbered)) for loop in kernel.loops))


@dataclass(frozen=True)
class Batch(Kernel):
    """The loops of kernels that are equal."""

    members: tuple[Kernel, ...] = ()


@dataclass
class Members:
    """Steps that run together, what these read and what they write; only
    those of the same kind, which is not None, may join."""

    kind: object
    steps: tuple[Step, ...]
    reads: set[str]
    writes: set[str]

    def needs(self, other: Members) -> bool:
        """Whether the two have to stay in the order that they have."""
        return not (self.writes.isdisjoint(other.reads | other.writes)
                    and self.reads.isdisjoint(other.writes))


def batched(text: Text) -> tuple[tuple[Step, ...], dict[str, Kernel]]:
    """The steps of a program, equal kernels together; and the first of
    those that are equal to each.

    From the last to the first, each waits for a later one of its kind;
    then, from the first to the last, each joins an earlier one.
    """
    held = {given.name for given in text.schedule.inputs if given
            }.difference(text.schedule.donated)
    launches = [
        Members(recipe(step) if may_move(step, {*freed} - held, text)
                else None, (step,), {*reads_of(step)}, writes_of(step))
        for step, freed in zip(text.schedule.steps, text.schedule.last_use)]
    steps = tuple(
        united(Batch, f"{one.name}_x{1 + len(more)}", (one, *more))
        if more else one for one, *more in (
            launch.steps for launch in joined(joined(launches))))
    first: dict[object, Kernel] = {}
    return steps, {step.name: first.setdefault(recipe(step), step)
                   for step in steps if isinstance(step, Kernel)}


def joined(launches: list[Members]) -> list[Members]:
    """The launches from the last to the first. Each joins the nearest of
    its kind, if it has to stay on its side of none on the way."""
    found: list[Members] = []
    for launch in reversed(launches):
        for other in reversed(found if launch.kind else ()):
            if launch.needs(other):
                found.append(launch)
                break
            steps = launch.steps + other.steps
            if other.kind == launch.kind and len(steps) <= room(steps[0]):
                other.steps = steps
                other.reads |= launch.reads
                other.writes |= launch.writes
                break
        else:
            found.append(launch)
    return found


def room(kernel: Kernel) -> int:
    """How many such kernels are one launch, at most."""
    return min(MOST_EQUAL, MOST_TENSORS // len(
        (*kernel.read, *kernel.written)))


def may_move(step: Step, freed: Iterable[str], text: Text) -> bool:
    """Whether it costs little memory to run a step earlier or later, if
    these buffers are freed after it."""
    return (isinstance(step, Kernel) and not step.symbols
            and isinstance(text.printers[device_of(step)], TritonPrinter)
            and all(most_of(buffer.elements) <= WRITTEN
                    for buffer in step.written.values() if not buffer.into)
            and all(most_of(text.buffers[name].elements) <= READ
                    for name in freed))


def writes_of(step: Step) -> set[str]:
    """The buffers that a step may write; of a call, all it is given."""
    names = {name for buffer in made_by(step)
             for name in (buffer.name, buffer.into) if name}
    return names | reads_of(step).keys() if isinstance(
        step, Extern) else names


def united(kind: type[Batch], name: str, members: tuple[Kernel, ...],
           internal: Iterable[str] = (), *more: object) -> Batch:
    """Kernels as one of a kind, to which these buffers are internal, too.
    """
    return kind(name, members[0].ranges, members[0].reduced, tuple(
        loop for each in members for loop in each.loops), frozenset(
            internal).union(*(each.internal for each in members)),
        members, *more)


def print_batch(kernel: Batch) -> str:
    """A kernel that does what one of its members does."""
    one = replace(kernel.members[0], name=f"{kernel.name}_each")
    about, jit, body = print_kernel(one).rpartition("@triton.jit\n")
    choices = zip(*map(arguments, kernel.members))
    given = (f"pick(member, ({', '.join(choice)}))" if len({*choice}) > 1
             else choice[0] for choice in choices)
    return "\n".join([
        f"{jit}{body}", "", "",
        f"{about.rstrip()[:-1]}, members={len(kernel.members)})",
        f"{jit}def {kernel.name}({', '.join(arguments(kernel))}):",
        "    member = tl.program_id(1)",
        f"    {one.name}(" + ",\n        ".join(given) + ")"])


FUNCTIONS["triton"].append(r'''
@triton.jit
def pick(number, choices):
    """The choice with this number."""
    found = choices[0]
    for place in tl.static_range(1, len(choices)):
        found = tl.where(number == place, choices[place], found)
    return found
''')

TEXTS[Batch] = print_batch
PLANS.append(batched)
