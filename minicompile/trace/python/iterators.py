"""Iterators from before the call: a trace goes on where they stand.

In: an iterator of a list, a tuple, a range or a dict, or `enumerate` or
`zip` of such; a frame behind a graph break has it on its stack. Out: one of
the trace's own that stands at the same place, which is guarded. The real
one is stepped as often, after the graph. If it stands elsewhere when the
same code is traced again, Python steps it, at graph breaks: a loop that
breaks in each round would have a graph for each. Without this file Python
steps all of them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from operator import length_hint, sub
from types import FunctionType

from ...core.guard import Call, Item, Source
from .. import Trace
from ..reasons import WAYS, unsupported
from ..recorder import History
from ..side_effects import Outside
from .callbacks import ITERATORS

#: Begins the keys of where iterators stood, in a History.
STOOD = "iterator"
#: A loop that goes on for longer is not unrolled.
ROUNDS = 128
#: Iterators that know how many elements are left.
SINGLE = {type(iter(made)) for made in (
    [], (), range(0), {}, {}.values(), {}.items())}


def insides(iterator: Iterator) -> tuple:
    """The sequence or iterators of an iterator, and how far it is."""
    _, given, *state = iterator.__reduce__()
    return *given, *state


def parts_of(iterator: Iterator) -> tuple:
    """The iterators that it steps; of a single one, itself."""
    if type(iterator) is enumerate:
        return insides(iterator)[:1]
    return insides(iterator) if type(iterator) is zip else (iterator,)


def stands(iterator: Iterator) -> tuple | None:
    """How many elements are left, of each part, and to what `enumerate`
    has counted. None if it is no such iterator."""
    parts = parts_of(iterator)
    count = insides(iterator)[1:] if type(iterator) is enumerate else ()
    single = 0 < len({*map(id, parts)}) == len(parts) and all(
        type(part) in SINGLE for part in parts)
    return (*map(length_hint, parts), *count) if single else None


def step_along(iterator: Iterator, count: int) -> None:
    """Step an iterator so many times, or to its end."""
    deque(islice(iterator, count), 0)


def gone_on(outside: Outside, real: Iterator):
    """The stand-in of an iterator, if it stood there at every trace."""
    if id(real) in outside.iterators or not outside.is_outside(real):
        return outside.iterators.get(id(real), real)
    source, before = outside.source(real), stands(real)
    seen = outside.recorder.sizes.history.seen
    if before is None or before[0] > ROUNDS or any(
            part is not real and id(part) in outside.values
            for part in parts_of(real)) or before != seen.setdefault(
                (STOOD, source), before):
        return real
    outside.guard(Call(outside.constant(stands), source), "equal", before)
    lists: list = []
    value = as_far_along(outside, real, source, lists)
    outside.pending.append(partial(
        steps_taken, value, before, has_ended(value), lists,
        [*map(len, lists)]))
    return value


def as_far_along(outside: Outside, real: Iterator, source: Source,
                 lists: list):
    """An iterator over stand-ins, of `lists` among others."""
    place, kind = Call(outside.constant(insides), source), type(real)
    if kind not in SINGLE:
        parts = [as_far_along(outside, part, Item(place, at), lists)
                 if type(part) in SINGLE else part
                 for at, part in enumerate(insides(real))]
        return stand_for(outside, real, kind(*parts), source)
    over, *state = insides(real)
    values = outside.admit(over, Item(place, 0))
    lists += [values] * (type(values) is list)
    made = iter(values)
    if state and state[0] is not None:
        made.__setstate__(state[0])
    return stand_for(outside, real, made, source)


def stand_for(outside: Outside, real: Iterator, made: Iterator,
              source: Source) -> Iterator:
    """`made`, from now on the stand-in of an iterator."""
    outside.reals.pop(id(real), None)  # it no longer stands for itself
    outside.iterators[id(real)], outside.reals[id(made)] = made, real
    outside.sources[id(made)] = source
    return made


def has_ended(iterator: Iterator) -> bool:
    """Whether the end was met, of the first part: it stays there."""
    return len(insides(parts_of(iterator)[0])) == 1


def steps_taken(value: Iterator, before: tuple, over: bool, lists: list,
                lengths: list) -> Iterator[tuple]:
    """Yield what steps the real iterator as the trace has."""
    now, ended = stands(value), has_ended(value)
    if (now, ended) == (before, over):
        return
    steps = [*map(sub, before, now)]
    if type(value) is enumerate:
        steps[1] *= -1
    if [*map(len, lists)] != lengths or (
            max(steps) - min(steps) > (0 in now)):
        raise unsupported("result", "an iterator that changed otherwise")
    yield step_along, value, steps[0] + ended


def with_loops(attempts: Callable, function: FunctionType, locals: tuple,
               breaks: bool, history: History) -> Trace:
    """A trace. If it ends where it begins, in the next round of a loop, it
    is made again: Python steps what the loop goes over."""
    trace = attempts(function, locals, breaks, history)
    places = {place for place, stood in history.seen.items()
              if stood and place[0] == STOOD}
    if places and any(each is function for each in
                      trace.constants.values()):
        history.seen.update(dict.fromkeys(places, ()))
        trace = attempts(function, locals, breaks, history)
    return trace


ITERATORS |= dict.fromkeys((*SINGLE, enumerate, zip), gone_on)
WAYS["attempts"] = partial(with_loops, WAYS["attempts"])
