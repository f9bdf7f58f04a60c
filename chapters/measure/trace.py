"""What tracing costs: ours beside Dynamo's, both with nothing behind.

Counts what a trace goes through (frames, instructions, operators) and
what it leaves (nodes, guards), and times both front ends, warm, taking
turns. Writes chapters/results/trace.json.
Run: python -m chapters.measure.trace
"""

from __future__ import annotations

import statistics
import time

import torch
import transformers

from chapters._book.running import block, inputs
from chapters.measure.timing import save
from minicompile.report.views import models
from minicompile.trace import trace
from minicompile.trace.frame import Frame


def call(target, *args, **kwargs):
    """What is traced: any callable, called."""
    return target(*args, **kwargs)


def cases():
    """(name, callable, arguments)"""
    yield "block", block, inputs()
    for name in ("mlp", "gpt", "resnet"):
        yield name, *models.build(name)
    yield "llama", *llama()


def llama():
    """transformers' Llama of 16 layers and tiny width, (model, inputs)."""
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=16, intermediate_size=32,
        num_hidden_layers=16, num_attention_heads=4, num_key_value_heads=2,
        use_cache=False)
    return transformers.LlamaForCausalLM(config).eval(), (
        torch.arange(14).view(2, 7),)


def count(target, args) -> dict:
    """Frames and instructions run, nodes and guards left."""
    seen = {"frames": 0, "instructions": 0}
    start, make = Frame.step, Frame.__init__

    def counted_step(frame, step):
        seen["instructions"] += 1
        return start(frame, step)

    def counted_frame(*given):
        seen["frames"] += 1
        make(*given)

    Frame.step, Frame.__init__ = counted_step, counted_frame
    try:
        made = trace(call, (target, args, {}))
    finally:
        Frame.step, Frame.__init__ = start, make
    nodes = [node for node in made.graph.graph.nodes
             if node.op not in ("placeholder", "output")]
    return {**seen, "nodes": len(nodes), "guards": len(made.guards)}


def ours(target, args) -> float:
    """Seconds of one trace."""
    start = time.perf_counter()
    trace(call, (target, args, {}))
    return time.perf_counter() - start


def dynamo(target, args) -> float:
    """Seconds of torch.compile's first call, less those of a later."""
    torch._dynamo.reset()
    compiled = torch.compile(target, backend="eager", fullgraph=True)
    start = time.perf_counter()
    compiled(*args)
    first = time.perf_counter()
    compiled(*args)
    return first - start - (time.perf_counter() - first)


def main() -> None:
    """Measure and save."""
    rows = []
    for name, target, args in cases():
        ours(target, args), dynamo(target, args)
        times = [(ours(target, args), dynamo(target, args))
                 for _ in range(7)]
        mine, theirs = map(statistics.median, zip(*times))
        rows.append({"model": name, **count(target, args),
                     "ours_ms": mine * 1e3, "dynamo_ms": theirs * 1e3,
                     "ratio": mine / theirs})
    save("trace", rows)


if __name__ == "__main__":
    main()
