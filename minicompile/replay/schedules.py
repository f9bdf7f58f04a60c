"""Which programs can be recorded at all, told from their schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ..core.loops import Buffer, Extern, Schedule
from .cuda import Cuda, Run
from .region import Region

#: Operators that wait for the device before they can go on.
WAITING = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


def record(runs: Mapping[str, Run], schedules: Mapping[str, Schedule],
           visible: int, static: Iterable[int] = ()) -> Region:
    """A Region for the programs of one graph, named as its halves are."""
    reasons = filter(None, map(refusal, schedules.values()))
    indices = [buffer.device.index for schedule in schedules.values()
               for buffer in _buffers(schedule)]
    return Region(runs["forward"], runs.get("backward"),
                  Cuda((indices or [0])[0] or 0), visible=visible,
                  static=static, blocked=next(reasons, None))


def refusal(schedule: Schedule) -> str | None:
    """Why this schedule cannot be recorded, or None."""
    devices = {buffer.device for buffer in _buffers(schedule)}
    if any(device.type != "cuda" for device in devices):
        return "not all tensors are on a CUDA device"
    if len(devices) > 1:
        return "tensors are on several devices"
    for step in schedule.externs:
        if set(getattr(step.target, "tags", ())) & set(WAITING):
            return f"{step.target} waits for its result's size"
    return None if schedule.steps else "there is nothing to run"


def _buffers(schedule: Schedule) -> Iterable[Buffer]:
    """Every buffer that a step reads from outside, or makes."""
    yield from filter(None, schedule.inputs)
    for step in schedule.steps:
        yield from (filter(None, step.outputs) if isinstance(step, Extern)
                    else step.written.values())
