"""What the split costs and saves: ours beside AOTAutograd's.

For each model the same torch-level graph goes to both. Times are of the
joint graph and its cut, taking turns. Bytes are what the backward is
given that are no inputs; "everything" is the plan that saves all it can.
Writes chapters/results/split.json.
Run: python -m chapters.measure.split
"""

from __future__ import annotations

import statistics
import time

import torch
from functorch.compile import (
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch._dynamo.backends.common import aot_autograd

from chapters.measure.cuts import captured, kept
from chapters.measure.timing import save
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.report.views import models
from minicompile.split.recorder import DECOMPOSITIONS


def llama(layers: int = 16):
    """A Llama of real depth and tiny width, or None without the library."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return None
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
        use_cache=False)
    tokens = torch.randint(256, (2, 32))
    model = LlamaForCausalLM(config)
    return lambda: model(input_ids=tokens, labels=tokens).loss


def cases():
    """(name, a call that gives the loss)"""
    for name in ("mlp", "gpt", "resnet"):
        model, batch = models.build(name)
        yield name, lambda model=model, batch=batch: model(*batch)
    if found := llama():
        yield "llama, 16 layers", found


def ours(graph, inputs) -> tuple[float, split.Joint, split.Pair]:
    """Seconds to record, cut and part, and what came of it."""
    start = time.perf_counter()
    joint = split.record(graph, inputs)
    pair = split.partition(joint, min_cut.cut(joint).saved)
    return time.perf_counter() - start, joint, pair


def theirs(call) -> float:
    """Seconds that AOTAutograd takes for the same on the same graph."""
    times = {}

    def partition(*args, **kwargs):
        halves = min_cut_rematerialization_partition(*args, **kwargs)
        times["end"] = time.perf_counter()
        return halves

    def compiler(graph, inputs):
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler,
        partition_fn=partition, decompositions=dict(DECOMPOSITIONS))

    def timed(graph, inputs):
        times["start"] = time.perf_counter()
        return backend(graph, inputs)

    torch._dynamo.reset()
    torch.compile(call, backend=timed, fullgraph=True)()
    return times["end"] - times["start"]


def main() -> None:
    """Measure and save."""
    rows = []
    for name, call in cases():
        graph, inputs = captured(call)
        times = []
        for _ in range(5):
            seconds, joint, pair = ours(graph, inputs)
            times.append((seconds, theirs(call)))
        mine, aot = map(statistics.median, zip(*times))
        _, min_cut = min_cut_rematerialization_partition(
            joint.graph, None, num_fwd_outputs=joint.forward_outputs)
        naive = split.partition(joint, {node.name for node in joint.early})
        mine_kept, everything, torch_kept = (
            kept(joint, half)
            for half in (pair.backward, naive.backward, min_cut))
        rows.append({
            "model": name, "nodes": len(joint.graph.graph.nodes),
            "ours_ms": mine * 1e3, "aot_ms": aot * 1e3, "ratio": mine / aot,
            "everything_mib": everything["saved_mib"],
            "saved_mib": mine_kept["saved_mib"],
            "saved_mib_torch": torch_kept["saved_mib"],
            "again_gflop": mine_kept["again_gflop"],
            "again_gflop_torch": torch_kept["again_gflop"]})
    save("split", rows)


if __name__ == "__main__":
    main()
