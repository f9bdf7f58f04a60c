"""Modules that PyTorch's distributed wrappers hold, in one process."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import minicompile
from minicompile.dispatch.driver import CompiledModule


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


@pytest.fixture
def mesh(tmp_path):
    """A mesh of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store",
                            rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def losses(model, steps, seed=1):
    """The loss of each of some training steps; the seed draws batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(seed)
    found = []
    for _ in range(steps):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_a_compiled_module_may_be_sharded(mesh):
    torch.manual_seed(0)
    plain = nn.Sequential(Residual(), Residual())
    model = minicompile.compile(copy.deepcopy(plain))
    fully_shard(model, mesh=mesh)
    assert isinstance(model, FSDPModule)
    assert isinstance(model, CompiledModule)
    assert type(model._orig_mod) is nn.Sequential
    torch.testing.assert_close(losses(model, 4), losses(plain, 4))
    stats = model.stats()
    assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (1, 0, 0)


def test_sharded_blocks_compile_once(mesh):
    """FSDP2 wraps its hooks anew in each call: known by their code."""
    torch.manual_seed(0)
    plain = nn.Sequential(Residual(), Residual())
    model = copy.deepcopy(plain)
    for block in model:
        fully_shard(block, mesh=mesh)
        minicompile.compile_module_(block)
    fully_shard(model, mesh=mesh)
    torch.testing.assert_close(losses(model, 2), losses(plain, 2))
    before = [block._compiled_call_impl.stats() for block in model]
    torch.testing.assert_close(losses(model, 10), losses(plain, 10))
    after = [block._compiled_call_impl.stats() for block in model]
    assert before == after
    assert [stats.recompiles for stats in after] == [0, 0]
    assert not any(stats.fallbacks for stats in after)
