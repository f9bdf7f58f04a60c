"""Compiled modules are modules: attributes, state, copies, threads."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import minicompile


class Net(nn.Module):
    """A layer with buffers, and an attribute that its forward reads."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.factor = 1

    def forward(self, x):
        return self.norm(self.linear(x)).relu() * self.factor

    def other(self, x):
        return self.linear(x) / 2


X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def both():
    """A module, and the same compiled: (user's, wrapper)."""
    torch.manual_seed(0)
    model = Net()
    return model, minicompile.compile(model)


def test_state_travels_both_ways():
    model, run = both()
    plain = Net()
    assert list(run.state_dict()) == [
        f"_orig_mod.{name}" for name in model.state_dict()]
    plain.load_state_dict(run._orig_mod.state_dict())
    other = minicompile.compile(Net())
    other.load_state_dict(run.state_dict())
    run.load_state_dict(minicompile.compile(Net()).state_dict())
    assert torch.equal(plain.linear.weight, other.linear.weight)
    assert not torch.equal(run.linear.weight, other.linear.weight)


def test_attributes_are_the_users_modules():
    model, run = both()
    run.eval()
    before = run(X)
    run.factor = 3
    assert model.factor == 3
    torch.testing.assert_close(run(X), 3 * before)
    model.factor = 1
    torch.testing.assert_close(run(X), before)
    run.linear = nn.Linear(4, 4)
    run.scale = nn.Parameter(torch.ones(2))
    assert run.linear is model.linear
    assert [name for name, _ in run.named_children()] == ["_orig_mod"]
    assert "scale" in dict(model.named_parameters())
    torch.testing.assert_close(run(X), model(X))
    del run.factor
    assert not hasattr(model, "factor") and not hasattr(run, "factor")
    assert "other" in dir(run) and run.other(X).shape == X.shape


def test_what_we_add_to_a_wrapper_hides_nothing_of_the_users():
    model = nn.Linear(2, 2)
    run = minicompile.compile(model)
    assert run.stats().graphs == 0 and run.cache.entries == ()
    model.stats, run.cache = "batch", [1]
    run(torch.ones(1, 2))
    assert (run.stats, run.cache, model.cache) == ("batch", [1], [1])


def test_training_is_one_switch():
    model, run = both()
    run.eval()
    assert not (run.training or model.training or model.norm.training)
    model.train()
    assert run.training
    assert "training" not in vars(run)


def test_conversion_and_gradients():
    model, run = both()
    assert run(X).dtype == torch.float32
    assert run.double() is run and run(X.double()).dtype == torch.float64
    run(X.double()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    run.zero_grad()
    assert all(p.grad is None for p in run.parameters())
    run.requires_grad_(False)
    assert not run(X.double()).requires_grad


def test_hooks_of_the_wrapper_and_of_the_module():
    model, run = both()
    seen = []
    run.register_forward_pre_hook(lambda *_: seen.append("before"))
    run.register_forward_hook(lambda *_: seen.append("after"))
    run.register_full_backward_hook(lambda *_: seen.append("backward"))
    model.register_forward_hook(lambda *_: seen.append("inside"))
    for _ in range(2):
        run(X.clone().requires_grad_()).sum().backward()
    assert seen == ["before", "inside", "after", "backward"] * 2


def hooked(layer, x):
    handle = layer.register_forward_hook(lambda m, a, out: out * 2)
    y = layer(x)
    handle.remove()
    return y


def hooked_by_a_dict(layer, x):
    layer._forward_pre_hooks[7] = lambda m, a: (a[0] + 1,)
    y = layer(x)
    del layer._forward_pre_hooks[7]
    return y


def all_hooked(layer, x):
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, a, out: out * 2)
    y = layer(x)
    handle.remove()
    return y


@pytest.mark.parametrize("function", [hooked, hooked_by_a_dict, all_hooked])
def test_a_hook_that_is_set_in_the_same_call_runs(function):
    layer, compiled = nn.Linear(4, 4), minicompile.compile(function)
    for _ in range(3):
        torch.testing.assert_close(compiled(layer, X), function(layer, X))
        assert not layer._forward_hooks and not layer._forward_pre_hooks
    assert compiled.stats().graphs and not compiled.stats().fallbacks


def test_a_hook_of_all_modules_is_called_once_for_each():
    model, run = both()
    seen, every = [], nn.modules.module
    handles = [
        every.register_module_forward_pre_hook(
            lambda module, _: seen.append(type(module).__name__)),
        every.register_module_forward_hook(lambda *given: given[2] * 2)]
    run.register_forward_hook(lambda *_: seen.append("after"))
    outer = minicompile.compile(lambda x: run(x) + 1)
    try:
        want, names = model(X), seen.copy()
        for call in (run, run, outer):
            seen.clear()
            assert torch.allclose(call(X), want + (call is outer))
            assert seen == [*names, "after"]
    finally:
        for handle in handles:
            handle.remove()


def copied(run, how):
    """A copy of a compiled module, made in one of three ways."""
    if how == "deepcopy":
        return copy.deepcopy(run)
    if how == "pickle":
        return pickle.loads(pickle.dumps(run))
    file = io.BytesIO()
    torch.save(run, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
@pytest.mark.parametrize("used", [False, True])
def test_copies_compile_for_themselves(how, used):
    model, run = both()
    if used:
        run(X)
    twin = copied(run, how)
    assert type(twin) is type(run) and twin.cache is not run.cache
    torch.testing.assert_close(twin.eval()(X), run.eval()(X))
    assert twin.stats().graphs == 1
    nn.init.zeros_(twin.linear.weight)
    assert model.linear.weight.any() and twin.stats().recompiles == 0


def test_a_copied_owner_of_a_compiled_method_calls_its_own():
    model = Net().eval()
    model.forward = minicompile.compile(model.forward)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.linear.weight)
    assert not torch.equal(twin(X), model(X))


def test_in_place():
    model = Net()
    want = copy.deepcopy(model)
    names = list(model.state_dict())
    minicompile.compile_module_(model, fullgraph=True)
    torch.testing.assert_close(model(X), want(X))
    assert model._compiled_call_impl.stats().graphs == 1
    assert list(model.state_dict()) == names
    for how in ("deepcopy", "pickle", "save"):
        twin = copied(model, how)
        assert twin._compiled_call_impl is None
        torch.testing.assert_close(twin.eval()(X), model.eval()(X))


INSTALLED = pytest.mark.skipif(
    "minicompile" not in torch.compiler.list_backends(),
    reason="PyTorch learns the name when the package is installed")


@pytest.mark.parametrize("backend", [
    minicompile.backend, pytest.param("minicompile", marks=INSTALLED)],
    ids=["function", "name"])
def test_module_compile_goes_through_dynamo(backend):
    torch._dynamo.reset()
    model, want = Net(), Net()
    want.load_state_dict(model.state_dict())
    model.compile(backend=backend)
    for _ in range(2):
        got, expected = model(X), want(X)
        torch.testing.assert_close(got, expected)
        got.sum().backward()
        expected.sum().backward()
    for mine, other in zip(model.parameters(), want.parameters()):
        torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(model.norm.running_var,
                               want.norm.running_var)


def test_inside_another_module_compiled_or_not():
    _, run = both()
    outer = nn.Sequential(run, nn.Linear(4, 2))
    want = copy.deepcopy(outer)
    assert list(outer.state_dict())[0] == "0._orig_mod.linear.weight"
    torch.testing.assert_close(outer(X), want(X))
    whole = minicompile.compile(outer)
    torch.testing.assert_close(whole(X), want(X))


def test_threads_that_compile_and_train_at_once():
    model, run = both()
    run.eval()
    models = [minicompile.compile(Net()) for _ in range(3)]
    gate, found = threading.Barrier(6), []

    def work(k):
        gate.wait()
        for step in range(4):
            each = run if k < 3 else models[k - 3]
            x = torch.full((3, 4), float(k + step), requires_grad=True)
            g, = torch.autograd.grad(each(x).sum(), x)
            with torch.no_grad():
                each(x)
            found.append((each, x, g))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 24
    for each, x, g in found:
        if each is run:
            want, = torch.autograd.grad(model(x).sum(), x)
            torch.testing.assert_close(g, want)


def test_replicas_as_data_parallel_makes_them():
    """Shallow copies, whose parameters are computed from the first's."""
    model, run = both()
    run.eval()
    for _ in range(2):
        replica = run._replicate_for_data_parallel()
        inner = model._replicate_for_data_parallel()
        inner.linear = model.linear._replicate_for_data_parallel()
        inner.linear.weight = model.linear.weight * 1
        inner.linear.bias = model.linear.bias * 1
        replica._orig_mod = inner
        found = torch.autograd.grad(replica(X).sum(), model.linear.weight)
        want = torch.autograd.grad(model(X).sum(), model.linear.weight)
        torch.testing.assert_close(found, want)


def test_grad_modes():
    _, run = both()
    run.eval()
    assert run(X).requires_grad
    with torch.no_grad():
        assert not run(X).requires_grad
    with torch.inference_mode():
        inside = run(X)
        assert inside.is_inference()
    with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
        run(inside)
    torch.testing.assert_close(run(inside.clone()), run._orig_mod(
        inside.clone()))


def test_compiled_code_dies_with_the_module():
    model, run = both()
    run(X).sum().backward()
    dead = weakref.ref(model), weakref.ref(run.cache)
    del model, run
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


@pytest.mark.parametrize("layers", [0, 2])
def test_an_encoder_told_what_is_padding(layers):
    """One layer is eager's to the last place; of several, eager's nested
    tensors make zeros of what stands at padded places."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    if layers:
        model = nn.TransformerEncoder(model, layers)
    model.eval()
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = padding[1, 2:] = True
    run = minicompile.compile(model)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            want = model(x, src_key_padding_mask=padding)
            got = run(x, src_key_padding_mask=padding)
        if layers:
            want, got = want[~padding], got[~padding]
        torch.testing.assert_close(got, want)
    assert not run.stats().graph_breaks and not run.stats().fallbacks
    names = [str(node.target) for node in
             run.cache.entries[0].trace.graph.graph.nodes]
    assert any("_transformer_encoder_layer_fwd" in name for name in names)
