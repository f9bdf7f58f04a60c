"""Objects in the middle of their life: iterators, generators, errors.

In: a Rebuild and an object that only a graph break can meet, such as a
half-run loop's iterator or a bound method on the stack. Out: rows for
`MAKERS`, whose text makes one for real that goes on from there.
PyTorch's are the `reconstruct` methods in torch/_dynamo/variables/.
"""

from __future__ import annotations

import functools
import gc
import itertools
import types
import warnings
from collections import deque

from .bytecode import live
from .reasons import unsupported
from .rebuild import MAKERS, Rebuild
from .resume import made_once, placed
from .stand_ins import Callback, Generator, Iteration

#: Iterators written in C, each able to say how to make it again.
ITERATORS = (
    *(type(iter(kind())) for kind in (list, tuple, str, set, bytes,
                                      deque)),
    type(iter(range(0))), type(iter(range(1 << 80))), type(reversed([])),
    zip, map, filter, enumerate, reversed, itertools.count,
    itertools.chain, itertools.cycle, itertools.repeat, itertools.islice,
    itertools.product, itertools.permutations, itertools.combinations,
    itertools.accumulate, itertools.starmap, itertools.takewhile,
    itertools.dropwhile, itertools.compress, itertools.zip_longest)

VIEWS = {type({}.keys()): "keys", type({}.values()): "values",
         type({}.items()): "items"}

#: Iterators of dicts, which notice that their dict changed its size.
STEPS = {type(iter(getattr({}, name)())): name for name in VIEWS.values()}


def _iterator(rebuild: Rebuild, iterator) -> str:
    """A C iterator where it stands, as pickle would make it again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        make, args, *state = iterator.__reduce__()
    name = rebuild.hold(f"{rebuild.known(make)}({rebuild.values(args)})")
    if state and state[0] is not None:
        rebuild.lines.append(
            f"{name}.__setstate__({rebuild.value(state[0])})")
    return name


def _view(rebuild: Rebuild, view) -> str:
    """`d.keys()` and the like, of the same dict."""
    return f"{rebuild.value(_owner(rebuild, view))}.{VIEWS[type(view)]}()"


def _owner(rebuild: Rebuild, view) -> dict:
    """The dict that a view or an iterator is of."""
    owner = next((each for each in gc.get_referents(view)
                  if isinstance(each, dict)), {})
    return rebuild.outside.lives.get(id(owner), owner)


def _step(rebuild: Rebuild, iterator) -> str:
    """An iterator of a dict, as far along as this one."""
    owner, outside = _owner(rebuild, iterator), rebuild.outside
    try:
        left = len(iterator.__reduce__()[1][0])
    except RuntimeError:
        left = None
    if outside.is_dict(owner) and outside.keys(
            overlay := outside.items(owner)) != list(overlay.real):
        left = None
    if left is None:
        raise unsupported("result", "an iterator of a changed dict")
    return (f"{rebuild.known(_advanced)}({rebuild.value(owner)}."
            f"{STEPS[type(iterator)]}(), {len(owner) - left})")


def _advanced(view, count: int):
    """An iterator of a view, `count` steps along."""
    iterator = iter(view)
    for _ in range(count):
        next(iterator)
    return iterator


def _generator(rebuild: Rebuild, generator: Generator) -> str:
    """A generator that stands where the interpreted one does."""
    if generator.done:
        return "iter(())"
    frame = generator.frame
    offset = frame.program.bounds(frame.current().offset)[1]
    place, values = placed(rebuild, frame, offset, frame.stack,
                           live(frame.code)[frame.next])
    made = made_once("waiting", place, frame.function)
    function = rebuild.outside.constant(made, f"rest_{made.__name__}")
    name = rebuild.hold(f"{function.code()}({', '.join(values)})")
    rebuild.lines.append(f"{rebuild.known(next)}({name})")
    return name


def _bound(rebuild: Rebuild, method) -> str:
    """A method written in C, bound anew."""
    return f"({rebuild.value(method.__self__)}).{method.__name__}"


def _partial(rebuild: Rebuild, partial: functools.partial) -> str:
    keywords = rebuild.pairs(partial.keywords)
    return (f"{rebuild.known(functools.partial)}("
            f"{rebuild.values((partial.func, *partial.args))}, "
            f"**{{{keywords}}})")


MAKERS.update({
    **dict.fromkeys(ITERATORS, _iterator), **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(STEPS, _step),
    Generator: _generator, functools.partial: _partial,
    types.BuiltinFunctionType: _bound, types.MethodWrapperType: _bound,
    Callback: lambda r, v: r.value(v.function),
    Iteration: lambda r, v: r.value(v.step.function.__self__)})
