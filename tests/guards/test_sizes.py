"""Symbolic sizes in a check: what is not asked, and what is asked instead."""

import pytest
import torch

from minicompile.core.guard import Guard, Local, TensorFacts
from minicompile.trace.torch.dimensions import Size

from .say import X, Y, explain, facts, relation

ROWS = Size(X, "shape", 0, "s0")
STEP = Size(X, "stride()", 0, "s1")
MORE = Size(Y, "shape", 0, "s2")


def free(source, value, sizes=(), strides=()):
    """The guard of a tensor some of whose sizes and strides may vary."""
    known = facts(value)
    shape, stride = ([None if dim in some else n for dim, n in
                      enumerate(numbers)] for some, numbers in (
        (sizes, known.shape), (strides, known.stride)))
    return Guard(source, "tensor", TensorFacts(
        known.type, known.dtype, known.device, tuple(shape), tuple(stride),
        known.requires_grad))


@pytest.mark.parametrize("shape, holds", [
    ((4, 3), True), ((9, 3), True), ((0, 3), True), ((4, 2), False),
    ((4,), False), ((4, 3, 1), False)])
def test_a_free_size_is_not_asked(build, shape, holds):
    check = build([free(X, torch.ones(4, 3), {0})], {})
    assert check((torch.ones(shape),), None) is holds
    assert check((torch.ones(shape).double(),), None) is False


def test_a_free_stride_is_not_asked(build):
    whole = torch.ones(8, 12)
    check = build([free(X, whole[:, :3], {0}, {0})], {})
    assert check((whole[2:4, :3],), None)
    assert check((torch.ones(5, 3),), None)
    assert not check((torch.ones(3, 5).t(),), None)


def test_a_relation_is_asked_in_python(build):
    check = build([free(X, torch.ones(4, 3), {0}), free(Y, torch.ones(8), {0}),
                   relation("{0} % 2 == 0", ROWS),
                   relation("{1} == 2*{0}", ROWS, MORE)], {})
    assert check((torch.ones(4, 3), torch.ones(8)), None)
    assert check((torch.ones(6, 3), torch.ones(12)), None)
    assert not check((torch.ones(6, 3), torch.ones(13)), None)
    assert not check((torch.ones(5, 3), torch.ones(10)), None)


def test_a_size_is_read_once_and_handed_on(build):
    check = build([free(X, torch.ones(4, 3), {0}), relation("{0} >= 2", ROWS),
                   relation("{0} <= 9", ROWS)], {}, (ROWS, X))
    assert str(check).count("shape[0]") == 1
    assert "s0 = " in str(check)
    given = torch.ones(7, 3)
    assert check.function((given,), None) == [7, given]


def test_an_int_is_related_by_its_own_name(build):
    n = Local("n", 0)
    check = build([Guard(n, "type", int), relation("{0} > 2", n),
                   relation("{0} < math.sqrt(100)", n)], {})
    assert check((5,), None) and not check((2,), None)
    assert not check((10,), None) and not check((True,), None)
    assert not check((5.0,), None)


def test_a_relation_says_why_it_fails(build):
    check = build([free(X, torch.ones(4, 3), {0}, {0}),
                   relation("{0} == 3*{1}", STEP, ROWS)], {})
    failure, = explain(check, (torch.ones(4, 3),), None)
    assert str(failure) == (
        "`x.stride()[0] == 3*x.shape[0]` was true, is false: "
        "x.stride()[0] is 3, x.shape[0] is 4")


def test_what_may_vary_is_no_reason(build):
    check = build([free(X, torch.ones(4, 3), {0})], {})
    reasons = explain(check, (torch.ones(9, 2),), None)
    assert list(map(str, reasons)) == [
        "size of dimension 1 of `x` was 3, is 2"]


def test_many_alike(build):
    xs = [Local(f"t{at}", at) for at in range(6)]
    guards = [free(x, torch.ones(4, 3), {0}) for x in xs]
    sizes = [Size(x, "shape", 0, f"s{at}") for at, x in enumerate(xs)]
    guards += [relation("{0} == {1}", sizes[0], each) for each in sizes[1:]]
    check = build(guards, {}, (*sizes, *xs))
    assert check(tuple(torch.ones(5, 3) for _ in xs), None)
    assert not check((*(torch.ones(5, 3) for _ in xs[1:]), torch.ones(6, 3)),
                     None)
