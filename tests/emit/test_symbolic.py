"""One program serves all sizes: its text, and what it computes."""

import re

import pytest
import torch

from minicompile.emit import emit
from minicompile.emit.cpp import in_cpp
from minicompile.emit.triton import print_kernel
from minicompile.fusion import fuse
from tests.fusion.symbolic import assert_same_at, sized, symbolic


def share(x):
    """Each row divided by its sum, times its length."""
    return x / x.sum(-1, keepdim=True) * x.shape[-1]


def kernel_for_all_sizes():
    kernel, = fuse(symbolic(share, torch.ones(4, 6))).kernels
    return kernel


def named(text):
    """The text with s0, s1, … for the names that the ShapeEnv chose."""
    found = dict.fromkeys(re.findall(r"\bs\d+\b", text))
    names = {name: f"s{place}" for place, name in enumerate(found)}
    return re.sub(r"\bs\d+\b", lambda m: names[m.group()], text)


def test_the_text_in_cpp(golden):
    golden("symbolic.cpp", named(in_cpp(kernel_for_all_sizes())))


def test_the_text_in_triton(golden):
    golden("triton_symbolic.py", named(print_kernel(
        kernel_for_all_sizes())))


LARGE = [(4, 6), (2, 5), (3, 100_000), (5000, 3), (200, 3000), (64, 64)]
FUNCTIONS = {
    "rows": share,
    "columns": lambda x: (x - x.mean(0)).abs().amax(0),
    "all": lambda x: x.sum() / x.numel(),
    "variance": lambda x: x.var(1) + x.var(),
    "turned": lambda x: x.t() * 2 + x.t().contiguous().sin(),
    "flat": lambda x: (x[1:].reshape(-1) + 1).view(-1, x.shape[1]).sum(1),
    "ends": lambda x: torch.cat([x[-2:], x[:, :-1].flip(0).repeat(1, 2)
                                 [:, :x.shape[1]]]) + x.shape[0],
    "every second": lambda x: x[:, ::2].cos() + x[:, ::2].argmax(1, True),
    "called": lambda x: (x @ x.t()).relu().sum(1) + torch.arange(
        x.shape[0]),
    "every fourth, kept": lambda x: x[:, ::4].softmax(1),
    "kept in memory": lambda x: (x.exp() / x.exp().sum(1, True)).cumsum(1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("first", [(4, 6), (300, 2000)])
def test_programs_at_sizes_large_and_small(name, first):
    """Whatever was decided for the first size is right at the others."""
    def rounded(x):
        return FUNCTIONS[name](x)
    graph = symbolic(rounded, torch.rand(first) + 0.1)
    run = emit(fuse(graph)).run
    ran = [assert_same_at(graph, run, rounded, (torch.rand(shape) + 0.1,))
           for shape in LARGE if name != "called" or shape[0] < 1000]
    assert sum(ran) >= len(ran) - 2  # sizes equal to others can be guarded


def test_the_layout_of_an_input_is_symbolic_too():
    """A stride that no size tells is a symbol of its own."""
    x = torch.randn(6, 20)[:, :8]
    graph = symbolic(lambda x: x.sin() + x.sum(0), x)
    schedule = fuse(graph)
    program = emit(schedule)
    assert len(schedule.sizes) == 3
    for n, m, k in [(6, 20, 8), (3, 50, 40), (100, 300, 7)]:
        x = torch.randn(n, m)[:, :k]
        found, = program.run(sized(graph, [x]))
        torch.testing.assert_close(found, x.sin() + x.sum(0))
