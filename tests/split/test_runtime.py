"""The autograd Function around the two halves, in the corners."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import fx, nn

import minicompile
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.core.errors import BackendError
from minicompile.report.views.models import build
from tests.judge import judged, near
from tests.split.judge import boxed, compiled, graph_of


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


def run_of(function, *args):
    return compiled(function, args)[0]


def test_a_transform_gets_results_in_their_places():
    def function(x):
        y = x * x
        return y[1:], y

    run, x = run_of(function, grad(4)), torch.arange(4.0)
    found = torch.func.grad(lambda x: run([x])[1].sum())(x)
    torch.testing.assert_close(found, 2 * x)


def test_inference_is_the_compiled_graph_itself():
    joint = split.record(graph_of(torch.sin, (torch.ones(3),)),
                         (torch.ones(3),))
    pair = split.partition(joint, set())
    forward = boxed(pair.forward)
    assert split.make_runtime(joint, pair, forward) is forward


def test_retain_graph_and_backward_twice():
    x = grad(3)
    y, = run_of(torch.sin, x)([x])
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_saved_tensor_changed_before_the_backward():
    x = grad(3)
    middle = x * 1
    y, = run_of(torch.sin, middle)([middle])
    with torch.no_grad():
        middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_copy_of_an_input_outlives_a_change_of_the_input(backend):
    def function(x, queue):
        return (x @ queue.clone().detach()).sum()

    x, queue = grad(2, 3), torch.ones(3, 4)
    y = minicompile.compile(function, backend=backend)(x, queue)
    queue.zero_()  # eager's product has saved the copy
    y.backward()
    assert x.grad.eq(4).all()


def test_outputs_without_a_gradient():
    def function(x):
        return x.sin(), x.argmax(), x.detach() * 2

    x = grad(3)
    a, b, c = run_of(function, x)([x])
    assert a.requires_grad and not b.requires_grad and not c.requires_grad
    assert torch.autograd.grad(a.sum(), x)[0].shape == x.shape


def test_a_missing_tangent_is_zeros_or_leaves_none():
    x, y = grad(3), grad(3)
    run = run_of(lambda x, y: (x.sin() * y, y.exp()), x, y)
    a, b = run([x, y])
    got = torch.autograd.grad(b.sum(), [x, y], allow_unused=True)
    assert got[0] is None
    torch.testing.assert_close(got[1], y.exp())
    a, b = run([x, y])
    got = torch.autograd.grad(a.sum(), [x, y])
    torch.testing.assert_close(got[0], x.cos() * y)
    torch.testing.assert_close(got[1], x.sin())


@pytest.mark.parametrize("tangent", [
    torch.ones(()).expand(4, 3), torch.randn(3, 4).t(),
    torch.randn(4, 6)[:, ::2]])
def test_tangents_of_any_layout(tangent):
    x = grad(4, 3)
    y, = run_of(lambda x: x.sin() * x, x)([x])
    got, = torch.autograd.grad(y, x, tangent)
    torch.testing.assert_close(got, tangent * (x.cos() * x + x.sin()))


def test_no_gradient_is_none():
    x, y = grad(3), grad(3)
    z, = run_of(lambda x, y: x.sin(), x, y)([x, y])
    got = torch.autograd.grad(z.sum(), [x, y], allow_unused=True)
    assert got[1] is None


def test_what_an_unused_input_came_from_is_not_visited():
    x, y = grad(3), grad(3)
    hidden = y.exp()
    hidden.sum().backward()  # frees what y.exp() saved
    z, = run_of(lambda x, y: x.sin() + y.detach(), x, hidden)([x, hidden])
    z.sum().backward()


def test_accumulation_over_two_calls():
    x = grad(3)
    run = run_of(torch.sin, x)
    (run([x])[0] + run([x])[0]).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos())


def test_hooks_on_inputs_and_results():
    x, seen = grad(3), []
    x.register_hook(lambda g: seen.append("input"))
    y, = run_of(torch.sin, x)([x])
    y.register_hook(lambda g: seen.append("result") or g * 2)
    y.sum().backward()
    assert seen == ["result", "input"]
    torch.testing.assert_close(x.grad, 2 * x.cos())


def test_saved_tensors_die_with_the_result():
    x, made = grad(300), []
    joint = split.record(graph_of(lambda x: (x @ x).sin(), (grad(3, 3),)),
                         (grad(3, 3),))
    pair = split.partition(joint, min_cut.cut(joint).saved)

    def forward(inputs):
        outputs = pair.forward(*inputs)
        made.extend(map(weakref.ref, outputs[1:]))
        return outputs

    x = grad(3, 3)
    run = split.make_runtime(joint, pair, forward, boxed(pair.backward))
    result = run([x])
    assert made and all(ref() is not None for ref in made)
    del result
    gc.collect()
    assert all(ref() is None for ref in made)


def test_saved_tensors_are_freed_while_the_backward_runs():
    seen = []
    args = (grad(3, 3),)
    joint = split.record(graph_of(lambda x: (x @ x).sin(), args), args)
    pair = split.partition(joint, min_cut.cut(joint).saved)

    def backward(inputs):
        alive = weakref.ref(inputs[len(pair.saved) - 1])
        outputs = pair.backward(*inputs)
        inputs.clear()
        seen.append(alive() is None)
        return outputs

    run = split.make_runtime(joint, pair, boxed(pair.forward), backward)
    run(list(args))[0].sum().backward()
    assert seen == [True]


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = (
            torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        h = self.body(x).relu()
        return self.first(h), self.second(h)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_hook_of_what_no_loss_reads_gets_zeros(create_graph):
    heads, x = Heads(), torch.randn(2, 3)
    for each in heads.parameters():
        each.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    compiled = minicompile.compile(heads, fullgraph=True)
    for which in (0, 1):
        found = []
        for model in (heads, compiled):
            heads.zero_grad()
            model(x)[which].sin().sum().backward(create_graph=create_graph)
            found.append([p.grad for p in heads.parameters()])
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(
                got, torch.zeros_like(got) if want is None else want)


def test_saved_tensor_hooks_see_what_is_saved():
    packed = []
    x = grad(3, 3)
    run = run_of(lambda x: (x @ x).sin(), x)
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: packed.append(t.shape) or t, lambda t: t):
        y, = run([x])
    y.sum().backward()
    assert packed


def test_every_node_knows_the_users_line():
    def function(x, w):
        h = x @ w
        return h.relu().sum()

    graph = fx_lines(function)
    args = (grad(2, 3), grad(3, 4))
    joint = split.record(graph, args)
    lines = {node.name: node.meta["where"].line
             for node in joint.graph.graph.nodes
             if node.op == "call_function"}
    first = function.__code__.co_firstlineno + 1
    assert lines["mm"] == first and lines["mm_1"] == first
    assert lines["relu"] == first + 1 and lines["le"] == first + 1


def fx_lines(function):
    """The function traced by FX, each node with its line."""
    from torch import fx

    from minicompile.core.errors import Where

    with fx.traceback.preserve_node_meta():
        graph = fx.symbolic_trace(function)
    start = function.__code__.co_firstlineno
    for node in graph.graph.nodes:
        line = start + (1 if node.name == "matmul" else 2)
        node.meta["where"] = Where(__file__, line, function.__name__)
    return graph


REFUSED = {
    "resize": (lambda x: x.clone().resize_(2), "shape or memory"),
    "metadata": (lambda x: x.unsqueeze_(0), "its shape or strides"),
    "overlap": (lambda x: x.expand(3, 4).add_(1), "several elements"),
    "requires_grad": (lambda x: x.requires_grad_().sin(), "requires_grad"),
    "data": (lambda x: setattr(x, "data", x * 2) or x, "other memory"),
    "a leaf": (lambda x: x.detach().requires_grad_(), "a leaf"),
    "of a leaf": (lambda x: x.detach().requires_grad_().sin(), "a leaf"),
    "list twice": (lambda x: torch._foreach_add_([x, x], 1), "twice"),
    "tuple twice": (lambda x: torch.sort(x, out=(x[1:], x.long())), "view"),
    "out= of another shape": (
        lambda x: torch.add(x, 1, out=x.clone()[None]), "view"),
    "out= grows": (lambda x: torch.sum(x, 0, out=x), "another shape"),
    "unfold": (lambda x: x.unfold(0, 2, 3).mul_(2), "unfold"),
    "dtype": (lambda x: x.long().mul_(1.5), "another dtype"),
    "quotient": (lambda x: x.long().div_(2), "another dtype"),
    "floats": (lambda x: x.long().ldexp_(x), "another dtype"),
    "normal_": (lambda x: x.new_empty(20, 2)[:, 0].normal_(),
                "order of the memory"),
    "item": (lambda x: x * x.sum().item(), "DataDependent"),
    "eager's own error": (lambda x: x @ x[:2], "size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name):
    function, reason = REFUSED[name]
    from torch import fx
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(function, (x,)),))
    with pytest.raises(BackendError, match=reason):
        split.record(fx.GraphModule({}, graph), (torch.ones(4),))


@pytest.mark.parametrize("name", ["mlp", "gpt", "resnet"])
def test_models_train_as_in_eager(name):
    model, batch = build(name)
    twin, _ = build(name)
    held = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}

    def function(*tensors):
        return torch.func.functional_call(
            twin, dict(zip(held, tensors[2:])), tensors[:2])

    run = run_of(function, *batch, *held.values())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):  # each from the same state
        twin.load_state_dict(model.state_dict())
        before = copy.deepcopy(model)
        got = trained(twin, run([*batch, *held.values()])[0])
        judged(near, got, trained(model, model(*batch)),
               lambda model, *batch: trained(model, model(*batch)),
               before, *batch)
        optimizer.step()


def trained(model, loss) -> list:
    """The loss, its gradients, and what the model's buffers are now."""
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = None
    loss.backward()
    return [loss.detach(), *(p.grad for p in parameters), *model.buffers()]


def test_a_tensor_that_a_graph_holds_is_refused():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(3.0))

        def forward(self, x):
            return x * self.scale,

    graph, x = fx.symbolic_trace(Scaled()), torch.ones(2)
    with pytest.raises(BackendError, match="scale, which should be an input"):
        split.record(graph, (x,))
    with pytest.warns(UserWarning, match="should be an input"):
        found, = minicompile.backend(graph, (x,))(x)
    assert found.eq(3).all()


@pytest.mark.parametrize("on", [False, True])
def test_results_may_be_detached_in_place(on):
    def function(x):
        y = torch.stack([x, x.sin()])  # a view of what cat makes
        return y, y[0], x + 1

    with torch.set_grad_enabled(on):
        run, x = run_of(function, grad(3)), grad(3)
        stacked, row, more = run([x])
        assert not stacked._is_view() and row._base is stacked
    for each in stacked, more:
        assert not each.detach_().requires_grad
