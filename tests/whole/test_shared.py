"""Modules of one class, compiled one by one, share what was compiled."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minicompile
from minicompile.report.views.models import GPT, Block, lines


def in_place(blocks):
    """The blocks, compiled in place, and copies that are not."""
    reference = copy.deepcopy(blocks)
    for block in blocks:
        minicompile.compile_module_(block)
    return blocks, reference


def total(blocks, name):
    """A number of the stats, summed over blocks compiled in place."""
    return sum(getattr(block._compiled_call_impl.stats(), name)
               for block in blocks)


def same_step(blocks, reference, x, *more):
    """One training step of both: the same results and gradients."""
    found = wanted = x
    for block, other in zip(blocks, reference, strict=True):
        found, wanted = block(found, *more), other(wanted, *more)
    torch.testing.assert_close(found, wanted)
    found.square().mean().backward()
    wanted.square().mean().backward()
    for ours, theirs in zip(blocks, reference, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p.grad, q.grad)
            p.grad = q.grad = None


def test_twelve_blocks_have_two_graphs():
    """The first gets an input without a gradient, the others with one."""
    blocks, reference = in_place([Block(16, 2) for _ in range(12)])
    for _ in range(3):
        same_step(blocks, reference, torch.randn(2, 4, 16))
    assert total(blocks, "graphs") == 2
    assert total(blocks, "shared") == 10
    assert total(blocks, "recompiles") == 0


@pytest.mark.parametrize("chosen", [True, range(1, 6)])
def test_a_model_is_compiled_by_its_blocks(chosen):
    model = GPT(width=16, layers=6, heads=2)
    reference, batch = copy.deepcopy(model), lines()
    regions = chosen if chosen is True else [
        model.blocks[k] for k in chosen]
    minicompile.compile_module_(model, regions=regions, fullgraph=True)
    same_step([model], [reference], *batch)
    compiled = [block for block in model.blocks
                if block._compiled_call_impl]
    assert len(compiled) == (6 if chosen is True else 5)
    assert total(compiled, "graphs") == 1
    assert model._compiled_call_impl is None
    assert [*model.state_dict()] == [*reference.state_dict()]


def test_without_blocks_that_repeat_the_whole_model_is_a_region():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    minicompile.compile_module_(model, regions=True)
    model(torch.ones(2, 3))
    assert total([model], "graphs") == 1


def test_wrappers_share_too():
    layers = [nn.Linear(3, 3) for _ in range(4)]
    compiled = [minicompile.compile(layer) for layer in layers]
    x = torch.randn(2, 3)
    for ours, layer in zip(compiled, layers):
        torch.testing.assert_close(ours(x), layer(x))
    assert [each.stats().graphs for each in compiled] == [1, 0, 0, 0]


def test_what_a_shared_graph_notes_is_counted_once():
    layers = [nn.Linear(3, 3) for _ in range(3)]
    compiled = [minicompile.compile(layer) for layer in layers]
    for each in compiled:
        each(torch.randn(2, 3))
    entry, = compiled[0].cache.entries
    entry.lowered.notes["run as traced"] += 1
    assert [each.stats().fallbacks["run as traced"]
            for each in compiled] == [1, 0, 0]


class Scaled(nn.Module):
    def __init__(self, scale, width=3):
        super().__init__()
        self.scale, self.calls = scale, 0
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        self.calls += 1
        return self.norm(self.linear(x)) * self.scale


def test_what_differs_is_compiled_for_itself():
    blocks, reference = in_place([Scaled(2), Scaled(2), Scaled(5),
                                  Scaled(2, width=4)])
    for block, other in zip(blocks, reference):
        x = torch.randn(6, block.linear.in_features)
        torch.testing.assert_close(block(x), other(x))
    assert total(blocks[:2], "graphs") == 1
    assert total(blocks[2:], "graphs") >= 2


def test_each_block_is_guarded_by_itself():
    blocks, reference = in_place([Scaled(2) for _ in range(3)])
    for turn in range(6):
        if turn == 2:
            blocks[1].scale = reference[1].scale = 7
        if turn == 3:
            blocks[0].eval(), reference[0].eval()
        if turn == 4:
            blocks[2].linear = reference[2].linear = nn.Linear(3, 3, False)
        for block, other in zip(blocks, reference):
            x = torch.randn(6, 3)
            torch.testing.assert_close(block(x), other(x))
            assert block.calls == other.calls == turn + 1
            for mine, theirs in zip(block.buffers(), other.buffers()):
                torch.testing.assert_close(mine, theirs)


class Holder(nn.Module):
    def __init__(self, function, table):
        super().__init__()
        self.function, self.table = function, table

    def forward(self, x):
        self.table["seen"] = x + 1
        return self.function(x) * self.table["by"]


def test_what_an_instance_holds_is_its_own():
    blocks = [Holder(function, {"by": by}) for function, by in [
        (torch.sin, 2), (torch.cos, 2), (torch.sin, 3), (torch.sin, 2),
        (lambda x: x + 1, 2), (lambda x: x - 1, 2)]]
    for block in blocks:
        minicompile.compile_module_(block)
    for x in (torch.randn(3), torch.randn(3)):
        for block in blocks:
            wanted = block.function(x) * block.table["by"]
            torch.testing.assert_close(block(x), wanted)
            torch.testing.assert_close(block.table["seen"], x + 1)
    assert total(blocks[3:4], "shared") == 1


class Talking(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.linear = name, nn.Linear(3, 3)

    def forward(self, x):
        x = F.relu(self.linear(x))
        print(self.name)
        return self.linear(x) + 1


def test_blocks_with_a_break_share_both_parts(capsys):
    blocks, reference = in_place([Talking("same") for _ in range(4)])
    for _ in range(2):
        same_step(blocks, reference, torch.randn(2, 3))
    assert total(blocks, "graphs") <= 4
    assert capsys.readouterr().out == "same\n" * 16


def test_a_hook_on_one_block_runs_there_only():
    blocks, reference = in_place([nn.Linear(3, 3) for _ in range(3)])
    for each in (blocks[1], reference[1]):
        each.register_forward_hook(lambda module, args, out: out * 2)
    same_step(blocks, reference, torch.randn(2, 3))
    for each in (blocks[2], reference[2]):
        each.register_forward_hook(lambda module, args, out: out * 3)
    same_step(blocks, reference, torch.randn(2, 3))


@pytest.mark.parametrize("tied", [(0,), (1,), (0, 2)])
def test_tied_weights_in_some_blocks(tied):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.b(F.relu(self.a(x))) + self.a.weight.sum()

    made = [Twice() for _ in range(3)]
    for k in tied:
        made[k].b.weight = made[k].a.weight
    blocks, reference = in_place(made)
    for _ in range(2):
        same_step(blocks, reference, torch.randn(2, 3))


def test_the_first_block_may_die():
    blocks, reference = in_place([Talking(str(k)) for k in (1, 1, 1)])
    same_step(blocks, reference, torch.randn(2, 3))
    del blocks[0], reference[0]
    gc.collect()
    same_step(blocks, reference, torch.randn(2, 3))
    assert total(blocks, "shared") >= 1


def test_sizes_are_learnt_once():
    """Blocks that see a second size take the graph with symbols."""
    blocks, reference = in_place([nn.Linear(3, 3) for _ in range(4)])
    for rows in (2, 5, 7, 9):
        same_step(blocks, reference, torch.randn(rows, 3))
    assert total(blocks, "graphs") <= 4


def test_other_settings_and_backends_share_nothing():
    seen = []

    def counting(graph, inputs):
        seen.append(graph)
        return graph.forward

    x = torch.randn(2, 3)
    for arguments in (dict(backend=counting), dict(backend=counting),
                      dict(dynamic=True), dict(fullgraph=True),
                      dict(options={"recompile_limit": 3})):
        compiled = minicompile.compile(nn.Linear(3, 3), **arguments)
        compiled(x)
        assert compiled.stats().graphs == 1
        assert compiled.stats().shared == 0
    assert len(seen) == 2


def test_functions_share_nothing():
    def double(x):
        return x * 2

    for _ in range(2):
        compiled = minicompile.compile(double)
        compiled(torch.ones(3))
        assert compiled.stats().graphs == 1


def test_a_block_that_adopts_keeps_its_limit():
    limit = {"recompile_limit": 2}
    layers = [Scaled(k) for k in range(4)]
    for layer in layers:
        minicompile.compile_module_(layer, options=limit)
        layer(torch.randn(6, 3))
    probe = Scaled(9)
    minicompile.compile_module_(probe, options=limit)
    with pytest.warns(UserWarning, match="recompile_limit"):
        for scale in (0, 1, 2, 3, 0):
            probe.scale = scale
            plain = copy.deepcopy(probe)
            x = torch.randn(6, 3)
            torch.testing.assert_close(probe(x), plain(x))
    assert len(probe._compiled_call_impl.cache.entries) <= 2
