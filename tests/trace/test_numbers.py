"""Numbers that are not Python's own: NumPy's, and other libraries'."""

import array
import operator
from datetime import timedelta
from decimal import Decimal

import pytest
import torch

import minicompile
from tests.same import assert_same, close

np = pytest.importorskip("numpy")

NUMBERS = [np.float32(3.3), np.float64(2.7), np.int64(2), np.uint8(1),
           np.bool_(True)]
TENSORS = [torch.tensor([1.5, -2.5, 3.0]), torch.tensor([1, 2, 4]),
           torch.tensor([True, False, True])]

#: What a tensor and a number may meet in.
FORMS = {name: getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le",
    "eq", "ne", "and_", "iadd", "imul")} | {
    "torch.add": torch.add, "method": lambda x, s: x.add(s),
    "alpha": lambda x, s: torch.add(x, x, alpha=s),
    "where": lambda x, s: torch.where(x > 1, x, s),
    "clamp": lambda x, s: x.clamp(s), "fill": lambda x, s: x.fill_(s),
    "full": lambda x, s: torch.full((2,), s, device=x.device),
    "fill_value": lambda x, s: torch.full((2,), fill_value=s),
    "value": lambda x, s: torch.addcmul(x, x, x, value=s),
    "tensor": lambda x, s: x + torch.tensor(s),
    "new": lambda x, s: x + x.new_tensor([s]),
    "index": lambda x, s: x[s - 2], "slice": lambda x, s: x[:s],
    "reshape": lambda x, s: x.reshape(s - s - 1, s),
    "repeat": lambda x, s: x.repeat(s), "dim": lambda x, s: x.sum(s * 0),
    "set": lambda x, s: x.__setitem__(0, s),
    "keepdim": lambda x, s: x.sum(0, keepdim=s),
    "python": lambda x, s: x * (s + 1) * float(s) * (-s if s else 1),
    "ufunc": lambda x, s: x / np.sqrt(s),
    "size": lambda x, s: x * (s + x.shape[0]),
    "returned": lambda x, s: (x + 1, s, s * 2)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda s: type(s).__name__)
def test_as_eager(form, number):
    function = FORMS[form]
    for x in TENSORS:
        for f, args in ((lambda x: function(x, number), (x,)),
                        (function, (x, number)),
                        (lambda x, s: function(s, x), (x, number))):
            if f is not function and form not in vars(operator):
                continue
            close(answer(minicompile.compile(f, backend="eager"), args),
                  answer(f, args))


def answer(function, args):
    """What a function returns or raises, and its first argument then."""
    args = args[0].clone(), *args[1:]
    try:
        return function(*args), args[0]
    except Exception as error:
        return type(error), args[0]


@pytest.mark.parametrize("form", [
    "add", "alpha", "where", "fill", "full", "slice", "reshape", "python",
    "ufunc", "size", "returned"])
def test_no_break(form):
    assert_same(FORMS[form], torch.ones(4), np.int64(2), fullgraph=True)


def test_the_number_is_guarded():
    compiled = minicompile.compile(lambda x, s: x * s, backend="eager",
                                   fullgraph=True)
    x = torch.ones(2)
    for s in (np.float32(2), np.float32(3), np.float64(2), np.float32(2),
              np.float32("nan"), np.float32("nan"), 2, np.int64(2)):
        close(compiled(x, s), x * s)
    assert compiled.stats().graphs == 6


def test_sizes_that_vary_meet_a_number():
    compiled = minicompile.compile(
        lambda x: x.reshape(np.int64(2), -1) * (x.shape[0] * np.float32(
            0.1)), backend="eager", dynamic=True)
    for n in (4, 6, 8):
        x = torch.ones(n)
        close(compiled(x), x.reshape(2, -1) * (n * np.float32(0.1)))


#: Questions that only C code can answer for the values below.
QUESTIONS = {
    "compare": lambda s: s == 5, "order": lambda s: s < s * 2,
    "truth": lambda s: 1 if s else 2, "not": lambda s: not s,
    "negate": lambda s: bool(-s), "add": lambda s: (s + s) != s,
    "number": float, "text": str, "hash": lambda s: hash(s) % 7}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("values", [
    [Decimal(5), Decimal(0), Decimal(7)],
    [timedelta(5), timedelta(0), timedelta(7)],
    [np.longdouble(5), np.longdouble(0), np.longdouble(7)]],
    ids=["decimal", "timedelta", "longdouble"])
def test_objects_of_c_code_are_not_constants(question, values):
    def f(x, s):
        return x * float(QUESTIONS[question](s))

    compiled = minicompile.compile(f, backend="eager")
    for s in (*values, values[0]):
        close(answer(compiled, (torch.ones(2), s)),
              answer(f, (torch.ones(2), s)))


def test_lengths_that_only_c_code_knows():
    def f(x, a):
        return x * len(a) + (3 in a)

    compiled = minicompile.compile(f, backend="eager")
    for a in (array.array("b", [1, 2]), array.array("b", [3]),
              bytearray([3, 4, 5]), bytearray([1, 1])):
        close(compiled(torch.ones(2), a), f(torch.ones(2), a))


def test_methods_of_numbers_are_given_sizes_that_vary():
    def f(x):
        n = x.shape[0]
        return (x + 1, (5).__add__(n), (0.5).__mul__(n), (3).__eq__(n),
                int.__lt__(3, n), list(map((2).__mul__, x.shape)),
                "ab".__mul__(n), [*filter((4).__ne__, x.shape)])

    compiled = minicompile.compile(f, backend="eager")
    for n in (2, 3, 4, 5):
        close(compiled(torch.ones(n)), f(torch.ones(n)))


def test_the_number_of_a_tensor_that_is_made_of_constants_is_known():
    def f(x):
        count = torch.tensor(2)
        count.data.add_(1)
        return x * count.item(), count.clone().item(), (count + 1).item()

    assert_same(f, torch.ones(3), fullgraph=True)

    def written(x):
        count = torch.tensor(2)
        return x * count.add_(x.sum().long()).item()

    assert assert_same(written, torch.ones(3)).stats().graph_breaks == 1


def test_an_operator_of_tensors_declines_two_numbers():
    compiled = minicompile.compile(
        lambda x: (x.sin(), torch.Tensor.__rsub__(2, 3)))
    assert compiled(torch.ones(2))[1] is NotImplemented
