"""Where a training step goes, by PyTorch's profiler.

    python -m chapters.measure.steps     gpu_steps.json

On a GPU: for BERT and Llama, and each compiler, the milliseconds a step in
which a kernel runs; for ours also the largest groups of values that the
forward saves.
"""

from __future__ import annotations

import gc
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

from chapters.measure.timing import save
from minicompile.core.graph import value
from minicompile.pipeline import CompiledGraph

STEPS, LARGEST, MIB = 3, 4, 2 ** 20


def kernels(call) -> float:
    """Milliseconds of kernels in one call, the mean of a few."""
    for _ in range(4):
        call()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(STEPS):
            call()
        torch.cuda.synchronize()
    return sum(event.device_time_total
               for event in seen.key_averages()) / STEPS / 1e3


def saved() -> dict[str, float]:
    """MiB of the largest groups of saved values, by operator and dtype."""
    found: Counter = Counter()
    for made in [each for each in gc.get_objects()
                 if isinstance(each, CompiledGraph) and each.pair]:
        nodes = {node.name: node for node in made.pair.forward.graph.nodes}
        for name in made.pair.saved.keys() & made.pair.donated:
            made_by, tensor = nodes[name].name, value(nodes[name])
            found[f"{made_by.rstrip('_0123456789')} {tensor.dtype} "
                  f"{tuple(tensor.shape)}"] += tensor.nbytes / MIB
    return dict(found.most_common(LARGEST))


def on_gpu(name: str) -> list[dict]:
    """A row for each compiler."""
    from chapters.measure.gpu_transformers import MODELS, step, ways
    model, shape = MODELS[name]()
    model = model.cuda().train()
    batch = torch.randint(model.config.vocab_size, shape, device="cuda")
    rows = []
    torch._dynamo.reset()  # or it marks the sizes of the second model
    for who, run in ways(model).items():
        if who != "eager":
            rows.append({"model": name, "what": who,
                         "kernels ms": kernels(step(run, batch))})
    return [*rows[:-1], rows[-1] | {"saved MiB": saved()}]


if __name__ == "__main__":
    save("gpu_steps", on_gpu("bert") + on_gpu("llama"))
