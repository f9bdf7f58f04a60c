"""A program that runs by itself, in lines of a readable length.

Run as a script, the file makes random inputs and times `call`: no model,
no tracing, no compiler. Inductor's programs end in the same way,
with a benchmark: torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

import re
import statistics
import textwrap
import time
from collections.abc import Callable

import torch

from ...core.loops import Buffer
from ..program import FINISHES, Text, numbers

#: A space inside of a text, where no line may be broken.
UNBROKEN = "\N{NO-BREAK SPACE}"


def alone(text: Text, source: str) -> str:
    """The program, and the lines that time it on random inputs."""
    def random(buffer: Buffer | None) -> str:
        return "None" if buffer is None else (
            f"random_tensor({numbers(buffer.shape)}, "
            f"{numbers(buffer.stride)}, {buffer.dtype}, "
            f"{text.devices[buffer.device]})")
    schedule = text.schedule
    made = [f"        {random(buffer)}," for buffer in schedule.inputs]
    for symbol, given in schedule.sizes.items():
        if given and not given.of:
            made[given.input] = f"        {symbol},"
    return source + "\n".join([
        "", "", 'if __name__ == "__main__":',
        "    from minicompile.emit.reading.alone import (random_tensor,",
        "                                                time_alone)",
        *(f"    {symbol} = {symbol.formula or symbol.hint}"
          for symbol in schedule.sizes),
        *(f"    {text.names[name]} = {random(text.buffers[name])}"
          for name in schedule.constants),
        "    time_alone(call, (", *made, "    ))", ""])


def folded(_: Text, source: str) -> str:
    """The program, its long calls broken after their first brackets."""
    return "\n".join(map(_folded, source.split("\n")))


def _folded(line: str) -> str:
    """The line of `call`, broken if it is long."""
    found = re.match(r"(    [^#(]*\()(.*)", line)
    if len(line) <= 79 or not found or line.startswith("     "):
        return line
    kept = re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"",
                  lambda text: text[0].replace(" ", UNBROKEN), found[2])
    return "\n".join([found[1], textwrap.fill(
        kept, 79, initial_indent=" " * 8, subsequent_indent=" " * 8,
        break_long_words=False, break_on_hyphens=False,
    )]).replace(UNBROKEN, " ")


def random_tensor(shape: tuple[int, ...], stride: tuple[int, ...],
                  dtype: torch.dtype, device: torch.device
                  ) -> torch.Tensor:
    """Random numbers in this layout; 0 and 1 if they are whole."""
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return made.normal_()
    return made.copy_(torch.randint(0, 2, shape))


def time_alone(call: Callable[[list], tuple], inputs: tuple) -> None:
    """Run `call` on the inputs and print how long it takes."""
    cuda = any(isinstance(given, torch.Tensor) and given.is_cuda
               for given in inputs)
    wait = torch.cuda.synchronize if cuda else lambda: None
    seconds = []
    with torch.no_grad():
        for _ in range(20):
            start = time.perf_counter()
            call(list(inputs))
            wait()
            seconds.append(time.perf_counter() - start)
    print(f"{statistics.median(seconds) * 1e3:.3f} ms a call, the first "
          f"{seconds[0] * 1e3:.3f} ms")


FINISHES.extend([folded, alone])
