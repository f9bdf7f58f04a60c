"""Results that are no plain containers: rows for the reconstruction.

In: a closure, a bound method, an exception or an iterator that the
traced program made. Out: the text that makes it again where it stands.
What is written in C is made as pickle would make it. PyTorch's are the
`reconstruct` methods in torch/_dynamo/variables/.
"""

from __future__ import annotations

import gc
import types
import warnings

from ..constant_types import ABSENT, contents
from ..reasons import unsupported
from ..reconstruct import DERIVED, MAKERS, Rebuild
from ..interpreter_objects import Callback, Iteration, StandIn

# Functions

#: What a function has besides what makes one.
ATTRIBUTES = ("__kwdefaults__", "__qualname__", "__module__", "__doc__",
              "__annotations__", "__dict__")


def made_function(rebuild: Rebuild, made: types.FunctionType) -> str:
    """A function: its code, globals and defaults, and its cells."""
    plain = types.FunctionType(made.__code__, made.__globals__,
                               closure=made.__closure__)
    parts = (rebuild.known(made.__code__), rebuild.known(made.__globals__),
             repr(made.__name__), rebuild.value(made.__defaults__),
             rebuild.value(made.__closure__))
    return rebuild.remade(rebuild.known(type(made)), ", ".join(parts), {
        each: getattr(made, each) for each in ATTRIBUTES
        if getattr(made, each) != getattr(plain, each)}, (), {})


def cell(rebuild: Rebuild, made: types.CellType) -> str:
    """A cell, filled once all else is made: a function may be in it."""
    name = rebuild.hold(f"{rebuild.known(types.CellType)}()")

    def write():
        content = contents(made).get("cell_contents", ABSENT)
        if content is not ABSENT:
            rebuild.lines.append(
                f"{name}.cell_contents = {rebuild.value(content)}")
    rebuild.later.append(write)
    return name


def bound(rebuild: Rebuild, method: types.MethodType) -> str:
    """A bound method; a stand-in's is one of what it stands for."""
    owner = rebuild.value(method.__self__)
    if isinstance(method.__self__, StandIn):
        return f"{owner}.{method.__name__}"
    return (f"{rebuild.known(types.MethodType)}("
            f"{rebuild.value(method.__func__)}, {owner})")


MAKERS |= {types.FunctionType: made_function, types.CellType: cell,
           types.MethodType: bound,
           Callback: lambda r, v: r.value(v.function)}

# Exceptions


def raised(rebuild: Rebuild, error: BaseException) -> str:
    """An exception that the program made or caught."""
    kind = type(error)
    make, args = rebuild.known(kind), error.args
    if isinstance(kind.__init__, types.FunctionType):
        make, args = f"{make}.__new__", (kind, *args)
    links = {link: getattr(error, link) for link in (
        "__cause__", "__context__", "__suppress_context__")}
    made = rebuild.remade(make, rebuild.values(args), vars(error) | {
        link: value for link, value in links.items() if value}, (), {})
    return f"{rebuild.known(thrown)}({made})"


def thrown(error: BaseException) -> BaseException:
    """The exception with a traceback, which CPython counts on."""
    try:
        raise error
    except BaseException as caught:
        return caught


DERIVED[BaseException] = raised

# Objects written in C

#: Modules of classes that pickle knows how to make again.
PICKLED = ("builtins", "collections", "functools", "itertools")


def as_pickled(rebuild: Rebuild, value) -> str:
    """An object written in C where it stands, or a user's instance."""
    kind = type(value)
    reduce = getattr(kind, "__reduce__", None)
    if kind.__module__ not in PICKLED or reduce is object.__reduce__ or (
            type(reduce) is not types.MethodDescriptorType):
        return rebuild.instance(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        make, args, state, items, pairs, *_ = (*reduce(value), *[None] * 3)
    parts = args, state, [*(items or ())], dict(pairs or ())
    rebuild.outside.kept.append(parts)
    return rebuild.remade(rebuild.value(make), rebuild.values(args),
                          *parts[1:])


DERIVED[object] = as_pickled

# Iterators

DICT_VIEWS = {type({}.keys()): "keys", type({}.values()): "values",
         type({}.items()): "items"}

#: Iterators of dicts, which notice that their dict changed its size.
DICT_ITERATORS = {type(iter(getattr({}, name)())): name
                  for name in DICT_VIEWS.values()}


def dict_view(rebuild: Rebuild, made) -> str:
    """`d.keys()` and the like, of the same dict."""
    name = DICT_VIEWS[type(made)]
    return f"{rebuild.value(owner(rebuild, made))}.{name}()"


def owner(rebuild: Rebuild, made) -> dict:
    """The dict that a view or an iterator is of."""
    found = next((each for each in gc.get_referents(made)
                  if isinstance(each, dict)), {})
    return rebuild.outside.lives.get(id(found), found)


def dict_iterator(rebuild: Rebuild, iterator) -> str:
    """An iterator of a dict, as far along as this one."""
    whole, outside = owner(rebuild, iterator), rebuild.outside
    try:
        left = len(iterator.__reduce__()[1][0])
    except RuntimeError:
        left = None
    if outside.is_dict(whole) and outside.keys(
            space := outside.items(whole)) != list(space.real):
        left = None
    if left is None:
        raise unsupported("result", "an iterator of a changed dict")
    return (f"{rebuild.known(advanced)}({rebuild.value(whole)}."
            f"{DICT_ITERATORS[type(iterator)]}(), {len(whole) - left})")


def advanced(view, count: int):
    """An iterator of a view, `count` steps along."""
    iterator = iter(view)
    for _ in range(count):
        next(iterator)
    return iterator


MAKERS |= {Iteration: lambda r, v: r.value(v.step.function.__self__),
           **dict.fromkeys(DICT_VIEWS, dict_view),
           **dict.fromkeys(DICT_ITERATORS, dict_iterator)}
