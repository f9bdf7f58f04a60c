"""Index arithmetic against Python's integers, at every point."""

import itertools
import random
from math import inf

import pytest

from minicompile.core.index import (Division, Index, Symbol, Variable,
                                    atoms_of, evaluate_index, guess,
                                    index, least_of, most_of,
                                    not_negative, substitute)
from minicompile.core.loops import flatten, row_major, unflatten

I, J, K = (Variable(name, index(size))
           for name, size in (("i", 6), ("j", 4), ("k", 5)))
POINTS = [dict(zip((I, J, K), point)) for point in
          itertools.product(range(6), range(4), range(5))]


def random_pair(rng, depth):
    """An Index and the same computation on Python integers."""
    if depth == 0:
        choice, number = rng.randrange(4), rng.randint(0, 7)
        if choice == 3:
            return index(number), lambda point: number
        variable = (I, J, K)[choice]
        return index(variable), lambda point: point[variable]
    ours, theirs = random_pair(rng, depth - 1)
    number = rng.choice([2, 3, 4, 5, 6, 8, 12])
    match rng.choice("+-*/%"):
        case "+" | "-" as sign:
            other, their_other = random_pair(rng, depth - 1)
            scale = rng.choice([1, 3, 4, 20]) * (1 if sign == "+" else -1)
            return (ours + other * scale,
                    lambda p: theirs(p) + their_other(p) * scale)
        case "*":
            return ours * number, lambda p: theirs(p) * number
        case "/":
            return ours // number, lambda p: theirs(p) // number
        case "%":
            return ours % number, lambda p: theirs(p) % number


@pytest.mark.parametrize("seed", range(400))
def test_random_arithmetic_agrees_with_integers(seed):
    rng = random.Random(seed)
    ours, theirs = random_pair(rng, rng.randint(1, 5))
    low, high = least_of(ours), most_of(ours)
    for point in rng.sample(POINTS, 30):
        assert evaluate_index(ours, point) == theirs(point)
        assert low <= theirs(point) <= high


@pytest.mark.parametrize("seed", range(100))
def test_substitution_agrees_with_integers(seed):
    rng = random.Random(seed)
    outer, their_outer = random_pair(rng, 3)
    inner, their_inner = random_pair(rng, 1)
    for point in rng.sample(POINTS, 30):
        moved = {**point, I: their_inner(point)}
        got = substitute(outer % 1000, {I: inner})
        if 0 <= moved[I] < 6:  # simplified for the range of i only
            assert evaluate_index(got, point) == their_outer(moved) % 1000


def sizes(*numbers):
    return tuple(map(index, numbers))


@pytest.mark.parametrize("shape", [(24, 5), (120,), (2, 3, 20), (6, 4, 5)])
def test_reshape_of_a_contiguous_tensor_is_the_identity(shape):
    """Flatten, see in another shape, flatten again: nothing is left."""
    flat = Variable("f", index(120))
    there = unflatten(index(flat), sizes(*shape))
    assert flatten(there, row_major(sizes(*shape))) == index(flat)


def test_merged_loops_need_no_division():
    flat = flatten((index(I), index(J), index(K)), (20, 5, 1))
    assert unflatten(flat, sizes(6, 4, 5)) == (index(I), index(J), index(K))
    rows, inner = unflatten(flat, sizes(24, 5))
    assert (str(rows), str(inner)) == ("4*i + j", "k")


def test_what_cannot_be_simplified_stays():
    (atoms, _), = (index(J) * 3 // 2).terms
    assert atoms == (Division("//", index(J) * 3, index(2)),)


def test_symbolic_sizes_simplify_like_numbers():
    size = Symbol("s0")
    i, j = Variable("i", index(8)), Variable("j", index(size))
    flat = index(i) * size + j
    assert flat // index(size) == index(i)
    assert flat % index(size) == index(j)
    assert atoms_of(flat) == {i, j, size}
    assert row_major((index(size), index(3))) == (index(3), index(1))


def symbolic_pair(rng, depth, variables):
    """An Index of symbols and variables, and the same on integers."""
    if depth == 0:
        atom = rng.choice(variables)
        return index(atom), lambda p: p[atom]
    ours, theirs = symbolic_pair(rng, depth - 1, variables)
    other, their_other = symbolic_pair(rng, depth - 1, variables)
    number = rng.choice([1, 2, 3, 8])
    match rng.choice("++-**" + "//%%" * (variables != (N, M))):
        case "+":
            return ours + other * number, (
                lambda p: theirs(p) + their_other(p) * number)
        case "-":
            return ours + other + number - other, (
                lambda p: theirs(p) + number)
        case "*":
            return ours * other, lambda p: theirs(p) * their_other(p)
        case "/" | "%" as sign:
            size, their_size = symbolic_pair(rng, 1, (N, M))
            if least_of(size) == -inf:
                return ours, theirs
            size, more = size + number, number
            if sign == "/":
                return ours // size, lambda p: theirs(p) // (
                    their_size(p) + more)
            return ours % size, lambda p: theirs(p) % (
                their_size(p) + more)


N, M = Symbol("n", least=2), Symbol("m", least=3, most=9)
W = Symbol("w", least=-3, most=4)


@pytest.mark.parametrize("seed", range(100))
def test_random_arithmetic_with_sizes_agrees_with_integers(seed):
    """Whatever is simplified holds for all sizes, bounds included."""
    rng = random.Random(seed)
    atoms = (N, M, W, Variable("i", index(N)), Variable("j", index(M) * N - 1),
             Variable("k", (index(N) + 1) // 2))
    ours, theirs = symbolic_pair(rng, rng.randint(1, 4), atoms)
    least, most = least_of(ours), most_of(ours)
    for n, m, w in itertools.product((2, 3, 7), (3, 4, 9), (-3, 0, 4)):
        sizes = {N: n, M: m, W: w}
        for _ in range(6):
            point = sizes | {v: rng.randrange(evaluate_index(v.size, sizes))
                             for v in atoms[3:]}
            expected = theirs(point)
            assert evaluate_index(ours, point) == expected
            assert least <= expected <= most


def test_a_remainder_twice_in_a_product_is_no_remainder():
    n = index(N)
    square = n % 3 * (n % 3) + n // 3 * 3
    assert evaluate_index(square, {N: 5}) == 7
    assert square * 1 != n and n % 3 * (n % 3) + n // 3 * (n % 3) * 3 == (
        n * (n % 3))


def test_what_holds_for_all_sizes_is_seen():
    n, m = index(N), index(M)
    assert not_negative(n * m - n - m) and not_negative(n * 3 - 6)
    assert not not_negative(n - m) and not not_negative(n - 3)
    assert least_of((n + 1) // 2) == 1 and least_of(n * m) == 6
    assert most_of(m * 2) == 18 and most_of(n) == inf


@pytest.mark.parametrize("inner", [index(N) - 1, index(N) + index(M),
                                   index(N) * M, index(N) * 2 - 2])
def test_a_reshape_to_symbolic_rows_and_back_is_the_identity(inner):
    i, j = Variable("i", index(M)), Variable("j", inner)
    flat = index(i) * inner + j
    assert unflatten(flat, (index(M), inner)) == (index(i), index(j))
    whole = Variable("f", inner * M)
    there = unflatten(index(whole), (index(M), inner))
    assert flatten(there, (inner, 1)) == index(whole)


def test_constants_behave_as_numbers():
    assert index(7) == 7 and int(index(7)) == 7 and index(0).terms == ()
    with pytest.raises(TypeError, match="not a constant"):
        int(index(I))
    assert (index(7) // 2, index(7) % 2) == (3, 1)


def test_equal_polynomials_are_equal_and_hash_alike():
    a, b = index(I) * 2 + index(J), index(J) + index(I) + index(I)
    assert a == b and hash(a) == hash(b)
    assert isinstance(a, Index) and str(a) == "2*i + j"


def test_the_text_of_a_division_is_made_once():
    """Terms are sorted by their text, and divisions stand in others."""
    size = Symbol("s0")
    inner, outer = (Division("//", index(size) + k, index(size) * 2)
                    for k in (1, 1))
    assert inner is not outer and str(inner) is str(outer)


def test_a_division_that_stands_in_others_is_computed_once(monkeypatch):
    """A count of steps that grows with each layer would double there."""
    where, calls, moved = index(Symbol("s0")), [], Division.moved
    for layer in range(8):
        where = index(Division("//", where + layer, index(Symbol("s1")))
                      ) * 3 + Division("%", where, index(Symbol("s2")))
    monkeypatch.setattr(Division, "moved", lambda self, values: (
        calls.append(self), moved(self, values))[1])
    assert guess(where) >= 0 and len(calls) == len({*calls}) == 16
