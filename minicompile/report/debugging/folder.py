"""The debug folder: the text of each stage of each graph, as files.

In: a graph that was compiled with options={"trace.enabled": True}. Out:
a folder of Python files, in the pipeline's order, in `minicompile_debug`.
PyTorch's is torch/_inductor/debug.py (DebugContext).
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from torch import fx

from ...core.graph import render
from ...core.options import Options
from ...pipeline import COMPILED, CompiledGraph

NUMBERS = count()


def write(graph: fx.GraphModule, made: CompiledGraph,
          options: Options) -> None:
    """Write the texts of a graph, if they are asked for."""
    if not options.trace_enabled:
        return
    texts = {"graph": render(graph), "joint": made.joint}
    for half, module in (made.pair.halves() if made.pair else {}).items():
        texts |= {half: render(module, half),
                  f"{half}_loops": made.schedules.get(half),
                  f"{half}_program": made.programs.get(half)}
    folder = Path("minicompile_debug", f"{os.getpid()}_{next(NUMBERS)}")
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, text) in enumerate(texts.items()):
        if text is not None:
            (folder / f"{number}_{name}.py").write_text(f"{text}\n")


COMPILED.append(write)
