"""Machines by name, the one at hand measured, and a user's operators.

In: a device, or a custom operator. Out: a row of the tables of the roofline
in core/cost.py. The known machines have the figures of their data sheets,
taken down to the shares of them that an H200 reaches. The figures of
`--calibrate` are kept as plain text in the cache directory, and go before
the table. Without this file every GPU is priced as an H200. PyTorch's are
torch/_inductor/analysis/device_info.py and torch/_inductor/utils.py.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import torch

from .. import TOOLS
from ..cache import place, within
from ..cost import KINDS, MACHINES, Machine, name_of
from ..graph import operators

#: Of a data sheet: bandwidth 4.2 of 4.8 TB/s, halves 780 of 989 TFLOP/s,
#: float32 50 of 67.
REACHED = 0.87, 0.79, 0.75

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

#: The dtypes of the matrix products that are timed.
TIMED = torch.bfloat16, torch.float16, torch.float32, torch.float64


def of_sheet(bandwidth: float, halves: float, single: float,
             double: float) -> Machine:
    """A machine by its data sheet, in tera-units."""
    moved, low, high = (1e12 * share for share in REACHED)
    return Machine(bandwidth * moved, {
        torch.bfloat16: halves * low, torch.float16: halves * low,
        torch.float32: single * high, torch.float64: double * high}, 2e-6)


def calibrate(device: torch.device | str) -> Machine:
    """The machine as it is measured now: a copy, products, an addition.
    """
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 512
    one = torch.zeros(1, device=device)
    large = torch.zeros(1 << (28 if on_gpu else 24), device=device)
    launch = shortest(lambda: one.add_(1), device, 100)
    moving = shortest(lambda: large.add_(1), device, 3)
    arithmetic = {}
    for dtype in TIMED:
        square = torch.ones(side, side, dtype=dtype, device=device)
        arithmetic[dtype] = 2 * side ** 3 / shortest(
            lambda square=square: square @ square, device, 3)
    return Machine(2 * large.nbytes / moving, arithmetic, launch)


def shortest(run: Callable[[], object], device: torch.device,
             times: int) -> float:
    """Seconds of a call among `times` in a row, the best of five rows."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (
        lambda device: None)
    taken = []
    for _ in range(6):
        wait(device)
        start = time.perf_counter()
        for _ in range(times):
            run()
        wait(device)
        taken.append((time.perf_counter() - start) / times)
    return min(taken[1:])  # the first row warms up


def kept() -> dict[str, Machine]:
    """The rows measured on this computer; none if the file is damaged."""
    if not (place() / "machines.json").exists():
        return {}
    try:
        found = json.loads(within(lambda folder: (
            folder / "machines.json").read_text()))
        return {str(name): made(**row) for name, row in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def made(bandwidth: float, arithmetic: dict[str, float],
         launch: float) -> Machine:
    """A machine by what the file says of it."""
    speeds = {getattr(torch, name): float(speed)
              for name, speed in arithmetic.items()}
    row = Machine(float(bandwidth), speeds, float(launch))
    if set(speeds) != {*TIMED} or not all(
            0 < each and isfinite(each)
            for each in (row.bandwidth, row.launch, *speeds.values())):
        raise ValueError
    return row


def keep(device: str) -> str:
    """Measure a device, keep the figures, and say what they are."""
    name, machine = name_of(torch.device(device)), calibrate(device)
    MACHINES[name] = machine
    rows = {**kept(), name: machine}
    text = json.dumps({name: {**asdict(row), "arithmetic": {
        str(dtype).removeprefix("torch."): speed
        for dtype, speed in row.arithmetic.items()}}
        for name, row in rows.items()}, indent=1)

    def write(folder: Path) -> Path:
        part = folder / f"machines.json.{os.getpid()}"
        part.write_text(text)
        return part.replace(folder / "machines.json")

    speeds = ", ".join(f"{str(dtype).removeprefix('torch.')} {speed:.2g}"
                       for dtype, speed in machine.arithmetic.items())
    return (f"{name}: {machine.bandwidth:.2g} bytes/s, "
            f"{machine.launch:.2g} s a launch, products {speeds} "
            f"operations/s\nkept in {within(write)}")


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
        KINDS.update(dict.fromkeys(operators(op), "copying"))


MACHINES |= {name: of_sheet(*sheet) for name, sheet in SHEETS.items()}
MACHINES |= kept()
TOOLS["calibrate"], TOOLS["register_cost"] = keep, register_cost
