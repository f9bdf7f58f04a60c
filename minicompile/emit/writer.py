"""The text of one kernel: what C++ and Triton have in common.

In: a kernel in stages. Out: lines, one for each value. A Writer follows
the stages: values of the row, then a pass over its elements. The two
languages differ in how a load, a loop and a reduction look, and in
nothing else. Inductor's is torch/_inductor/codegen/common.py:Kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from ..core.errors import CompileError
from ..core.loops import Buffer, Const, Kernel, Op
from .stages import Local, Stage, Store
from .target import Target


@dataclass
class Writer:
    """One kernel being written; `texts` says how each value is read."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    texts: dict[Local, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    count: int = 0
    target: ClassVar[Target]

    def add(self, *lines: str) -> None:
        """Write lines in the block that is open."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str, *above: str) -> Iterator[None]:
        """Write a block; values named in it are not known after it."""
        before = dict(self.texts)
        self.lines += above
        self.add(head + self.target.opened)
        self.depth += 1
        yield
        self.depth -= 1
        self.add(*self.target.closed)
        self.texts = before

    @contextmanager
    def nest(self, *blocks) -> Iterator[None]:
        """Blocks, each in the one before."""
        with ExitStack() as opened:
            for block in blocks:
                opened.enter_context(block)
            yield

    def work(self) -> None:
        """The stages, one after the other."""
        for stage in self.stages:
            if stage.row or stage.row_stores:
                self.row(stage)
            if stage.pass_needed:
                self.elements(stage)

    def row(self, stage: Stage) -> None:
        """What a stage computes for the row, and stores."""
        self.compute(stage.row, stage.row_stores)

    def elements(self, stage: Stage) -> None:
        """A pass over the elements of the row."""
        raise NotImplementedError

    def compute(self, values: Iterable[Local],
                stores: Iterable[Store]) -> None:
        """A line for each value that has none yet, and each store."""
        for local in values:
            if local not in self.texts:
                self.name(local, self.value(local))
        for store in stores:
            self.add(self.store(store))

    def name(self, local: Local, text: str) -> None:
        """Give the value of a text a name, unless the text is one."""
        if not text.isidentifier():
            name = f"t{self.count}"
            self.count += 1
            self.add(self.target.named.format(
                name, text, type=self.target.type_of(local.dtype)))
            text = name
        self.texts[local] = text

    def value(self, local: Local) -> str:
        """The text of a value whose operands have names."""
        match local.node:
            case Op() as op:
                return self.target.operation(
                    op, [*map(self.read, local.operands)])
        raise NotImplementedError(local.node)

    def store(self, store: Store) -> str:
        """The line that puts a value into memory."""
        raise NotImplementedError

    def read(self, local: Local) -> str:
        """How a value is read: its name, or what number it is."""
        if isinstance(local.node, Const):
            return self.target.literal(local.node.value, local.dtype, True)
        return self.texts[local]


def accumulator(fold: Local) -> str:
    """The name of what a reduction accumulates, then of its result."""
    return f"{fold.node.reduction}{fold.number}"


def computes(kernel: Kernel) -> list[str]:
    """What a kernel computes, and which of the user's lines asked."""
    return list(dict.fromkeys(
        (loop.origin or loop.buffer.name)
        + (f", from {loop.where}: {loop.where.text}" if loop.where else "")
        for loop in kernel.loops))


def failure(kernel: Kernel, error: Exception) -> CompileError:
    """The error for a kernel that did not compile, and whose it is."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    why = " … ".join(dict.fromkeys([said[0], said[-1]]))
    return CompileError("\n  it computes ".join([
        f"kernel {kernel.name} does not compile: {why}",
        *computes(kernel)[:3]]))


class Printer:
    """How the kernels of one device become part of a program."""

    def prelude(self) -> str:
        """Lines for the head of the program: imports."""
        raise NotImplementedError

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """Python that defines each kernel under its own name."""
        raise NotImplementedError

    def prepare(self, kernel: Kernel, defined: object,
                buffers: dict[str, Buffer]) -> Future | None:
        """Begin to compile it; the Future to wait for, if there is one."""

    def begin(self) -> str:
        """Lines that open `call`, before it takes its inputs."""
        return ""

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """Lines that run the kernel on these tensors: those it reads,
        then those it writes."""
        raise NotImplementedError
