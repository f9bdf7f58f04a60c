"""Random programs: a seeded sample; the command line takes more."""

from __future__ import annotations

import pytest

from tests.split import programs


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_programs(first):
    outcomes = programs.outcomes(range(first, first + 100))
    assert outcomes["same"] >= 50, outcomes
