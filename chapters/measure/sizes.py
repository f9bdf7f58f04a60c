"""What a size costs that is known only at run time, on a CPU.

    python -m chapters.measure.sizes

Each function compiled for its one size, and traced at the same size for
all: both programs run on the same tensor, taking turns with eager, in
one thread. And the softmax of masked rows, whose exponentials are nearly
all 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from chapters.measure.timing import compare, save
from minicompile import emit, fusion
from tests.fusion.graphs import aten
from tests.fusion.symbolic import sized, symbolic

FUNCTIONS = {
    "x * 2 + x.sigmoid()": lambda x: x * 2 + x.sigmoid(),
    "softmax of rows": lambda x: x.softmax(-1),
    "sum of columns": lambda x: x.sum(0),
    "x.t() + 1": lambda x: x.t() + 1,
}


def program(graph, given: list) -> Callable[[], object]:
    """A call of the graph's program."""
    run = emit.emit(fusion.fuse(graph)).run
    return lambda: run([*given])


def times(name: str, x: torch.Tensor) -> dict[str, object]:
    """A row: microseconds a call."""
    function = FUNCTIONS[name]
    varies = symbolic(function, x)
    seconds = compare({
        "eager": partial(function, x),
        "one size": program(aten(function, x), [x]),
        "all sizes": program(varies, [*map(int, sized(varies, [x])[:-1]),
                                      x])})
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
