"""The suite has a cache of its own, empty at the start."""

from __future__ import annotations

import pytest

from minicompile.emit.schedules import one_program


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache directory for this run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MINICOMPILE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch):
    """Small kernels are launched one by one, so that each is tiled as a
    large one is; tests/emit/test_one_program.py has them in a row."""
    monkeypatch.setattr(one_program, "SMALL", 0)
