"""The explorer: the columns of a page on which every stage is linked.

In: a traced graph, compiled. Out: five columns with the user's lines, the
traced graph, the joint graph, loops and kernels. Each item names the items
that it was made of, and the script in explorer.html lights what is
connected to the one under the pointer. A kernel has its bytes, and its
time if the call was measured. PyTorch's is tlparse.
"""

import linecache
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path

import torch
from torch import fx

from ...core.machines.cost import is_foreign, machine
from ...core.errors import where_of
from ...core.graph import nbytes, tensors_of, value
from ...core.loops import Buffer, Kernel
from ...core.schedule import Step, made_by
from ...dispatch import operations
from ...emit.program import device_of
from ...pipeline import CompiledGraph
from ...split import make_runtime
from ..debugging.diagnose import gradients
from ..debugging.timing import launched_by
from .stages import accesses, printed, statement

#: Lines shown before and after one that made a node.
AROUND = 2

#: A kernel's time is the shortest in so many calls.
RUNS = 3


def item(id: str, text: str, made_of: Iterator[str] | list = (),
         note: str = "") -> dict:
    """One row of a column; `made_of` has ids of other rows."""
    return {"id": id, "text": text, "of": [*made_of], "note": note}


def columns(graph: fx.GraphModule, lowered: CompiledGraph,
            inputs: list | None = None) -> dict[str, list[dict]]:
    """The items of each column, from the user's source to kernels."""
    traced = operations(graph)
    found = {"Source": source(traced), "Graph": [
        item(f"g:{node.name}", statement(node), [f"s:{where_of(node)}"])
        for node in traced]}
    if lowered.pair:
        found["Joint graph"] = [item(
            f"j:{node.name}", statement(node),
            [f"g:{node.meta.get('of')}"], joint_note(node, lowered))
            for node in operations(lowered.joint.graph)]
    loops, kernels, times = [], [], seconds_of(lowered, inputs)
    for half, program in lowered.programs.items():
        text = program.text
        for number, step in enumerate(text.schedule.steps):
            launched = text.launched.get(getattr(step, "name", ""), step)
            rows = [item(f"l:{half}:{number}:{k}", str(loop), [
                f"j:{name}" for name in loop.origin.split()])
                for k, loop in enumerate(getattr(step, "loops", ()))]
            kernels.append(item(
                f"k:{half}:{number}",
                printed(launched, text).source if rows else str(launched),
                [row["id"] for row in rows] or [
                    f"j:{each.name.removesuffix('_0')}"
                    for each in made_by(step)],
                half + ", " + traffic(step, text.buffers, times.get((
                    half, getattr(launched, "name", ""))))))
            loops += rows
    return found | {"Loops": loops, "Kernels": kernels}


def source(nodes: list[fx.Node]) -> list[dict]:
    """The lines that the nodes came from, and those around them."""
    files: dict[str, set[int]] = {}
    for where in filter(None, map(where_of, nodes)):
        files.setdefault(where.file, set()).add(where.line)
    return [item(f"s:{file}:{line}", text.rstrip() or " ",
                 note=f"{Path(file).name}:{line}")
            for file, lines in files.items()
            for line, text in enumerate(linecache.getlines(file), 1)
            if any(abs(line - each) <= AROUND for each in lines)]


def joint_note(node: fx.Node, lowered: CompiledGraph) -> str:
    """The half of a node, and its bytes if it is saved."""
    size = sum(map(nbytes, tensors_of(value(node)))) / 2**10
    return ("backward" if node in lowered.joint.needs else "forward") + (
        f", saved, {size:.1f} KiB" * (node.name in lowered.pair.saved))


def traffic(step: Step, buffers: dict[str, Buffer],
            seconds: float | None) -> str:
    """The bytes that a step moves; a kernel's time, and its share of a
    copy's bandwidth, if it was measured."""
    size = sum(count * dtype.itemsize
               for count, dtype in accesses(step, buffers))
    note = f"{size / 2**10:.1f} KiB"
    if seconds:
        share = size / seconds / machine(device_of(step)).bandwidth
        note += f", {seconds * 1e6:.1f} us, {share:.0%} of a copy"
    return note


def taken(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call."""
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def seconds_of(lowered: CompiledGraph, inputs: list | None
               ) -> dict[tuple[str, str], float]:
    """The shortest time of each kernel, by half and name, in some more
    forwards and backwards. Nothing that a user can see is changed; if it
    might be, nothing is measured."""
    found: dict[tuple[str, str], float] = {}
    if inputs is None or not lowered.programs or lowered.graphed or any(
            is_foreign(call.target) for schedule
            in lowered.schedules.values() for call in schedule.externs) or (
                any(each.numel() and not each.untyped_storage().nbytes()
                    for each in tensors_of(inputs))):
        return found

    def timed(half: str, kernels: dict[str, Kernel], name: str,
              launch: Callable) -> None:
        found[half, name] = min(found.get((half, name), inf), taken(
            launch, device_of(kernels[name])))

    call = make_runtime(lowered.joint, lowered.pair, **{
        half: launched_by(partial(timed, half, program.text.different),
                          program.run, program.text.different)
        for half, program in lowered.programs.items()})
    with torch.random.fork_rng():
        for _ in range(RUNS):
            gradients(tensors_of(call([
                each.clone() if k in lowered.joint.mutated else each
                for k, each in enumerate(inputs)])), tensors_of(inputs))
    return found
