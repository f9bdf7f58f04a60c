"""The interpreter alone: without tensors, it is Python or it refuses."""

import copy
from collections import Counter

import pytest

from minicompile.core.errors import Unsupported

from .concrete import CASES
from .conftest import traced

#: Why cases were refused; a clean refusal is right, but not progress.
REFUSED = Counter()


def name(case) -> str:
    function, _ = case
    return getattr(function, "__qualname__", str(function))


@pytest.mark.parametrize("function, args", CASES, ids=map(name, CASES))
def test_as_python(function, args):
    ours, theirs = copy.deepcopy((args, args))
    want = function(*theirs)
    try:
        got = traced(function, *ours)
    except Unsupported as refusal:
        assert refusal.kind not in ("exception", "internal"), refusal
        REFUSED[refusal.reason] += 1
        return
    assert type(got) is type(want)
    assert repr(got) == repr(want)
    assert repr(ours) == repr(theirs)


def test_most_are_followed():
    assert len(CASES) >= 400
    assert sum(REFUSED.values()) <= 45, REFUSED
