"""A whole graph as steps: kernels and calls of ATen operators, in order.

A Schedule says what runs, on which memory, when memory is free again and
where sizes are found. It is frozen, and prints as Python. Inductor's
counterpart is torch/_inductor/ir.py:ExternKernel, and what
torch/_inductor/scheduler.py holds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.utils._pytree import tree_leaves

from .errors import Where
from .index import Index, Symbol
from .loops import Buffer, Kernel, Loop, picked


@dataclass(frozen=True)
class View:
    """A buffer's memory seen with another shape, stride and offset."""

    buffer: str
    shape: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index
    dtype: torch.dtype


@dataclass(frozen=True)
class Extern:
    """A call of an ATen operator on whole tensors.

    `args` and `kwargs` hold Views where tensors stand; `outputs` are the
    buffers of its results, None for one that is no tensor or unread.
    """

    target: Callable
    args: tuple
    kwargs: dict
    outputs: tuple[Buffer | None, ...]
    where: Where | None = None

    @property
    def aliases(self) -> bool:
        """Whether its results lie in the memory of its arguments."""
        schema = getattr(self.target, "_schema", None)
        return schema is not None and any(
            result.alias_info for result in schema.returns)


Step = Kernel | Extern


@dataclass(frozen=True)
class Schedule:
    """A graph as steps in order, which emit turns into a program.

    `inputs` are the graph's arguments (None: no step reads it, or it is
    no tensor). `outputs` are Views, constants or None. `sizes` says which
    input each symbol is; None: its formula tells. `donated` are the inputs
    that nothing else holds.
    """

    inputs: tuple[Buffer | None, ...]
    steps: tuple[Step, ...]
    outputs: tuple[object, ...]
    constants: dict[str, torch.Tensor]
    sizes: dict[Symbol, int | None] = field(default_factory=dict)
    donated: frozenset[str] = frozenset()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The steps that are our own kernels."""
        return tuple(s for s in self.steps if isinstance(s, Kernel))

    @property
    def externs(self) -> tuple[Extern, ...]:
        """The steps that run as ATen operators."""
        return tuple(s for s in self.steps if isinstance(s, Extern))

    @property
    def buffers(self) -> dict[str, Buffer]:
        """The buffers of inputs and steps, by name."""
        made = [b for step in self.steps for b in made_by(step)]
        return {b.name: b for b in (*self.inputs, *made) if b}

    @cached_property
    def last_use(self) -> tuple[tuple[str, ...], ...]:
        """For each step, the buffers that no later step needs.

        Memory that a call's result shares is needed as long as the result.
        """
        kept = reads_of(self.outputs).keys() | self.constants.keys()
        last: dict[str, int] = {}
        under: dict[str, dict] = {}  # a buffer, and whose memory it is
        for number, step in enumerate(self.steps):
            read = reads_of(step)
            shares = isinstance(step, Extern) and step.aliases
            for made in made_by(step):
                sources = read if shares else filter(None, [made.into])
                under[made.name] = dict.fromkeys([made.name, *(
                    each for source in sources
                    for each in under.get(source, [source]))])
            for name in (*(made.name for made in made_by(step)), *read):
                last |= dict.fromkeys(under.get(name, [name]), number)
        freed: list[list[str]] = [[] for _ in self.steps]
        for name, number in last.items():
            if name not in kept:
                freed[number].append(name)
        return tuple(map(tuple, freed))

    def unpacked(self, name: Callable[[str], str]
                 ) -> tuple[list[str], list[str]]:
        """The inputs' names, and the lines that compute other sizes;
        `name` says what a buffer is called."""
        names = [name(b.name) if b else "_" for b in self.inputs]
        lines = []
        for symbol, place in self.sizes.items():
            if place is None:
                lines.append(f"{symbol} = ({symbol.formula})")
            else:
                names[place] = str(symbol)
        return names, lines


def made_by(step: Loop | Step) -> list[Buffer]:
    """The buffers that a step fills, for others to read."""
    match step:
        case Loop():
            return [step.buffer]
        case Kernel():
            return list(step.written.values())
    return [buffer for buffer in step.outputs if buffer is not None]


def reads_of(step: object) -> dict[str, None]:
    """The buffers that a step, a list of steps, or a tuple of results
    reads."""
    match step:
        case list():
            return {name: None for each in step for name in reads_of(each)}
        case Loop():
            into = [step.buffer.into] * bool(picked(step.index))
            return dict.fromkeys([*(load.buffer for load in step.loads),
                                  *into])
        case Kernel():
            into = [buffer.into for buffer in step.written.values()]
            return dict.fromkeys([*step.read, *filter(None, into)])
    return dict.fromkeys(view.buffer for view in views_in(step))


def readers_of(steps: Iterable) -> dict[str, set[int]]:
    """The numbers of the steps that read each buffer."""
    readers: dict[str, set[int]] = {}
    for number, step in enumerate(steps):
        for name in reads_of(step):
            readers.setdefault(name, set()).add(number)
    return readers


def views_in(step: object) -> list[View]:
    """The Views among the arguments of a call, or in a tuple."""
    if isinstance(step, Extern):
        step = step.args, step.kwargs
    return [leaf for leaf in tree_leaves(step) if isinstance(leaf, View)]
