"""What a trace looks like: graph, recipe and guards, pinned as text."""

import pytest
import torch
from torch import nn

import minicompile
from chapters._book.running import block, inputs
from minicompile.core.graph import render
from minicompile.trace import trace
from tests.same import assert_same


def show(made) -> str:
    """Everything a trace says, without what a version decides."""
    guards = "\n".join(str(guard) for guard in made.guards[1:]
                       if guard.kind not in ("is", "tensor")
                       and str(guard.source) != "Tiny.__dict__")
    inputs_ = "\n".join(source.code() for source in made.sources)
    return f"{made}\n{inputs_}\n\n{guards}"


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        for layer in self.layers:
            x = torch.relu(layer(x))
        return {"x": x, "calls": self.calls}


def call(target, *args, **kwargs):
    return target(*args, **kwargs)


def test_block(golden):
    golden("block.txt", show(trace(block, (*inputs(), 2))))


def test_module(golden):
    golden("module.txt", show(trace(call, (Tiny(), (torch.ones(1, 4),),
                                           {}))))


def test_nodes_know_their_line():
    made = trace(block, (*inputs(), 2))
    lines = [node.meta["where"].text for node in made.graph.graph.nodes
             if node.op not in ("placeholder", "output")]
    assert lines == ["h = x @ w", "h = F.layer_norm(h, (w.shape[1],))",
                     "h = F.gelu(h)", "h = h * scale"]
    assert "# h = F.gelu(h)" in render(made.graph)


def test_another_scale_has_other_guards():
    first, second = (trace(block, (*inputs(), scale)) for scale in (2, 1))
    assert len(first.graph.graph.nodes) == len(second.graph.graph.nodes) + 1
    differ = {g.key() for g in first.guards} ^ {
        g.key() for g in second.guards}
    assert {str(key[0]) for key in differ} == {"scale"}


def test_operators_on_lists_write_what_they_are_given():
    """Fake tensors do not count such writes; each becomes its own node."""
    def update(p, q, g):
        torch._foreach_mul_([p, q], 0.5)
        torch._foreach_addcdiv_([p, q], [g, q], [q, g], torch.ones(2))
        return torch._foreach_norm([p, q]), p + q

    assert_same(update, *torch.rand(3, 4).add(1).unbind(), fullgraph=True,
                backend="eager")


@pytest.mark.parametrize("form", [
    lambda a, b, c: a.clone().addcdiv_(2.0, b, c),
    lambda a, b, c: a.addcmul(2, b, c),
    lambda a, b, c: torch.Tensor.addcmul(a, tensor1=b, tensor2=c),
    lambda a, b, c: a.addcdiv(tensor1=b, tensor2=c, value=3),
    lambda a, b, c: a.addcmul(b, c, value=0.5),
    lambda a, b, c: a.clone().addcdiv_(b, c, value=a[0].detach())])
def test_every_form_of_a_scaled_product_is_one_graph(form):
    """The deprecated ones too, and one whose factor is a tensor."""
    compiled = assert_same(form, *torch.rand(3, 4).add(1).unbind(),
                           fullgraph=True)
    assert compiled.stats().graphs == 1


def test_inputs_that_share_memory_and_are_only_read():
    """They do not forbid that another one is written to."""
    def write(a, b, c):
        c.add_(a)
        return a * b

    both = torch.randn(2, 3)
    compiled = minicompile.compile(write, fullgraph=True, backend="eager")
    for _ in range(3):
        compiled(both[0], both[1], torch.randn(3))
    assert compiled.stats().graphs == 1
    x = torch.randn(3)
    want, got = x.clone(), x.clone()
    assert torch.equal(compiled(both[0], got, got), write(
        both[0], want, want)) and torch.equal(got, want)


def test_a_module_of_the_library_names_the_librarys_lines():
    """Not the line of ours that calls it."""
    seen = []

    def backend(graph, inputs):
        seen.extend(graph.graph.nodes)
        return graph.forward
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    minicompile.compile(layers, backend=backend)(torch.ones(1, 2))
    assert [(node.meta["where"].function, node.meta["where"].text)
            for node in seen if node.op == "call_function"] == [
        ("forward", "return F.linear(input, self.weight, self.bias)"),
        ("forward", "return F.relu(input, inplace=self.inplace)")]


class Gate:
    def __init__(self, w):
        self.w = w


@pytest.mark.parametrize("function, given", (
    (lambda gate, gate_w: gate.w - gate_w,
     lambda x: (Gate(x), x * 3)),
    (lambda parts: parts[1] - parts[-1], lambda x: ({1: x, -1: x * 3},)),
    (lambda parts: parts["a b"] - parts["a-b"] * parts["a_b"],
     lambda x: ({"a b": x, "a-b": x * 3, "a_b": x + 1},))))
def test_inputs_whose_names_are_spelled_alike(function, given):
    compiled = minicompile.compile(function, backend="eager")
    x = torch.ones(3)
    assert compiled(*given(x)).equal(function(*given(x)))
    assert compiled.stats().graphs and not compiled.stats().fallbacks


def test_a_tensor_that_the_graph_does_not_read_is_no_input():
    """It is returned, or looked at, and may be gone by the backward."""
    def function(x, old, shown):
        return x.square().sum() * old.dim(), shown

    compiled = minicompile.compile(function)
    x, shown = torch.randn(3, requires_grad=True), torch.ones(2)
    for _ in range(2):
        loss, same = compiled(x, torch.ones(2, 2), shown)
        assert same is shown
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.equal(torch.full((3,), 4.0))
    entry = compiled.cache.entries[0]
    assert [str(each) for each in entry.trace.sources] == ["x"]


def test_a_graph_without_an_input_is_fused():
    compiled = minicompile.compile(
        lambda: torch.arange(60.0).view(6, 10).t().reshape(5, 12).clone())
    assert compiled().equal(torch.arange(60.0).view(6, 10).t().reshape(5, 12))
    assert compiled.stats().kernels and not compiled.stats().fallbacks
