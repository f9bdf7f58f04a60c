"""Random programs: a seeded sample; the command line takes more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.split import programs


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_programs(first):
    outcomes = Counter()
    for seed in range(first, first + 100):
        program = programs.make(seed)
        saved = [None, programs.everything][seed % 2]
        try:
            outcomes[programs.judge(program, saved)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{program.source}"
                                 ) from error
    assert outcomes["same"] >= 50, outcomes
