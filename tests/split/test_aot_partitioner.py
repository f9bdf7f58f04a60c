"""Our partition inside PyTorch's own compilers."""

from __future__ import annotations

import copy

import pytest
import torch

import minicompile
from minicompile import split
from minicompile.core.graph import results
from minicompile.report.views.models import build
from tests.split.judge import graph_of

pytestmark = pytest.mark.filterwarnings("ignore")


def partition_fn(module, inputs, **keywords):
    partition_fn.calls += 1
    return minicompile.partition(module, inputs, **keywords,
                                 **partition_fn.budget)


partition_fn.budget = {}


def aot(dynamic):
    """AOTAutograd with our partition, the halves run by FX."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(graph, inputs):
        return make_boxed_func(graph.forward)

    return {"backend": aot_autograd(fw_compiler=compiler,
                                    bw_compiler=compiler,
                                    partition_fn=partition_fn),
            "dynamic": dynamic}


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_partition_fn_of_aot_autograd(name, dynamic):
    torch._dynamo.reset()
    partition_fn.calls = 0
    model, batch = build(name)
    check(model, torch.compile(copy.deepcopy(model), **aot(dynamic)), batch)
    assert partition_fn.calls == 1


def test_an_input_is_saved_before_it_is_written():
    """AOTAutograd leaves the write in the graph, as Inductor asks it to."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def function(x, w):
        y = (x.exp() * w).sin() + x.sin() * w.cos() + x.cos() * w.exp()
        x.add_(1)
        return y

    def compiler(graph, inputs):
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    run = torch.compile(function, backend=aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler,
        partition_fn=minicompile.partition,
        keep_inference_input_mutations=True))
    start, leaf = torch.rand(3), torch.rand(3, requires_grad=True)
    x = start.clone()
    found, = torch.autograd.grad(run(x, leaf).sum(), leaf)
    with torch.no_grad():
        want = ((start.exp() * leaf).cos() * start.exp()
                - start.sin() * leaf.sin() + start.cos() * leaf.exp())
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(x, start + 1)


def inductor(dynamic):
    """Inductor, with our partition for its own."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Ours(CustomPartitionerFn):
        def __call__(self, module, inputs, **keywords):
            return partition_fn(module, inputs, **keywords)

        def uuid(self):
            return None

    return {"dynamic": dynamic,
            "options": {"custom_partitioner_fn": Ours()}}


@pytest.mark.slow
def test_custom_partitioner_of_inductor():
    torch._dynamo.reset()
    partition_fn.calls = 0
    model, batch = build("mlp")
    check(model, torch.compile(copy.deepcopy(model), **inductor(None)),
          batch)
    assert partition_fn.calls == 1


def sized(x, w):
    y = (x @ w).softmax(-1) / x.shape[0]
    return y.view(-1)[1:] * w.shape[1], y.cumsum(0).cos().cos()


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("compiler", [aot, inductor])
def test_one_partition_for_all_sizes(compiler):
    torch._dynamo.reset()
    partition_fn.calls = 0
    compiled = torch.compile(sized, **compiler(True))
    for n in (3, 5, 8):
        x = torch.randn(n, n + 1, requires_grad=True)
        w = torch.randn(n + 1, 2 * n, requires_grad=True)
        got, want = compiled(x, w), sized(x, w)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(
            torch.autograd.grad([y.sin().sum() for y in got], [x, w]),
            torch.autograd.grad([y.sin().sum() for y in want], [x, w]))
    assert partition_fn.calls == 1


def check(eager, compiled, batch):
    want, got = eager(*batch), compiled(*batch)
    want.backward()
    got.backward()
    torch.testing.assert_close(got, want)
    for ours, theirs in zip(compiled.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)


def tower(x, *weights):
    for w in weights:
        x = torch.mm(x, w).cos()
    return x.sum()


def kept(**budget):
    """How many matrices are saved of a joint graph, in a budget."""
    args = [torch.rand(64, 64, requires_grad=True) for _ in range(6)]
    joint = split.record(graph_of(tower, args), args)
    forward, _ = minicompile.partition(
        joint.graph, None, num_fwd_outputs=1, **budget)
    return sum(node.op != "placeholder" and node.meta["val"].dim() == 2
               for node in results(forward.graph)[1:])


@pytest.mark.parametrize("budget, count", [
    ({}, 9), ({"activation_memory_budget": 0.4}, 3),
    ({"activation_memory_budget": 0.0}, 0), ({"memory": 1.0}, 9)])
def test_a_budget_for_the_partition(budget, count):
    assert kept(**budget) == count


def test_a_bound_on_the_peak_of_the_partition():
    assert kept(memory="min") < 9
    with pytest.raises(minicompile.OptionError, match="the least"):
        kept(memory="16KiB")
    for wrong in ({"memory": "1 GiB of it"}, {"activation_memory_budget": 2},
                  {"activation_memory_budget": float("nan")}):
        with pytest.raises(minicompile.OptionError, match="should be"):
            kept(**wrong)


@pytest.mark.parametrize("budget", [
    {"activation_memory_budget": 0.3}, {"memory": "min"}])
def test_a_budget_inside_of_aot_autograd(budget):
    torch._dynamo.reset()
    partition_fn.calls, partition_fn.budget = 0, budget
    try:
        model, batch = build("mlp")
        check(model, torch.compile(  # a fault would be a graph break
            copy.deepcopy(model), **aot(None), fullgraph=True), batch)
    finally:
        partition_fn.budget = {}
    assert partition_fn.calls == 1
