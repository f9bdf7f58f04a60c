"""How a program launches its Triton kernels.

In: a decorated kernel. Out: a Launch, which starts it as Triton does,
`kernel[grid](...)`. The reference compiles kernels in parallel and starts
them in less time. With `cpu_backend="triton"` the same kernels run on CPU
tensors in Triton's interpreter.
"""

import re
from collections.abc import Callable
from functools import partial

import torch

from ..core.errors import CompileError, OptionError
from ..core.loops import Kernel
from .target import FUNCTIONS
from .triton import print_kernel


class Launch:
    """A kernel and how it is launched: `run(stream, *tensors, *sizes)`.

    The last `sizes` of the arguments decide how many programs `grid` has,
    and whether positions are `wide`. A batch has such a grid a member.
    """

    def __init__(self, kernel, grid: Callable[..., int], warps: int,
                 sizes: int = 0, wide: Callable | None = None,
                 members: int = 1, **options: object):
        self.kernel, self.grid, self.sizes = kernel, grid, sizes
        self.wide, self.members = wide, members
        self.options = {"num_warps": warps, "enable_fp_fusion": False,
                        "enable_reflect_ftz": False} | options  # Triton's

    def more(self, given: tuple) -> tuple[tuple[int, ...], tuple]:
        """The sizes among the arguments; the kernel's extra arguments."""
        sizes = given[len(given) - self.sizes:]
        return sizes, (self.wide(*sizes),) if self.wide else ()

    def run(self, stream: int | None, *given: torch.Tensor | int) -> None:
        """Launch as Triton does, or interpret."""
        from .triton_math import argument
        sizes, more = self.more(given)
        with torch.cuda.device_of(next(filter(torch.is_tensor, given))):
            self.kernel[self.grid(*sizes), self.members](
                *map(argument, given), *more, **self.options)


#: How kernels are printed, by their class.
TEXTS: dict[type[Kernel], Callable[[Kernel], str]] = {Kernel: print_kernel}
#: What `numerics` makes of a kernel's text.
NUMERICS: dict[str, Callable[[str], str]] = {"eager": str}


#: Decorates a @triton.jit function: a Launch that lacks only the kernel.
launched = partial(partial, Launch)


class TritonPrinter:
    """Prints kernels for one CUDA device, or for the interpreter."""

    prelude = "\n".join([
        "import triton", "import triton.language as tl", "",
        "from minicompile.emit import triton_math as device",
        "from minicompile.emit.launch import launched",
        "from minicompile.emit.triton_math import libdevice"])
    begin = "stream = None"

    def __init__(self, device: torch.device, numerics: str = "eager"):
        self.device, self.numerics = device.index or 0, numerics

    def text(self, kernel: Kernel) -> str:
        """The kernel as a decorated function of Triton."""
        return NUMERICS[self.numerics](TEXTS[type(kernel)](kernel))

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The kernels, after the functions that they call."""
        texts = [*map(self.text, kernels)]
        called = {*re.findall(r"\b\w+(?=\()", "".join(texts))}
        return "\n\n\n".join([*(
            text.strip() for text in FUNCTIONS["triton"]
            if re.search(r"def (\w+)", text)[1] in called), *texts])

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call that launches the kernel on these tensors."""
        texts = (f"{text}.item()" if name in kernel.numbers else text
                 for name, text in zip((*kernel.read, *kernel.written),
                                       tensors))
        given = ", ".join((*texts, *numbers))
        return f"{kernel.name}.run(stream, {given})"


#: What prints kernels for a GPU: the last one.
TRITON_PRINTERS: list[type[TritonPrinter]] = [TritonPrinter]


def printer_in_triton(device: torch.device, numerics: str) -> TritonPrinter:
    """The printer for a device; the interpreter runs what the road's has
    printed. CompileError if there is no Triton."""
    try:
        from .triton_math import INTERPRETED
    except ImportError as error:
        raise CompileError(f"no Triton: {error}") from error
    if device.type == "cpu" and not INTERPRETED:
        raise OptionError(
            "cpu_backend='triton' runs kernels in Triton's interpreter,"
            " which must be chosen before triton is imported: start"
            " Python with TRITON_INTERPRET=1 in its environment")
    return TRITON_PRINTERS[0 if INTERPRETED else -1](device, numerics)
