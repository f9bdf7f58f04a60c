"""A program that runs by itself, in lines of a readable length.

Run as a script, the file makes random inputs and times `call`: no model,
no tracing, no compiler. Inductor's programs end in the same way,
with a benchmark: torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

import torch
from torch.utils.benchmark import Timer

from ...core.loops import Buffer
from ..program import FINISHES, Text, layout_text

def alone(text: Text, source: str) -> str:
    """The program, and the lines that time it on random inputs."""
    def random(buffer: Buffer | None) -> str:
        return "None" if buffer is None else (
            f"random_tensor({layout_text(buffer)}, {buffer.dtype}, "
            f"{text.devices[buffer.device]})")
    schedule = text.schedule
    made = [f"        {random(buffer)}," for buffer in schedule.inputs]
    for symbol, place in schedule.sizes.items():
        if place and not place[1]:
            made[place[0]] = f"        {symbol},"
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
    def broken(call: re.Match) -> str:
        return call[0] if len(call[0]) <= 79 else "\n".join([
            call[1], textwrap.fill(
                call[2], 79, initial_indent=" " * 8, break_long_words=False,
                subsequent_indent=" " * 8, break_on_hyphens=False)])
    return re.sub(r"^(    [^\s#(][^#(\n]*\()([^'\"\n]*)$", broken, source,
                  flags=re.MULTILINE)


def random_tensor(shape: tuple[int, ...], stride: tuple[int, ...],
                  dtype: torch.dtype, device: torch.device
                  ) -> torch.Tensor:
    """Random zeros and ones in this layout."""
    return torch.empty_strided(
        shape, stride, dtype=dtype, device=device).copy_(
            torch.randint(0, 2, shape))


def time_alone(call: Callable[[list], tuple], inputs: tuple) -> None:
    """Run `call` on the inputs and print how long it takes."""
    timer = Timer("call(list(inputs))", globals=dict(
        call=torch.no_grad()(call), inputs=inputs),
        num_threads=torch.get_num_threads())
    seconds = timer.blocked_autorange(min_run_time=0.02).median
    print(f"{seconds * 1e3:.3f} ms a call")


FINISHES.extend([folded, alone])
