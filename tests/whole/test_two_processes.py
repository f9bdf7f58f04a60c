"""Training on two processes: DDP, both FSDPs, and collectives."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import minicompile
from tests.whole import test_distributed
from tests.whole.test_distributed import Residual

CPU = torch.device("cpu")


def losses(model, steps):
    """The losses of some training steps; each process has its batches."""
    return torch.tensor(test_distributed.losses(
        model, steps, seed=1 + dist.get_rank()))


def blocks(model, mesh, before):
    """FSDP2 of each block, which is compiled in place."""
    for block in model:
        before and minicompile.compile_module_(block)
        fully_shard(block, mesh=mesh)
        before or minicompile.compile_module_(block)
    return fully_shard(model, mesh=mesh), [
        block._compiled_call_impl for block in model]


def whole(model, mesh):
    """FSDP2 of a model that is compiled whole."""
    compiled = minicompile.compile(fully_shard(model, mesh=mesh))
    return compiled, [compiled]


def inside(wrap):
    """What wraps a compiled model."""
    def build(model, mesh):
        compiled = minicompile.compile(model)
        return wrap(compiled), [compiled]
    return build


def around(wrap):
    """A compiled wrapper of the model."""
    def build(model, mesh):
        compiled = minicompile.compile(wrap(model))
        return compiled, [compiled]
    return build


def sharded_1(model):
    return FullyShardedDataParallel(model, device_id=CPU,
                                    use_orig_params=True)


WAYS = {
    "FSDP2, blocks compiled before": lambda *a: blocks(*a, True),
    "FSDP2, blocks compiled after": lambda *a: blocks(*a, False),
    "FSDP2, whole": whole,
    "FSDP2 of a compiled model": lambda model, mesh: inside(
        lambda compiled: fully_shard(compiled, mesh=mesh))(model, mesh),
    "DDP of a compiled model": inside(DistributedDataParallel),
    "a compiled DDP": around(DistributedDataParallel),
    "FSDP1 of a compiled model": inside(sharded_1),
    "a compiled FSDP1": around(sharded_1),
}


def reduced(x, mesh):
    return functional.all_reduce(x * 2, "sum", mesh).exp()


def reduced_in_place(x, mesh):
    y = x * 2
    dist.all_reduce(y)
    return y.exp()


def process(rank, folder):
    """One of two processes; an assertion ends both."""
    os.environ["MINICOMPILE_CACHE_DIR"] = f"{folder}/cache"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    plain = nn.Sequential(Residual(), Residual())
    eager = DistributedDataParallel(copy.deepcopy(plain))
    wanted = losses(eager, 2), losses(eager, 5)
    for name, build in WAYS.items():
        model, compiled = build(copy.deepcopy(plain), mesh)
        first = losses(model, 2)
        before = [each.stats() for each in compiled]
        torch.testing.assert_close((first, losses(model, 5)), wanted,
                                   msg=lambda text, name=name: name + text)
        after = [each.stats() for each in compiled]
        assert before == after, name
        assert not any(each.fallbacks for each in after), name
        assert name == "a compiled FSDP1" or all(
            each.graphs + each.shared for each in after), name
    for function, graphs in ((reduced, 1), (reduced_in_place, 2)):
        compiled = minicompile.compile(function)
        for number in range(3):
            x = torch.arange(4.0) * (rank + 1) / (number + 1)
            torch.testing.assert_close(compiled(x, mesh), function(x, mesh))
        assert (compiled.stats().graphs, compiled.stats().recompiles) == (
            graphs, 0), (function, compiled.stats())
    dist.barrier()  # else one may leave while the other still talks to it
    dist.destroy_process_group()


@pytest.mark.slow(sample=1)
def test_two_processes_train_as_eager_does(tmp_path):
    torch.multiprocessing.spawn(process, (str(tmp_path),), nprocs=2)
