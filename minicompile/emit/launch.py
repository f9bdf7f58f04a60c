"""How a program launches its Triton kernels.

In: a decorated kernel. Out: a Launch, which starts it as Triton does,
`kernel[grid](...)`. The reference compiles kernels in parallel and starts
them in less time. With `cpu_backend="triton"` the same kernels run on CPU
tensors in Triton's interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future

import torch

from ..core.errors import OptionError
from ..core.loops import Buffer, Kernel
from .target import FUNCTIONS
from .triton import print_kernel


def stream_of(index: int) -> int | None:
    """The current stream of a device; None if another device is current.

    Taken from PyTorch's core, it costs 0.1 us and not 3.
    """
    if torch._C._cuda_getDevice() != index:
        return None
    return torch._C._cuda_getCurrentRawStream(index)


class Launch:
    """A kernel and how it is launched: `run(stream, *tensors, *sizes)`.

    The last `sizes` of the arguments decide how many programs `grid` has,
    and whether positions are `wide`. A batch has that for each member.
    """

    def __init__(self, kernel, grid: Callable[..., int], warps: int,
                 sizes: int = 0, wide: Callable | None = None,
                 members: int = 1, contracts: bool = False):
        self.kernel, self.grid, self.warps = kernel, grid, warps
        self.contracts = contracts  # a product and a sum, rounded once
        self.sizes, self.wide, self.members = sizes, wide, members
        self.of: Kernel | None = None  # the kernel computed

    def more(self, given: tuple) -> tuple[tuple[int, ...], tuple]:
        """The sizes among the arguments; the kernel's extra arguments."""
        sizes = given[len(given) - self.sizes:]
        return sizes, (self.wide(*sizes),) if self.wide else ()

    def run(self, stream: int | None, *given: torch.Tensor | int) -> None:
        """Launch as Triton does, or interpret."""
        from .triton_math import number_argument
        sizes, more = self.more(given)
        start = self.kernel[self.grid(*sizes), self.members]
        if interpreted():
            return start(*(number_argument(each) if type(each) is int
                           else each for each in given), *more)
        with torch.cuda.device(device_in(given)):
            start(*given, *more, num_warps=self.warps,
                  enable_fp_fusion=self.contracts)

    def warm(self, device: int | torch.device, given: tuple):
        """The kernel as Triton compiles it for such arguments."""
        _, more = self.more(given)
        with torch.cuda.device(device):
            return self.kernel.warmup(
                *given, *more, grid=(1,), num_warps=self.warps,
                enable_fp_fusion=self.contracts)

    def prepare(self, of: Kernel, device: int,
                *given: torch.dtype | int) -> Future | None:
        """Compile for such tensors and numbers, or begin to."""
        self.of = of
        self.warm(device, given)


def device_in(given: tuple) -> torch.device:
    """Where the tensors among the arguments are."""
    return next(each.device for each in given
                if isinstance(each, torch.Tensor))


def interpreted() -> bool:
    """Whether Triton interprets kernels in this process."""
    from .triton_math import INTERPRETED
    return INTERPRETED


#: How kernels are printed: the last row decides.
TEXTS: list[Callable[[Kernel], str]] = [print_kernel]
#: What `numerics` makes of a kernel's text.
NUMERICS: dict[str, Callable[[str], str]] = {"eager": str}
#: How kernels are launched: the last one.
LAUNCHES: list[type[Launch]] = [Launch]


def launched(**about: object) -> Callable:
    """Decorates a @triton.jit function: its `run` launches it."""
    kind = Launch if interpreted() else LAUNCHES[-1]
    return lambda kernel: kind(kernel, **about)


class TritonPrinter:
    """Prints kernels for one CUDA device, or for the interpreter."""

    def __init__(self, device: torch.device, numerics: str = "eager"):
        self.interpreted, self.numerics = interpreted(), numerics
        if device.type == "cpu" and not self.interpreted:
            raise OptionError(
                "cpu_backend='triton' runs kernels in Triton's interpreter,"
                " which must be chosen before triton is imported: start"
                " Python with TRITON_INTERPRET=1 in its environment")
        self.device = device.index or 0
        self.compiles = not self.interpreted and torch.cuda.is_available()

    prelude = "\n".join([
        "import triton", "import triton.language as tl", "",
        "from minicompile.emit import triton_math as device",
        "from minicompile.emit.launch import launched, stream_of",
        "from minicompile.emit.triton_math import libdevice"])

    def define(self, kernels: tuple[Kernel, ...]) -> str:
        """The kernels, after the functions that they call."""
        texts = [NUMERICS[self.numerics](TEXTS[-1](kernel))
                 for kernel in kernels]
        called = {*re.findall(r"\b\w+(?=\()", "".join(texts))}
        return "\n\n\n".join([*(
            each for given in FUNCTIONS["triton"]
            for each in given.strip().split("\n\n\n")
            if re.search(r"def (\w+)", each)[1] in called), *texts])

    def prepare(self, kernel: Kernel, defined: Launch,
                buffers: dict[str, Buffer]) -> Future | None:
        """Begin to compile it."""
        if self.compiles:
            return defined.prepare(kernel, self.device, *(
                0.0 if name in kernel.numbers else buffers[name].dtype
                for name in (*kernel.read, *kernel.written)), *(
                symbol.hint for symbol in kernel.symbols))
        return None

    @property
    def begin(self) -> str:
        """The line that asks once for the stream of the kernels."""
        return "stream = None" if self.interpreted else (
            f"stream = stream_of({self.device})")

    def launch(self, kernel: Kernel, tensors: tuple[str, ...],
               numbers: tuple[str, ...]) -> str:
        """The call that launches the kernel on these tensors."""
        texts = (f"{text}.item()" if name in kernel.numbers else text
                 for name, text in zip((*kernel.read, *kernel.written),
                                       tensors))
        given = ", ".join((*texts, *numbers))
        return f"{kernel.name}.run(stream, {given})"
