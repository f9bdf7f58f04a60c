"""Compiled functions under other tools of PyTorch, which see eager."""

import copy
import io
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

import minicompile


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def traced_by_jit():
    """torch.jit.trace of a compiled module and function, cold and warm."""
    module = model()
    for target, x in ((module, torch.randn(3, 4)),
                      (lambda x: x.sin() * 2, torch.randn(5))):
        compiled = minicompile.compile(target)
        for _ in range(2):
            kept = torch.jit.trace(compiled, (x,))
            other = torch.randn_like(x)
            assert torch.equal(kept(other), target(other))
            compiled(x)
        assert compiled.stats().graphs, compiled.stats()


def exported():
    """The tracing half of torch.onnx.export, the file if onnx is there."""
    compiled, x = minicompile.compile(model()), torch.randn(3, 4)
    for _ in range(2):
        graph = torch.jit._get_trace_graph(compiled, (x,))[0]
        assert "aten::linear" in str(graph)
        try:
            torch.onnx.export(compiled, (x,), io.BytesIO(), dynamo=False)
        except torch.onnx.OnnxExporterError as error:
            assert "not installed" in str(error)
        compiled(x)


def sharded(rank: int, port: int):
    """Three steps of a sharded module, compiled, beside eager's."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    steps = []
    for wrap in (minicompile.compile, lambda module: module):
        module = FullyShardedDataParallel(
            copy.deepcopy(model()), device_id=torch.device("cpu"))
        run, losses = wrap(module), []
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for seed in range(3):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(
                seed))
            losses.append(run(x).square().sum())
            losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
        steps.append(torch.stack(losses).detach())
        if wrap is minicompile.compile:
            assert run.stats().graph_breaks, run.stats()
    torch.testing.assert_close(*steps)
    dist.destroy_process_group()


def apart(*call: object) -> None:
    """Run one of these functions in a process of its own."""
    name, *given = call
    text = f"from tests.whole.test_others import {name} as f; f(*{given})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True,
                   timeout=300)


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("name", ["traced_by_jit", "exported"])
def test_what_torch_jit_traces_is_eager(name):
    apart(name)


@pytest.mark.slow
def test_a_sharded_module_is_eager():
    torch.multiprocessing.spawn(sharded, (20000 + os.getpid() % 9000,),
                                nprocs=2)
