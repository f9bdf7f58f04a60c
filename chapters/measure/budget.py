"""What a budget asks for and what it gets: ours beside PyTorch's.

The joint graph of the book's GPT goes to both with the same shares.
Shares are of what each saves by default. Counts, not times.
Writes chapters/results/budget.json.
Run: python -m chapters.measure.budget
"""

from __future__ import annotations

import time

from functorch.compile import min_cut_rematerialization_partition
from torch._functorch import config

from chapters.measure.cuts import captured, kept
from chapters.measure.timing import save
from minicompile import split
from minicompile.budget.memory import bound
from minicompile.report.views import models
from minicompile.split.prices import min_cut

SHARES = [1.0, 0.99, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]


def ours(joint, share: float) -> dict:
    """MiB saved and GFLOP computed once more within the budget."""
    saved = bound.choose(joint, share, cut=min_cut.cut)
    return kept(joint, split.partition(joint, saved).backward)


def theirs(joint, share: float) -> dict:
    """The same by PyTorch's partitioner."""
    with config.patch(activation_memory_budget=share):
        _, backward = min_cut_rematerialization_partition(
            joint.graph, None, num_fwd_outputs=joint.forward_outputs)
    return kept(joint, backward)


def main() -> None:
    """Count and save."""
    model, batch = models.build("gpt")
    graph, inputs = captured(lambda: model(*batch))
    joint = split.record(graph, inputs)
    rows = []
    for share in SHARES:
        start = time.perf_counter()
        mine = ours(joint, share)
        seconds = time.perf_counter() - start
        torch = theirs(split.record(graph, inputs), share)
        rows.append({"share": share, "saved_mib": mine["saved_mib"],
                     "again_gflop": mine["again_gflop"], "seconds": seconds,
                     "saved_mib_torch": torch["saved_mib"],
                     "again_gflop_torch": torch["again_gflop"]})
    save("budget", rows)


if __name__ == "__main__":
    main()
