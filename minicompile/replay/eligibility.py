"""Which programs to record, told from their schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ..core.schedule import Extern, Schedule, views_in
from .cuda import Cuda, Run
from .graphed_function import GraphedFunction

#: Fewer steps are launched one by one faster than a replay's outputs are
#: cloned.
WORTH = 4


def record(runs: Mapping[str, Run], schedules: Mapping[str, Schedule],
           visible: int, static: Iterable[int] = (),
           written: Iterable[int] = ()) -> GraphedFunction:
    """The programs of one graph, graphed; named as its halves are."""
    reasons = [*filter(None, map(refusal, schedules.values()))]
    if sum(len(schedule.steps) for schedule in schedules.values()) < WORTH:
        reasons.append(f"fewer than {WORTH} launches")
    devices = [buffer.device for schedule in schedules.values()
               for buffer in schedule.buffers.values()]
    index = devices[0].index if devices else 0
    return GraphedFunction(
        runs["forward"], runs.get("backward"), Cuda(index or 0),
        visible=visible, static=static, written=written,
        blocked=reasons[0] if reasons else None)


def refusal(schedule: Schedule) -> str | None:
    """Why this schedule cannot be recorded, or None."""
    devices = {buffer.device for buffer in schedule.buffers.values()}
    if any(device.type != "cuda" for device in devices):
        return "not all tensors are on a CUDA device"
    if len(devices) > 1:
        return "tensors are on several devices"
    waiting = (step.target for step in schedule.externs if _waits(step))
    first = next(waiting, None)
    return f"{first} waits for the device" if first else None


def _waits(step: Extern) -> bool:
    """Whether the operator needs a value from the device to go on."""
    tags = getattr(step.target, "tags", ())
    return torch.Tag.data_dependent_output in tags or (
        "index" in str(step.target)
        and torch.bool in [view.dtype for view in views_in(step)])
