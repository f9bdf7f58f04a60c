"""The printer for CUDA: Triton kernels, and the lines that launch them.

In: kernels. Out: Python text that stands in the program's file, from
which Triton reads it. With `cpu_backend="triton"` the same kernels run on
CPU tensors in Triton's interpreter. Inductor: torch/_inductor/codegen/
triton.py and torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import torch

from ..core.errors import OptionError
from ..core.loops import Buffer, Const, Expression, Kernel, Op, rewrite
from ..core.options import Options
from .nest import simplify
from .operations import HALVES, form_of, held
from .printer import computes
from .triton_body import Body, counted
from .triton_launch import Launch
from .triton_math import INTERPRETED
from .triton_tiles import NARROW, tile, wide


class TritonPrinter:
    """Prints kernels for one CUDA device, or for the interpreter."""

    def __init__(self, options: Options, device: torch.device):
        if device.type == "cpu" and not INTERPRETED:
            raise OptionError(
                "cpu_backend='triton' runs kernels in Triton's interpreter,"
                " which must be chosen before triton is imported: start"
                " Python with TRITON_INTERPRET=1 in its environment")
        self.device = device.index or 0
        self.compiles = not INTERPRETED and torch.cuda.is_available()

    def prelude(self) -> str:
        """The imports of the kernels."""
        return "\n".join([
            "import triton",
            "import triton.language as tl",
            "",
            "from minicompile.emit import triton_math as device",
            "from minicompile.emit.triton_launch import "
            "launched, stream_of",
            "from minicompile.emit.triton_math import libdevice"])

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The kernels as functions, ready to be launched."""
        return "\n\n\n".join(map(print_kernel, kernels))

    def prepare(self, kernel: Kernel, defined: Launch,
                buffers: dict[str, Buffer]) -> Future | None:
        """Begin to compile it."""
        if self.compiles:
            return defined.prepare(kernel, self.device, *(
                buffers[name].dtype
                for name in (*kernel.read, *kernel.written)), *(
                symbol.hint for symbol in kernel.symbols))
        return None

    def begin(self) -> str:
        """Ask once for the stream that the kernels are to run on."""
        return f"stream = stream_of({self.device})"

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call that launches the kernel on these tensors."""
        given = ", ".join((*tensors, *numbers))
        return f"{kernel.name}.run(stream, {given})"


def print_kernel(kernel: Kernel) -> str:
    """The kernel's definition: how it is launched, then its body."""
    simple = simplify(kernel)
    tiling = tile(simple)
    names = [f"{name}_ptr" for name in (*kernel.read, *kernel.written)]
    names += map(str, kernel.symbols)
    head = f"@launched(grid={tiling.grid}, warps={tiling.warps})"
    fixed = [symbol.name for symbol in kernel.symbols if symbol.is_number]
    if len(fixed) < len(kernel.symbols):
        given = f"lambda {', '.join(map(str, kernel.symbols))}:"
        head = "\n".join([
            "@launched(", f"    grid={given} {tiling.grid},",
            f"    sizes={len(kernel.symbols)}, warps={tiling.warps})"])
        if counted(simple, tiling) == "WIDE":
            names.append("wide: tl.constexpr")
            most = ", ".join(map(str, wide(simple, tiling)))
            most = f"max({most})" if ", " in most else most
            head = f"{head[:-1]},\n    wide={given} {most} > {NARROW})"
    return "\n".join([
        *(f"# {about}" for about in computes(kernel)), head,
        f"@triton.jit{f'(do_not_specialize={fixed})' * bool(fixed)}",
        f"def {kernel.name}({', '.join(names)}):",
        *Body(as_on_a_gpu(simple), tiling).write()])


#: Where eager rounds a number to the other operand's 16-bit type first.
ROUNDS_NUMBERS = {"pow", "fmod", "remainder", "lt", "le", "gt", "ge"}


def as_on_a_gpu(kernel: Kernel) -> Kernel:
    """The kernel with numbers as eager takes them on a GPU."""
    return replace(kernel, loops=tuple(
        replace(loop, value=rewrite(loop.value, _as_on_a_gpu))
        for loop in kernel.loops))


def _as_on_a_gpu(node: Expression) -> Expression:
    """An operation: it multiplies by an inverse, and to get a power."""
    if not isinstance(node, Op):
        return node
    if node.name in ROUNDS_NUMBERS:
        node = replace(node, operands=tuple(map(_rounded, node.operands)))
    match node:
        case Op("div" | "pow", (value, Const(number))) if not isinstance(
                value, Const) and form_of(node)[1].is_floating_point:
            work = held(form_of(node)[1])
            if node.name == "div":
                inverse = (1 / torch.tensor(number, dtype=work)).item()
                return Op("mul", (value, Const(inverse, work)), node.dtype)
            if number in (2, 3):
                square = Op("mul", (value, value), node.dtype)
                return square if number == 2 else Op(
                    "mul", (square, value), node.dtype)
    return node


def _rounded(part: Expression) -> Expression:
    """A number of a 16-bit type rounded to it."""
    if isinstance(part, Const) and part.dtype in HALVES:
        number = torch.tensor(part.value, dtype=part.dtype).item()
        return replace(part, value=number)
    return part
