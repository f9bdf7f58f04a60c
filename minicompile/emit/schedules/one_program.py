"""Small kernels in a row: one launch, of one program.

A GPU needs longer to start a kernel than to do the work of a few thousand
elements; so does Python on a CPU. So kernels in a row that are so small
become one. On a GPU its only program does the work of each in one block,
and between two of them all its threads wait for what the others have
stored. Equal ones are one function, which is compiled once. Results that
no other step reads lie in one piece of memory. Without this file each of
them is launched. Inductor joins independent kernels only, in
torch/_inductor/codegen/triton_combo_kernel.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate

import torch

from ...core.index import index
from ...core.loops import Buffer, Kernel
from ...core.schedule import Step
from .. import cpp
from ..cuda.equal_kernels import MOST_TENSORS, Batch, batched, united
from ..launch import TEXTS, TritonPrinter
from ..program import PLANS, Text, device_of
from ..target import TRITON
from ..triton import Axis, Tiling, arguments, pow2, print_kernel
from ..writer import computes

#: The elements of a small kernel, and how many of them a warp has; how many
#: kernels are one launch, at most, and on a CPU at least.
SMALL, FOR_EACH, MOST_CHAINED, FEWEST = 8192, 512, 32, 4
#: What the addresses in the piece of memory are multiples of, in bytes.
ALIGNED = 16


@dataclass(frozen=True)
class Chain(Batch):
    """The loops of kernels that one program runs, one after the other, and
    their results that lie in its piece of memory. `alike` has for each the
    name of the first in the program that is equal."""

    alike: tuple[str, ...] = ()
    inner: tuple[Buffer, ...] = ()

    @property
    def scratch(self) -> str:
        """The name of the piece of memory."""
        return f"{self.name}_scratch"

    @cached_property
    def places(self) -> list[int]:
        """Where each result begins there, in bytes, and the last one ends.
        """
        return [*accumulate((-(-buffer.nbytes // ALIGNED) * ALIGNED
                             for buffer in self.inner), initial=0)]

    @cached_property
    def written(self) -> dict[str, Buffer]:
        """The buffers that others can read, and the piece of memory."""
        more = Buffer(self.scratch, (index(self.places[-1]),), (index(1),),
                      torch.uint8, device_of(self))
        return Kernel.written.func(self) | (
            {more.name: more} if self.inner else {})


def single(kernel: Kernel) -> Tiling:
    """One block for all points of a kernel."""
    rows, row = (pow2(int(size)) for size in (
        kernel.rows, kernel.row_length))
    axes = Axis("x", kernel.ranges, rows), Axis("r", kernel.reduced, row)
    return Tiling(axes if kernel.reduced else axes[:1], min(
        8, max(1, rows * row // FOR_EACH)), counted="")


def is_small(step: Step) -> bool:
    """Whether one block of one program can do all its work."""
    return (type(step) is Kernel and not step.symbols and step.rows != 0
            and pow2(int(step.rows)) * pow2(int(step.row_length)) <= SMALL
            and not any(loop.down for loop in step.loops))


def joins(run: list[Step], step: Step) -> bool:
    """Whether the step is small, as the run before it is, on the same
    device, and one launch can have them all."""
    last = run[-1]
    return len(run) < MOST_CHAINED and is_small(last) and is_small(
        step) and device_of(last) == device_of(step) and len({
            name for each in (*run, step)
            for name in (*each.read, *each.written)}) <= MOST_TENSORS


def chained(text: Text) -> tuple[tuple[Step, ...], dict[str, Kernel]]:
    """The steps of a program, small kernels in a row as one."""
    steps, launched = batched(text)
    schedule = replace(text.schedule, steps=steps)
    runs: list[list[tuple[Step, tuple[str, ...]]]] = []
    for step, freed in zip(steps, schedule.last_use):
        if not runs or not joins([each for each, _ in runs[-1]], step):
            runs.append([])
        runs[-1].append((step, freed))
    steps = tuple(step for run in runs
                  for step in as_chain(text, run, launched))
    text.buffers |= {name: buffer for step in steps if isinstance(
        step, Chain) for name, buffer in step.written.items()}
    return steps, {step.name: launched.get(step.name, step)
                   for step in steps if isinstance(step, Kernel)}


def as_chain(text: Text, run: list[tuple[Step, tuple[str, ...]]],
             launched: dict[str, Kernel]) -> tuple[Step, ...]:
    """The kernels as one, given what is freed after each, and the one that
    stands for it; or a few as they are."""
    members = tuple(step for step, _ in run)
    first, *more = members
    if not more or len(members) < FEWEST and not isinstance(
            text.printers[device_of(first)], TritonPrinter):
        return members
    written = [b for each in members for b in each.written.values()]
    dead = {name for _, freed in run for name in freed}.difference(
        b.into for b in written)
    inner = tuple(b for b in written if b.name in dead and not b.into)
    return united(
        Chain, f"{first.name}_and_{len(more)}_more", members,
        (b.name for b in inner),
        tuple(launched[each.name].name for each in members), inner),


def calls(kernel: Chain, text: Callable[[Kernel], str]
          ) -> tuple[list[str], list[str]]:
    """The functions that a chain calls, one for equal kernels, as `text`
    prints them; and its calls, with the names of the tensors."""
    parts: dict[str, tuple[str, str]] = {}
    found = []
    for member, first in zip(kernel.members, kernel.alike):
        if first not in parts:
            name = f"{member.name}_part"
            parts[first] = name, text(replace(member, name=name))
        found.append(f"{parts[first][0]}({', '.join(arguments(member))})")
    return [text for _, text in parts.values()], found


def print_chain(kernel: Chain) -> str:
    """A kernel that calls what its members do, in turn."""
    texts, found = calls(kernel, partial(print_kernel, tile=single))
    parts = [text.rpartition("@triton.jit\n") for text in texts]
    how = [f"@triton.jit{'(noinline=True)' * (count > 1)}"
           for count in Counter(kernel.alike).values()]  # compiled once
    checked = any("debug=True" in about for about, *_ in parts)
    warps = max(single(each).warps for each in kernel.members)
    lines = [f"{b.name}_ptr = ({kernel.scratch}_ptr + {at})"
             f".to(tl.pointer_type({TRITON.types[b.dtype]}))"
             for b, at in zip(kernel.inner, kernel.places)]
    lines += [line for call in found
              for line in (call, "tl.debug_barrier()")][:-1]
    return "\n".join([
        *(f"{jit}\n{body}\n\n" for jit, (*_, body) in zip(how, parts)),
        *(f"# {each}" for each in computes(kernel)),
        f"@launched(grid=lambda: 1, warps={warps}"
        + ", debug=True, sanitize_overflow=False" * checked + ")",
        f"@triton.jit\ndef {kernel.name}({', '.join(arguments(kernel))}):",
        *(f"    {line}" for line in lines)])


def print_in_cpp(kernel: Chain) -> str:
    """The same in C++."""
    texts, found = calls(kernel, cpp.in_cpp)
    kinds = cpp.types(kernel)
    return "\n".join([
        *texts, cpp.head(kernel),
        *(f"    auto {b.name}_ptr = ({kinds[b.name]}*)("
          f"{kernel.scratch}_ptr + {at});"
          for b, at in zip(kernel.inner, kernel.places)),
        *(f"    {call};" for call in found), "}"])


PLANS.append(chained)
TEXTS[Chain], cpp.CPP_TEXTS[Chain] = print_chain, print_in_cpp
