"""Iterators from before a graph break, or from before the call."""

import contextlib
import io
from operator import length_hint

import pytest
import torch
from torch import nn

import minicompile
from tests.same import close

LAYERS = nn.ModuleList([nn.Linear(3, 3) for _ in range(6)])


def said(x):
    print("here", x.dim())


def over(make):
    """A loop whose first round has a graph break."""
    def program(x):
        for at, layer in make():
            x = layer(x).relu()
            if at == 0:
                said(x)
        return x
    return program


LOOPS = {
    "enumerate": over(lambda: enumerate(LAYERS)),
    "zip": over(lambda: zip(range(9), LAYERS)),
    "items": over(lambda: dict(enumerate(LAYERS)).items()),
    "list": over(lambda: [*enumerate(LAYERS)]),
    "tuple": over(lambda: (*enumerate(LAYERS),))}


@pytest.mark.parametrize("name", LOOPS)
def test_the_rounds_behind_a_break_are_one_graph(name):
    compiled = minicompile.compile(LOOPS[name], backend="eager")
    x = torch.randn(2, 3)
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(3):
            close(compiled(x), LOOPS[name](x))
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (2, 1, 0)


class Speaking(nn.Module):
    def forward(self, x):
        said(x)
        return x * 2


def test_the_layers_behind_a_break_are_one_graph():
    model = nn.Sequential(*LAYERS[:2], Speaking(), *LAYERS[2:], nn.ReLU())
    compiled = minicompile.compile(model, backend="eager")
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(2):
            x = torch.randn(2, 3)
            close(compiled(x), model(x))
    assert compiled.stats().graphs == 2


def some(x, numbers):
    """Takes some of what it is given."""
    y = x * next(numbers)
    for number in numbers:
        if number > 3:
            break
        y = y + number
    return y


def rest(x, numbers):
    said(x)
    return x * sum(numbers)


def found_or_not(x, numbers):
    said(x)
    for number in numbers:
        if number == 3:
            break
    else:
        return x - 1
    return x * next(numbers, 7) + next(numbers, 8)


def counted(x, numbers):
    y, places = x, enumerate(numbers, 2)
    next(places)
    said(x)
    for at, number in places:
        y = y * at + number
        if at == 4:
            break
    return y, next(numbers, None), next(places, None)


def pairs(x, numbers):
    y, both = x, zip(numbers, numbers)
    said(x)
    for one, other in both:
        y = y * one + other
    return y


def other_ends_first(x, numbers):
    both = zip(numbers, [1, 2])
    said(x)
    for one, other in both:
        x = x * one + other
    return x, next(numbers, None)


class Box:
    pass


def of_nothing(x, numbers):
    none = zip()
    said(x)
    return x + sum(1 for _ in none), [*none], next(numbers, 0)


def other_ends_in_an_object(x, numbers):
    box = Box()
    box.numbers, box.both = numbers, zip(numbers, [1, 2])
    del numbers
    said(x)
    for one, other in box.both:
        x = x * one + other
    return x, next(box.numbers, None)


def strictly(x, numbers):
    both = zip(numbers, (1, 2, 3), strict=True)
    said(x)
    try:
        for one, other in both:
            x = x * one + other
    except ValueError:
        return x - 5
    return x


def also_taken_alone(x, numbers):
    both = zip(numbers, range(5))
    said(x)
    for one, other in both:
        x = x * one + other + next(numbers, 9)
    return x


def two_names(x, numbers):
    again = numbers
    said(x)
    for number in numbers:
        x = x * number + next(again, 2)
    return x


def nested(x, numbers):
    for number in numbers:
        said(x)
        for k in range(2):
            x = x * number + k
            if k == number:
                said(x)
    return x


def ended_and_asked(x, numbers):
    all_of_it = list(numbers)
    said(x)
    try:
        next(numbers)
    except StopIteration:
        x = x * len(all_of_it)
    said(x)
    return x, next(numbers, "end")


def known_as(x, numbers):
    places = {numbers: 1}
    said(x)
    return (x * places[numbers], hash(numbers) == object.__hash__(numbers),
            hash(numbers) == hash(next(iter(places))), next(numbers, 5))


def held(x, numbers):
    box = [numbers]
    said(x)
    for number in box[0]:
        x = x + number
        if number == 2:
            said(x)
    return x, next(box[0], "end")


def compared(x, numbers):
    said(x)
    first = next(numbers, 4)
    return x * first, numbers is iter(numbers), type(numbers).__name__


PROGRAMS = [some, rest, found_or_not, counted, pairs, other_ends_first,
            of_nothing, other_ends_in_an_object, strictly, also_taken_alone,
            two_names, nested, ended_and_asked, known_as, held, compared]
VALUES = [1, 2, 3, 4, 5, 6]
MAKERS = {
    "list": lambda: iter([*VALUES]), "tuple": lambda: iter((*VALUES,)),
    "range": lambda: iter(range(1, 7)), "keys": lambda: iter(
        dict.fromkeys(VALUES)), "values": lambda: iter(
        dict(enumerate(VALUES)).values()), "ended": lambda: iter([]),
    "reversed": lambda: reversed([*VALUES]),
    "generator": lambda: (value for value in VALUES)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_taken_is_taken_from_the_real_one(program, make):
    """Of one given from outside, too, call after call."""
    compiled = minicompile.compile(program, backend="eager")
    x = torch.randn(3)
    for taken in (0, 0, 1, 2, 0):
        results = []
        for call in compiled, program:
            numbers = MAKERS[make]()
            for _ in range(taken):
                next(numbers, None)
            with contextlib.redirect_stdout(io.StringIO()) as text:
                try:
                    result = call(x, numbers)
                except StopIteration as error:
                    result = repr(error)
            results.append((result, [*numbers], text.getvalue()))
        close(*results)


def grows(x):
    todo, y = [1, 2, 3], x
    for number in todo:
        y = y * 2 + number
        if number == 1:
            said(y)
        if len(todo) < 6:
            todo.append(number + 3)
    return y, todo


def grows_when_all_is_taken(x):
    todo, y = [1, 2], x
    for number in todo:
        y = y * 2 + number
        said(y)
        if number == 2:
            todo.append(5)
        said(y)
    return y, todo


def another_takes_the_last(x):
    todo, y = [1, 2], x
    numbers = iter(todo)
    said(x)
    for number in numbers:
        y = y * 2 + number
        if number == 2:
            break
    said(y)
    todo.append(7)
    said(y)
    return y * next(numbers, 3)


def stays_at_its_end(x):
    todo = [1, 2, 3]
    numbers = iter(todo)
    next(numbers), next(numbers)
    said(x)
    todo[1:] = []
    said(x)
    left = list(numbers)
    said(x)
    todo.extend(range(20))
    return x * length_hint(numbers), left, [*numbers]


def shrinks(x):
    todo, y = [1, 2, 3, 4], x
    for number in todo:
        y = y * 2 + number
        if number == 1:
            said(y)
            todo.pop()
        todo.pop()
    return y, todo


def dict_grows(x):
    names = {1: x, 2: x}
    try:
        for number in names:
            x = x * 2 + number
            said(x)
            names[number + 5] = x
    except RuntimeError as error:
        return x, str(error)
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [
    grows, grows_when_all_is_taken, another_takes_the_last,
    stays_at_its_end, shrinks, dict_grows])
def test_what_a_loop_goes_over_may_change(program):
    compiled = minicompile.compile(program, backend="eager")
    x = torch.randn(3)
    for _ in range(3):
        with contextlib.redirect_stdout(io.StringIO()):
            close(compiled(x), program(x))


def test_a_loop_that_breaks_in_each_round_has_a_graph_for_all():
    def program(x):
        for layer in LAYERS:
            x = layer(x)
            said(x)
        return x
    compiled = minicompile.compile(program, backend="eager")
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(2):
            compiled(torch.randn(2, 3))
    assert compiled.stats().graphs == 2


def test_a_long_loop_is_not_unrolled():
    def program(x):
        for at in range(300):
            x = x + 1
            if at % 150 == 0:
                said(x)
        return x
    compiled, x = minicompile.compile(program, backend="eager"), torch.ones(2)
    with contextlib.redirect_stdout(io.StringIO()):
        close(compiled(x), program(x))
    assert max(len(entry.trace.graph.graph.nodes)
               for cache in compiled.cache.family()
               for entry in cache.entries) < 20
