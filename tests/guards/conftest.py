"""What chapter 2's suite judges, and short ways to say a guard."""

import importlib

import pytest


@pytest.fixture
def build(impl):
    """`build_check`, or the reader's own with the same signature."""
    if impl == "torch":
        pytest.skip("PyTorch's guards are not made from a list of ours")
    if impl == "minicompile":
        impl = importlib.import_module("minicompile.guards").build_check
    return impl
