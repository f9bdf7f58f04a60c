"""A user's own operators: without a fake kernel, a backward, or memory."""

from __future__ import annotations

import sys

import pytest
import torch

import minicompile
from minicompile.core.errors import BackendError


@torch.library.custom_op("state::bare", mutates_args=())
def bare(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("state::no_backward", mutates_args=())
def no_backward(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("state::liar", mutates_args=())
def liar(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("state::widens", mutates_args=())
def widens(x: torch.Tensor) -> torch.Tensor:
    return x.double()


@torch.library.custom_op("state::complete", mutates_args=())
def complete(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@torch.library.custom_op("state::writes", mutates_args=("x",))
def writes(x: torch.Tensor) -> None:
    x.add_(1)


no_backward.register_fake(torch.empty_like)
complete.register_fake(torch.empty_like)
liar.register_fake(lambda x: x.new_empty(3))
widens.register_fake(torch.empty_like)
complete.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

LIBRARY = torch.library.Library("state", "FRAGMENT")
LIBRARY.define("inside(Tensor x) -> Tensor")
LIBRARY.impl("inside", lambda x: x.sin(), "CompositeExplicitAutograd")
torch.library.register_fake("state::inside", torch.empty_like, lib=LIBRARY)


def doubled(operator):
    return lambda x: operator(x) * 2


def test_complete_operators_are_compiled():
    run, x = minicompile.compile(doubled(complete)), torch.randn(
        4, requires_grad=True)
    run(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos())
    assert not run.stats().fallbacks and not run.stats().graph_breaks


def test_without_a_fake_kernel_it_is_a_break_with_the_way_out():
    x = torch.randn(4)
    run = minicompile.compile(doubled(bare))
    torch.testing.assert_close(run(x), x * 4)
    assert run.stats().graph_breaks == 1
    with pytest.raises(minicompile.Unsupported, match="register_fake"):
        minicompile.compile(doubled(bare), fullgraph=True)(x)


def test_without_a_backward_eagers_error():
    run, x = minicompile.compile(doubled(no_backward)), torch.randn(
        4, requires_grad=True)
    with pytest.raises(RuntimeError, match="register_autograd"):
        run(x).sum().backward()
    assert any("register_autograd" in why for why in run.stats().fallbacks)
    with torch.no_grad():
        torch.testing.assert_close(run(x), x * 4)


def test_a_backward_that_only_eager_can_see():
    run, x = minicompile.compile(doubled(torch.ops.state.inside)), (
        torch.randn(4, requires_grad=True))
    run(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos())
    assert any("register_autograd" in why for why in run.stats().fallbacks)


def test_a_fake_kernel_that_promises_another_shape():
    run = minicompile.compile(doubled(liar))
    with pytest.raises(BackendError, match=r"state.liar.*\(4,\).*\(3,\)"):
        run(torch.randn(4))


def test_a_fake_kernel_that_promises_another_dtype():
    run = minicompile.compile(doubled(widens))
    with pytest.raises(BackendError, match=r"widens.*float64.*float32"):
        run(torch.randn(4))


def test_an_operator_that_writes():
    def function(x):
        writes(x)
        return x * 2

    run, x = minicompile.compile(function), torch.ones(4)
    torch.testing.assert_close(run(x), torch.full((4,), 4.0))
    torch.testing.assert_close(x, torch.full((4,), 2.0))


def test_memory_that_runs_out_while_compiling(monkeypatch):
    """It is no tensor's fault: the error says what was being done."""
    def exhausted(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    run = minicompile.compile(lambda x: torch.sin(x))
    monkeypatch.setattr(sys.modules["minicompile.split.record"].Player,
                        "call_function", exhausted)
    x = torch.randn(4)
    torch.testing.assert_close(run(x), x.sin())
    assert any("out of memory" in why for why in run.stats().fallbacks)
