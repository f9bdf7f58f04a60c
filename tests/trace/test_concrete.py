"""The interpreter alone: without tensors, it is Python or it refuses."""

import copy
from collections import Counter
from functools import partial

import pytest

from minicompile.core.errors import Unsupported

from .concrete import CASES
from .conftest import traced


def name(case) -> str:
    function, _ = case
    if isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", str(function))


@pytest.mark.parametrize("function, args", CASES, ids=map(name, CASES))
def test_as_python(function, args):
    ours, theirs = copy.deepcopy((args, args))
    want = function(*theirs)
    try:
        got = traced(function, *ours)
    except Unsupported as refusal:
        assert refusal.kind not in ("exception", "internal"), refusal
        return
    assert type(got) is type(want)
    assert repr(got) == repr(want)
    assert repr(ours) == repr(theirs)


def test_most_are_followed():
    """A clean refusal is right, but not progress."""
    refused = Counter()
    for function, args in CASES:
        try:
            traced(function, *copy.deepcopy(args))
        except Unsupported as refusal:
            refused[refusal.reason] += 1
        except Exception:  # as in Python, which test_as_python sees
            pass
    assert len(CASES) >= 400
    assert sum(refused.values()) <= 43, refused
