"""Options and fixtures shared by every chapter's suite."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="rewrite the golden files with what is printed")
    parser.addoption("--impl", default="minicompile",
                     help="what a suite judges: minicompile, torch, or "
                          "module:function of your own")
    parser.addoption("--seed", type=int, default=0,
                     help="which of PyTorch's own operators and modules "
                          "tests/split/test_sweep.py takes")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture
def impl(request):
    """--impl: a name, or the object that `module:attribute` names."""
    name = request.config.getoption("--impl")
    if ":" not in name:
        return name
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture
def golden(request):
    """`golden(name, text)`: the text must be what golden/name holds."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text.rstrip("\n") + "\n")
        assert path.exists(), f"no {path}: run with --update-golden"
        assert text.rstrip("\n") + "\n" == path.read_text()

    return compare


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers for a test, whichever ran before it."""
    torch.manual_seed(0)
