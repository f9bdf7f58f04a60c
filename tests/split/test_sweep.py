"""A tenth of PyTorch's own operators and modules through the split.

`--seed N` takes another tenth; `make sweep` takes all of them.
"""

from __future__ import annotations

import pytest
import torch

from tests.split import operators

#: What is taken: suite, dtype, the share of its entries, samples of each.
TAKEN = [("operators", "float32", 0.1, 4), ("operators", "float64", 0.1, 2),
         ("in place", "float32", 0.05, 2), ("errors", "float32", 0.1, 2),
         ("modules", "float32", 0.2, 4)]


def pytest_generate_tests(metafunc):
    if "suite" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("suite, dtype, samples, entry", [
            (suite, dtype, samples, entry)
            for suite, dtype, share, samples in TAKEN
            for entry in operators.chosen(suite, seed, share)])


@pytest.mark.slow(sample=40)
def test_is_as_eager(suite, dtype, samples, entry, request):
    """Compiled, or left to eager for a reason; never wrong."""
    seed = request.config.getoption("--seed")
    wrong = {}
    for case in operators.cases(suite, entry, dtype, samples, seed):
        verdict = operators.examine(case)
        if verdict.status == "wrong":
            wrong[case.key] = verdict.reason
    assert not wrong


#: Operators that every function of tensors is made of.
COMMON = ["add", "mul", "matmul", "sum", "sort", "softmax", "where", "cat",
          "index_select", "nn.functional.layer_norm", "masked.sum",
          "nn.functional.cross_entropy"]


@pytest.mark.parametrize("entry", COMMON)
def test_is_compiled(entry):
    for case in operators.cases("operators", entry, "float32", 3):
        assert operators.examine(case) == operators.Verdict("compiled")


def test_a_view_of_an_input_as_complex_compiles():
    for case in operators.cases("operators", "view_as_complex", "float32"):
        assert operators.examine(case) == operators.Verdict("compiled")


@pytest.mark.parametrize("function, what", [
    (lambda x: x.sin() + x * 0 + x.detach() - x, "gradients"),
    (lambda x: x.sin().t().contiguous().t(), "results"),
    (lambda x: x.clone(), "sharing"),
    (lambda x: [x.sin()], "returns"),
    (lambda x: x.missing, "AttributeError"),
])
def test_a_difference_is_seen(function, what):
    """The judge names what is not eager's."""
    leaves, make = operators._called(
        torch.sin if what != "sharing" else lambda x: x.view(2, 3),
        (torch.randn(2, 3, requires_grad=True),), {})
    case = operators.Case("operators", "sin", "float32", 0, tuple(leaves),
                          make)
    want = operators.seen(case, lambda target: target)
    got = operators.seen(case, lambda target: lambda args, kwargs: function(
        *args))
    assert what in operators.differing(case, got, want)
