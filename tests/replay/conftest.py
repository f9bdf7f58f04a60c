"""The programs of these tests are small, and recorded as large ones are."""

import pytest

from minicompile.emit.schedules import one_program
from minicompile.split.torch import decompositions


@pytest.fixture(autouse=True)
def as_large_ones(monkeypatch):
    """One launch for each kernel and each product of matrices."""
    monkeypatch.setattr(one_program, "SMALL", 0)
    monkeypatch.setattr(decompositions, "PAIRS", {})
