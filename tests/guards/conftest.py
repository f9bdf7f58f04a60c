"""What chapter 2's suite judges, and short ways to say a guard."""

import importlib

import pytest

from minicompile.guards import bulk, conditions, native


@pytest.fixture(params=["compiled", "python"])
def questions(request, monkeypatch):
    """The questions about lists: both ways of asking them."""
    if request.param == "python":
        monkeypatch.setattr(conditions, "questions", lambda: bulk)
        return bulk
    if native.questions() is bulk:
        pytest.skip("no C++ compiler here")
    return native.questions()


@pytest.fixture
def build(impl, questions):
    """`build_check`, or the reader's own with the same signature."""
    if impl == "torch":
        pytest.skip("PyTorch's guards are not made from a list of ours")
    if impl == "minicompile":
        impl = importlib.import_module("minicompile.guards").build_check
    return impl
