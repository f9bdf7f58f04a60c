"""What belongs to torch, and to every module: switches, global hooks."""

import pytest
import torch
from torch import nn

import minicompile
from tests.same import close


def switched(x):
    return x + 1 if torch.backends.mkldnn.enabled else x - 1


def test_a_switch_that_is_read_is_guarded():
    compiled = minicompile.compile(switched, backend="eager", fullgraph=True)
    before = torch._C._get_mkldnn_enabled()
    try:
        for on in (True, False, True):
            torch._C._set_mkldnn_enabled(on)
            close(compiled(torch.ones(2)), switched(torch.ones(2)))
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_hooks_of_all_modules_are_not_for_graphs(backend):
    layer = nn.Linear(3, 3)

    def program(x):
        chosen = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return layer(x) + chosen, x * 2

    compiled = minicompile.compile(program, backend=backend)
    x, seen = torch.randn(2, 3), []
    close(compiled(x), program(x))
    hooks = [nn.modules.module.register_module_forward_hook(
        lambda module, args, out: (seen.append(type(module)), out * 2)[1]),
        nn.modules.module.register_module_forward_pre_hook(
            lambda module, args: seen.append(type(module)))]
    try:
        ours, _ = compiled(x), seen.clear()
        close(ours, program(x))
    finally:
        for hook in hooks:
            hook.remove()
    close(compiled(x), program(x))
