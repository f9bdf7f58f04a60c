"""Kernels made by hand, run, and compared with the reference."""

from __future__ import annotations

import torch

from minicompile.core.semantics.evaluate import evaluate_kernel
from minicompile.core.index import Index, Variable, index
from minicompile.core.loops import accurate, flatten, row_major
from minicompile.core.loops import Buffer, Expression, Kernel, Load, Loop, Op
from minicompile.emit import cpp
from minicompile.fusion.lowerings import cast
from minicompile.fusion.rules.arithmetic import DOWN
from tests.judge import judged, near

CPU = torch.device("cpu")


def buffer(name: str, *shape: int, dtype=torch.float32,
           stride=None) -> Buffer:
    """A buffer on the CPU; row-major unless strides are given."""
    sizes = tuple(map(index, shape))
    steps = row_major(sizes) if stride is None else tuple(
        map(index, stride))
    return Buffer(name, sizes, steps, dtype, CPU)


def variables(letter: str, *sizes: int) -> tuple[Variable, ...]:
    """Loop variables of these sizes."""
    return tuple(Variable(f"{letter}{place}", index(size))
                 for place, size in enumerate(sizes))


def at(of: Buffer, *point) -> Index:
    """Where the element at this point lies."""
    return flatten(map(index, point), of.stride)


def load(of: Buffer, *point) -> Load:
    """The element at this point."""
    return Load(of.name, at(of, *point), of.dtype)


def in_full(op: Op) -> Expression:
    """The operation; or, if it has one, its formula, rounded once."""
    if op.name not in DOWN:
        return op
    return cast(DOWN[op.name](*(cast(part, accurate(op.dtype))
                                for part in op.operands)), op.dtype)


def pointwise(value, out: Buffer, ranges) -> Kernel:
    """`out[ranges] = value`."""
    return Kernel("kernel", ranges, (), (
        Loop(out, at(out, *ranges), ranges, value),))


def run(kernel: Kernel, given: dict[str, torch.Tensor]
        ) -> dict[str, torch.Tensor]:
    """What the compiled kernel writes, flat, by buffer."""
    return run_loaded(cpp.built(cpp.in_cpp(kernel)), kernel, given)


def run_loaded(library, kernel: Kernel, given: dict[str, torch.Tensor]
               ) -> dict[str, torch.Tensor]:
    """The same, of a library that holds the kernel."""
    made = {name: torch.zeros(int(of.elements), dtype=of.dtype)
            for name, of in kernel.written.items()}
    tensors = {**given, **made}
    names = (*kernel.read, *kernel.written)
    cpp.entry(library, kernel.name, len(names))(
        *(tensors[name].data_ptr() for name in names))
    return made


def reference(kernel: Kernel, given: dict[str, torch.Tensor]
              ) -> dict[str, torch.Tensor]:
    """What the reference evaluator writes."""
    storage = dict(given)
    storage |= {name: torch.zeros(int(of.elements), dtype=of.dtype)
                for name, of in kernel.written.items()}
    evaluate_kernel(kernel, storage)
    return {name: storage[name] for name in kernel.written}


def check(kernel: Kernel, given: dict[str, torch.Tensor], **tolerance
          ) -> None:
    """The compiled kernel writes what the reference does: as right, or
    within a tolerance for each element."""
    got = run(kernel, given)
    if not tolerance:
        return as_right(got, kernel, given)
    for name, want in reference(kernel, given).items():
        torch.testing.assert_close(got[name], want, equal_nan=True,
                                   **tolerance)


def as_right(got: dict[str, torch.Tensor], kernel: Kernel,
             given: dict[str, torch.Tensor]) -> None:
    """What was written is as right as what the reference writes."""
    for name, want in reference(kernel, given).items():
        judged(near, got[name], want, lambda *of, name=name: reference(
            *of)[name], kernel, given)
