"""What random numbers cost on a GPU, and what they save.

`python -m chapters.measure.random` trains dropout and a bias, over
16384 x 4096 bfloat16, forward and backward: eager, torch.compile, ours.
Writes results/random.json.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

import minicompile

from .timing import compare, save

ROWS, COLUMNS = 16384, 4096


def drops(x, bias):
    """Dropout as a Transformer has it, after a matmul."""
    return F.dropout(F.gelu(x + bias), 0.1)


def saved(run, *given) -> int:
    """Bytes that one forward keeps besides its inputs."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = run(*given)
    return torch.cuda.memory_allocated() - before - result.nbytes


def main() -> None:
    given = [torch.randn(ROWS, COLUMNS, device="cuda",
                         dtype=torch.bfloat16, requires_grad=True),
             torch.randn(COLUMNS, device="cuda", dtype=torch.bfloat16,
                         requires_grad=True)]
    ways = {"eager": drops, "torch.compile": torch.compile(drops),
            "minicompile": minicompile.compile(drops)}
    tangent = torch.ones(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)

    def step(run):
        return lambda: torch.autograd.grad(run(*given), given, tangent)

    took = compare({name: step(run) for name, run in ways.items()},
                   cuda=True)
    save("random", [{"way": name, "ms": took[name] * 1e3,
                     "saved_bytes": saved(run, *given)}
                    for name, run in ways.items()],
         shape=[ROWS, COLUMNS])


if __name__ == "__main__":
    main()
