"""The machine code of a printed kernel, compiled without a GPU.

Triton compiles for an H200 (architecture 90) anywhere. From the result
can be read how wide the loads are, how many registers a thread needs and
how many instructions there are.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import torch
from torch import fx

from minicompile import fusion, split
from minicompile.core.loops import Kernel
from minicompile.emit.launch import TritonPrinter
from minicompile.emit.triton import TILINGS, arguments

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32",
         torch.bfloat16: "*bf16", torch.float16: "*fp16",
         torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8",
         torch.bool: "*i1"}


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for an H200."""

    kernel: Kernel
    ptx: str
    cubin: bytes
    warps: int

    def widths(self, what: str) -> Counter:
        """How often loads (`ld`) or stores (`st`) of each kind occur."""
        return Counter(re.findall(
            rf"{what}\.global\S*?((?:\.v\d)?\.b\d+)", self.ptx))

    @cached_property
    def usage(self) -> dict[str, int]:
        """Registers a thread; bytes of stack, where spilled values go."""
        return {name: int(number) for name, number in re.findall(
            r"(REG|STACK|LOCAL):(\d+)", self._dumped("-res-usage"))}

    @cached_property
    def instructions(self) -> float:
        """Instructions of the program, for each element of a thread."""
        lines = re.findall(r"^\s+/\*[0-9a-f]{4,5}\*/.*", self._dumped(
            "-sass"), re.M)
        end = max(k for k, line in enumerate(lines) if " EXIT" in line)
        points = prod(axis.block for axis in TILINGS[-1](
            self.kernel).axes)
        return end / (points / (32 * self.warps))

    def _dumped(self, option: str) -> str:
        """The output of cuobjdump, which comes with Triton."""
        import triton
        tool = Path(triton.__file__).parent / (
            "backends/nvidia/bin/cuobjdump")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(self.cubin)
            shown = subprocess.run([tool, option, path], check=True,
                                   capture_output=True, text=True)
        return shown.stdout + shown.stderr


def kernels_of(function, *args: torch.Tensor) -> tuple[Kernel, ...]:
    """The kernels of a function of tensors, without gradients."""
    def called(*given):  # fx wants a name, which a lambda has not
        return function(*given)

    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{k}") for k in range(len(args)))
    graph.output((graph.call_function(called, inputs),))
    with torch.no_grad():
        joint = split.record(fx.GraphModule({}, graph), args)
    return fusion.fuse(joint.graph).kernels


def compiled(kernel: Kernel, wide: bool = False,
             numerics: str = "eager") -> Compiled:
    """The kernel as TritonPrinter prints it, compiled for an H200.

    `wide`: sizes that are symbols are as large as they can be.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    printer = TritonPrinter(torch.device("cuda", 0), numerics)
    text = "\n".join([printer.prelude, printer.define((kernel,))])
    path = Path(tempfile.mkdtemp()) / f"{kernel.name}.py"
    path.write_text(text)
    names = {"__name__": "program", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), names)
    launch = names[kernel.name]
    dtypes = {load.buffer: load.dtype for loop in kernel.loops
              for load in loop.loads} | {
        name: b.dtype for name, b in kernel.written.items()}
    order = [*kernel.read, *kernel.written]
    signature = {
        name: "fp32" if n in kernel.numbers else TYPES[dtypes[n]]
        for name, n in zip(arguments(kernel), order)} | (
        dict.fromkeys(map(str, kernel.symbols), "i64" if wide else "i32"))
    fixed = {name: wide for name in launch.kernel.arg_names
             if name not in signature}
    source = ASTSource(
        launch.kernel, signature | dict.fromkeys(fixed, "constexpr"), fixed,
        {(k,): [["tt.divisibility", 16]] for k, n in enumerate(order)
         if n not in kernel.numbers})
    made = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options=launch.options)
    return Compiled(kernel, made.asm["ptx"], made.asm["cubin"],
                    launch.options["num_warps"])
