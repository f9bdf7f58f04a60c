"""What chapter 2's suite judges, and short ways to say a guard."""

import importlib

import pytest

from minicompile.guards import check_codegen, predicates
from minicompile.guards.fast import c_functions


@pytest.fixture(params=["compiled", "python"])
def questions(request, monkeypatch):
    """The questions about many objects: both ways of asking them."""
    if request.param == "python":
        monkeypatch.setattr(predicates, "FASTER", [])
        monkeypatch.setattr(check_codegen, "BLOCKS", [])
        return predicates.PYTHON
    return c_functions.faster() or pytest.skip("no C++ compiler here")


@pytest.fixture
def build(impl, questions):
    """`build_check`, or the reader's own with the same signature."""
    if impl == "torch":
        pytest.skip("PyTorch's guards are not made from a list of ours")
    if impl == "minicompile":
        impl = importlib.import_module("minicompile.guards").build_check
    return impl
