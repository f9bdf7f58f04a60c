"""Options and fixtures shared by every chapter's suite."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.book import answers


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="rewrite the golden files with what is printed")
    parser.addoption("--impl", default="minicompile",
                     help="what a suite judges: minicompile, torch, or "
                          "module:function of your own")
    parser.addoption("--mine", nargs="?", const="exercises",
                     help="judge the answers in this folder, exercises/ if "
                          "none is named, in place of the book's solutions")
    parser.addoption("--seed", type=int, default=0,
                     help="which of PyTorch's own operators and modules "
                          "tests/split/test_sweep.py takes, and which "
                          "tests are quick")
    parser.addoption("--part", choices=["quick", "rest"],
                     help="quick: the slow tests are left out, but for a "
                          "sample; rest: only what quick leaves out")
    parser.addoption("--share", type=int,
                     help="a sixteenth of the tests: each number draws "
                          "another")


def pytest_configure(config):
    """MINICOMPILE_TEST_MKLDNN=0: as on a processor without oneDNN."""
    if mine := config.getoption("--mine"):
        answers.MINE[:] = [Path(mine)]
    if os.environ.get("MINICOMPILE_TEST_MKLDNN") == "0":
        torch.backends.mkldnn.set_flags(False)


def pytest_collection_modifyitems(config, items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    part, drawn = (config.getoption(name) for name in ("--part", "--share"))
    chosen = quick(items, config.getoption("--seed")) if part else set()

    def wanted(item) -> bool:
        luck = random.Random(f"{drawn} {item.nodeid}").random()
        return (part is None or (part == "quick") == (item in chosen)) and (
            drawn is None or luck < 1 / 16)
    config.hook.pytest_deselected(
        items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


def quick(items, seed: int) -> set:
    """What is not marked slow, and of each slow family its `sample`.

    A family is a parametrised test; what this machine skips is drawn
    apart.
    """
    chosen, families = set(), defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow"):
            skipped = item.get_closest_marker("gpu") is not None
            families[item.nodeid.split("[")[0], skipped].append(item)
        else:
            chosen.add(item)
    for (name, _), members in families.items():
        sample = members[0].get_closest_marker("slow").kwargs.get("sample", 0)
        chosen |= set(random.Random(f"{seed} {name}").sample(
            members, min(sample, len(members))))
    return chosen


@pytest.fixture(autouse=True)
def apart():
    """No test meets what another has compiled."""
    if package := sys.modules.get("minicompile.dispatch"):
        for cache in list(package.CACHES):
            cache.clear()
    if package := sys.modules.get("minicompile.pipeline"):
        package.LOWER[:] = [  # nor looks for it on the disk
            lower for lower in package.LOWER
            if lower.__name__ != "looked_up"]


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


@pytest.fixture(autouse=True)
def products_are_calls(monkeypatch):
    """The small matrices of these tests stand for large ones: a product is
    a call of a library; tests/split/test_small_products.py has others."""
    if file := sys.modules.get("minicompile.split.torch.decompositions"):
        monkeypatch.setitem(file.PAIRS, "cpu", 0)
