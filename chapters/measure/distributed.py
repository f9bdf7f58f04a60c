"""Training GPT-2 on two GPUs: a step under PyTorch's parallel wrappers.

    python -m chapters.measure.distributed           gpu_distributed.json
    python -m chapters.measure.distributed gloo      on the CPU, a small one

Two processes hold the same weights and take steps of SGD on batches of
their own, under autocast to bf16: with DistributedDataParallel and with
fully_shard, by block and whole. Eager, torch.compile and ours take turns.
"Recompiles" are those after the second step; each should be 0.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch import multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import minicompile
from chapters.measure.timing import save

PROCESSES, ROUNDS, STEPS = 2, 7, 3

COMPILERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "eager": lambda model: model,
    "minicompile": minicompile.compile,
    "torch.compile": torch.compile}
IN_PLACE: dict[str, Callable[[nn.Module], object]] = {
    "eager": lambda block: None,
    "minicompile": minicompile.compile_module_,
    "torch.compile": lambda block: block.compile()}


def around(model: nn.Module, who: str, mesh) -> nn.Module:
    return DistributedDataParallel(COMPILERS[who](model))


def inside(model: nn.Module, who: str, mesh) -> nn.Module:
    return COMPILERS[who](DistributedDataParallel(model))


def by_block(model: nn.Module, who: str, mesh) -> nn.Module:
    for block in model.transformer.h:
        IN_PLACE[who](block)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: nn.Module, who: str, mesh) -> nn.Module:
    return COMPILERS[who](by_block(model, "eager", mesh))


WAYS = {"DDP around a compiled model": around, "a compiled DDP": inside,
        "fully_shard, blocks compiled": by_block,
        "fully_shard, model compiled": whole}


def recompiled(model: nn.Module, who: str) -> int:
    """How often a model has been compiled anew, by what its compiler says.
    """
    if who == "torch.compile":
        return sum(torch._dynamo.utils.counters["recompiles"].values())
    compiled = {getattr(each, "_compiled_call_impl", None) or each
                for each in model.modules()}
    return sum(each.stats().recompiles for each in compiled
               if hasattr(each, "stats"))


def stepper(model: nn.Module, batch: torch.Tensor) -> Callable[[], None]:
    """A step of training: forward, backward, update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        with torch.autocast(batch.device.type, torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def process(rank: int, kind: str, folder: str) -> None:
    """One of the processes; the first writes the rows to the folder."""
    gpu = kind == "nccl"
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(kind, init_method=f"file://{folder}/store",
                            rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh(device.type, (PROCESSES,))
    small = {} if gpu else {"n_layer": 4, "n_embd": 64, "n_head": 4,
                            "vocab_size": 1000}
    config = transformers.GPT2Config(use_cache=False, **small)
    wait = torch.cuda.synchronize if gpu else lambda: None
    rows = []
    for name, build in WAYS.items():
        steps, models = {}, {}
        for who in COMPILERS:
            torch.manual_seed(0)
            model = transformers.GPT2LMHeadModel(config).to(device).train()
            torch.manual_seed(rank)
            batch = torch.randint(config.vocab_size,
                                  (4, 512) if gpu else (2, 32)).to(device)
            models[who] = build(model, who, mesh)
            steps[who] = stepper(models[who], batch)
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            start = time.perf_counter()
            steps[who]()
            wait()
            row = {"way": name, "what": who,
                   "first call s": time.perf_counter() - start}
            steps[who]()
            before = recompiled(models[who], who)
            for _ in range(3):
                steps[who]()
            row["recompiles"] = recompiled(models[who], who) - before
            rows.append(row)
        times: dict[str, list[float]] = {who: [] for who in COMPILERS}
        for _ in range(ROUNDS):
            for who, step in steps.items():
                wait()
                dist.barrier()
                start = time.perf_counter()
                for _ in range(STEPS):
                    step()
                wait()
                times[who].append((time.perf_counter() - start) / STEPS)
        for row in rows[-len(COMPILERS):]:
            row["step ms"] = statistics.median(times[row["what"]]) * 1e3
            if rank == 0:
                print(row, flush=True)
        minicompile.reset()
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows))
    with suppress(Exception):  # a process that has ended takes the group
        dist.destroy_process_group()


if __name__ == "__main__":
    kind = "gloo" if "gloo" in sys.argv[1:] else "nccl"
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(process, (kind, folder), nprocs=PROCESSES)
        found = json.loads(Path(folder, "rows.json").read_text())
    save("gpu_distributed" if kind == "nccl" else "cpu_distributed", found)
