"""Running one printed Triton kernel, and what it is judged by."""

import hashlib
from pathlib import Path

import torch

from minicompile.core.semantics.evaluate import evaluate_kernel
from minicompile.core.index import Variable, index
from minicompile.core.loops import SCANS, flatten, row_major
from minicompile.core.loops import Buffer, Kernel, Load, Loop
from minicompile.emit.cuda.launcher import stream_of
from minicompile.emit.launch import printer_in_triton
from minicompile.emit.triton_math import INTERPRETED

DEVICE = torch.device("cpu" if INTERPRETED else "cuda:0")
RUNS = INTERPRETED or torch.cuda.is_available()


def load(kernel: Kernel, folder: Path) -> dict:
    """The module of a program that has this kernel only."""
    printer = printer_in_triton(DEVICE, "eager")
    text = "\n".join([printer.prelude, "", printer.define((kernel,))])
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / f"{name}.py"
    path.write_text(text)
    names = {"__name__": name, "__file__": str(path)}
    exec(compile(text, str(path), "exec"), names)
    return names


def run(kernel: Kernel, storage: dict, folder: Path) -> dict:
    """What the printed kernel writes, given what it reads."""
    written = {name: torch.zeros(int(b.elements), dtype=b.dtype)
               for name, b in kernel.written.items()}
    tensors = [storage[name].to(DEVICE) for name in kernel.read]
    outputs = {name: t.to(DEVICE) for name, t in written.items()}
    stream = None if INTERPRETED else stream_of(0)
    launch = load(kernel, folder)[kernel.name]
    for _ in range(2):  # the second call is launched another way
        launch.run(stream, *tensors, *outputs.values())
    return {name: t.cpu() for name, t in outputs.items()}


def reference(kernel: Kernel, storage: dict) -> dict:
    """What the evaluator says that the kernel writes."""
    storage = dict(storage)
    evaluate_kernel(kernel, storage)
    return {name: storage[name] for name in kernel.written}


def judge(kernel: Kernel, storage: dict, folder: Path,
          loose: dict | None = None, **tolerance) -> None:
    """Fail unless the printed kernel and the evaluator agree, each
    element within a tolerance; `loose` has the buffers with their own.
    """
    found, wanted = run(kernel, storage, folder), reference(kernel, storage)
    for name in wanted:
        torch.testing.assert_close(
            found[name], wanted[name], equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
            **(loose or {}).get(name, tolerance))


def buffer(name: str, shape, dtype=torch.float32) -> Buffer:
    """A contiguous buffer on the device under test."""
    sizes = tuple(map(index, shape))
    return Buffer(name, sizes, row_major(sizes), dtype, DEVICE)


def variables(letter: str, shape) -> tuple[Variable, ...]:
    """Loop variables of these sizes."""
    return tuple(Variable(f"{letter}{k}", index(size))
                 for k, size in enumerate(shape))


def at(source: Buffer, ranges) -> Load:
    """The element of a buffer at the point of the ranges."""
    return Load(source.name, flatten(map(index, ranges), source.stride),
                source.dtype)


def pointwise(value, out: Buffer, ranges, name="kernel_0") -> Kernel:
    """A kernel that stores one value at every point."""
    where = flatten(map(index, ranges), out.stride)
    return Kernel(name, ranges, (), (Loop(out, where, ranges, value),))


def reducing(reduction: str, value, out: Buffer, ranges, reduced,
             name="kernel_0") -> Kernel:
    """A kernel that reduces one value; a scan has one for each element."""
    points = (*ranges, *reduced) if reduction in SCANS else ranges
    where = flatten(map(index, points), out.stride)
    return Kernel(name, ranges, reduced, (
        Loop(out, where, ranges, value, reduced, reduction),))
