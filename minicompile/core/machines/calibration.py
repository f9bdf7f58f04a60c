"""Machines by name, the one at hand measured, and a user's operators.

In: a device, or a custom operator. Out: a row of the tables of cost.py.
The known machines have the figures of their data sheets, taken down to the
shares of them that an H200 reaches. The figures of `--calibrate` are kept
as plain text in the cache directory, and go before the table. Without this
file every GPU is priced as an H200. PyTorch's are
torch/_inductor/analysis/device_info.py and torch/_inductor/utils.py.
"""

import json
from collections.abc import Callable
from operator import mul

import torch

from ..cache import appear
from ..disk.entries import place, within
from ..graph import operators
from .cost import OP_KINDS, MACHINES, TIMED, name_of, rated

#: Of a data sheet: bandwidth 4.2 of 4.8 TB/s, halves 780 of 989 TFLOP/s,
#: float32 50 of 67; as much of float64.
REACHED = 0.87, 0.79, 0.75, 0.75

#: Terabytes a second, and teraflops in halves, float32 and float64.
SHEETS = {
    "NVIDIA B200": (8.0, 2250, 75, 37),
    "NVIDIA H100 80GB HBM3": (3.35, 989, 67, 34),
    "NVIDIA H100 PCIe": (2.0, 756, 51, 26),
    "NVIDIA A100-SXM4-80GB": (2.04, 312, 19.5, 9.7),
    "NVIDIA A100 80GB PCIe": (1.94, 312, 19.5, 9.7),
    "NVIDIA A100-SXM4-40GB": (1.56, 312, 19.5, 9.7),
    "Tesla V100-SXM2-16GB": (0.9, 125, 15.7, 7.8),
    "NVIDIA L40S": (0.86, 362, 91.6, 1.4),
    "NVIDIA L4": (0.3, 121, 30.3, 0.5),
    "Tesla T4": (0.32, 65, 8.1, 0.25),
    "NVIDIA GeForce RTX 4090": (1.01, 165, 82.6, 1.3),
    "NVIDIA GeForce RTX 3090": (0.94, 71, 35.6, 0.6),
}


def measured(device: torch.device) -> list[float]:
    """The numbers for `rated`, of a copy, products and an addition."""
    from torch.utils.benchmark import Timer  # takes long

    def seconds(statement: str, x: torch.Tensor) -> float:
        return min(Timer(statement, globals={"x": x}, num_threads=(
            torch.get_num_threads())).blocked_autorange().times)
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 512
    large = torch.zeros(1 << (28 if on_gpu else 24), device=device)
    work = [2 * large.nbytes / seconds("x.add_(1)", large)]
    for dtype in TIMED:
        square = torch.ones(side, side, dtype=dtype, device=device)
        work.append(2 * side ** 3 / seconds("x @ x", square))
    launch = seconds("x.add_(1)", torch.zeros(1, device=device))
    return [*(each / 1e12 for each in work), launch]


def kept_rows() -> dict[str, list[float]]:
    """The rows measured on this computer; none if the file is damaged."""
    try:
        rows = json.loads((place() / "machines.json").read_text())
        return {name: row for name, row in rows.items() if rated(*row)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def calibrate(device: str) -> str:
    """Measure a device, keep the figures, and say what they are."""
    name, row = name_of(torch.device(device)), measured(
        torch.device(device))
    MACHINES[name] = rated(*row)
    text = json.dumps({**kept_rows(), name: row}, indent=1)
    path = within(lambda folder: appear(
        folder / "machines.json", text.encode))
    moved, *speeds, launch = row
    told = ", ".join(f"{str(dtype).removeprefix('torch.')} {speed:.2g}"
                     for dtype, speed in zip(TIMED, speeds))
    return (f"{name}: {moved:.2g} TB/s, {launch:.2g} s a launch, "
            f"products {told} TFLOP/s\nkept in {path}")


def register_cost(op: object, flops: Callable[..., int] | None = None
                  ) -> None:
    """Say what a custom operator costs, so that it may run again.

    `op`: as in `torch.ops.mylib.op`. `flops(*shapes, out_shape=...)` are
    its multiplications and additions, given shapes in place of tensors, as
    for PyTorch's register_flop_formula. Without it the operator takes as
    long as its bytes. It must have no effect but its result.
    """
    if flops is not None:
        from torch.utils.flop_counter import (  # takes long
            register_flop_formula)
        register_flop_formula(op)(flops)
    else:
        OP_KINDS.update(dict.fromkeys(operators(op), "copying"))


MACHINES |= {name: rated(*map(mul, sheet, REACHED))
             for name, sheet in SHEETS.items()}
MACHINES |= {name: rated(*row) for name, row in kept_rows().items()}
