"""What chapter 2's suite judges, and short ways to say a guard."""

import importlib

import pytest

from minicompile.guards.fast import c_functions


@pytest.fixture(params=["compiled", "python"])
def questions(request, monkeypatch):
    """Both ways of asking about many objects: in C++, and in Python."""
    if request.param == "python":
        monkeypatch.setattr(c_functions, "compiled", lambda: None)
    elif not c_functions.compiled():
        pytest.skip("no C++ compiler here")
    return request.param


@pytest.fixture
def build(impl, questions):
    """`build_check`, or the reader's own with the same signature."""
    if impl == "torch":
        pytest.skip("PyTorch's guards are not made from a list of ours")
    if impl == "minicompile":
        impl = importlib.import_module("minicompile.guards").build_check
    return impl
