"""The suite has a cache of its own, empty at the start."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache directory for this run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MINICOMPILE_CACHE_DIR", str(folder))
        yield folder
