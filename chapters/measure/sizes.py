"""What a size costs that is known only at run time, on a CPU.

    python -m chapters.measure.sizes

Each function compiled for its one size, and traced at the same size for
all: both programs run on the same tensor, taking turns with eager, in
one thread. And the softmax of masked rows, whose exponentials are nearly
all 0.
"""

from __future__ import annotations

from functools import partial

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from chapters.measure.timing import compare, save
from minicompile import emit, fusion
from minicompile.split.recorder import DECOMPOSITIONS

FUNCTIONS = {
    "x * 2 + x.sigmoid()": lambda x: x * 2 + x.sigmoid(),
    "softmax of rows": lambda x: x.softmax(-1),
    "sum of columns": lambda x: x.sum(0),
    "x.t() + 1": lambda x: x.t() + 1,
}


def program(function, x: torch.Tensor, mode: str):
    """The function's program, traced with or without symbols."""
    graph = make_fx(function, tracing_mode=mode,
                    decomposition_table=DECOMPOSITIONS)(x)
    return emit.emit(fusion.fuse(graph)).run


def times(name: str, x: torch.Tensor) -> dict[str, object]:
    """A row: microseconds a call."""
    function = FUNCTIONS[name]
    static, symbolic = (program(function, x, mode)
                        for mode in ("fake", "symbolic"))
    seconds = compare({
        "eager": partial(function, x), "one size": lambda: static([x]),
        "all sizes": lambda: symbolic([x])})
    return {"what": name, "shape": list(x.shape)} | {
        f"{who} us": taken * 1e6 for who, taken in seconds.items()}


def main() -> None:
    torch.set_num_threads(1)
    rows = [times(name, torch.randn(shape))
            for shape in ((32, 64), (1024, 768)) for name in FUNCTIONS]
    masked = torch.randn(512, 512)
    masked = masked.masked_fill(masked.tril() != masked, -1e9)
    rows.append(times("softmax of rows", masked) | {
        "what": "softmax of masked rows"})
    save("symbolic_sizes", rows)


if __name__ == "__main__":
    main()
