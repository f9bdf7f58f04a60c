"""The front of peak against time: what is simulated, and what happens.

One training step of the book's GPT on the CPU, compiled for the peak of
each plan on the front. The measured peak is PyTorch's own count of what
its allocator gave away, plus the inputs.
Writes chapters/results/peak.json.
Run: python -m chapters.measure.peak
"""

from __future__ import annotations

from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

import minicompile
from chapters.measure.cuts import captured
from chapters.measure.timing import save
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.report.views import models
from minicompile.budget.memory.bound import Plans
from minicompile.dispatch.policy.plans import fused_halves

def allocated(step) -> int:
    """The most bytes that the allocator had given away during a step."""
    with profile(profile_memory=True,
                 activities=[ProfilerActivity.CPU]) as found:
        step()
    alive, most = 0, 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    return most


def main() -> None:
    """Simulate, run and save."""
    torch.set_num_threads(1)
    model, batch = models.build("gpt")
    joint = split.record(*captured(lambda: model(*batch)), seeded=True)
    given = sum(t.nbytes for t in (*model.parameters(), *model.buffers(),
                                   *batch))
    plans = Plans(min_cut.cut(joint), partial(fused_halves, joint))
    rows = []
    for plan in plans.front():
        run = minicompile.compile(
            model, options={"memory": f"{plans.peak(plan)}B"})
        run(*batch).backward()
        model.zero_grad()
        measured = given + allocated(lambda run=run: run(*batch).backward())
        model.zero_grad()
        rows.append({"simulated_mib": plans.peak(plan) / 2 ** 20,
                     "measured_mib": measured / 2 ** 20,
                     "priced_ms": plan.seconds * 1e3})
    save("peak", rows)


if __name__ == "__main__":
    main()
