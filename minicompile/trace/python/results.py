"""Results that are no plain containers: rows for the reconstruction.

In: an object of a user's class, a closure, an exception or an iterator
that the traced program made. Out: the text that makes it again where it
stands, from the parts that pickle would keep. PyTorch's are the
`reconstruct` methods in torch/_dynamo/variables/.
"""

from __future__ import annotations

import gc
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable

from ..constant_types import ABSENT, contents
from ..interpreter_objects import Callback, Iteration, StandIn, as_tuple
from ..reasons import unsupported
from ..reconstruct import DERIVED, MAKERS, Rebuild

# Objects and tuples of a class of their own

#: Classes whose `__new__` makes the bare instance of a derived class.
BASES = (OrderedDict, dict, list, set, deque, object)


def builtin_base(kind: type) -> type:
    """The builtin class whose methods make or change a `kind` unseen."""
    return next(base for base in BASES if issubclass(kind, base))


def derived_tuple(rebuild: Rebuild, value: tuple) -> str:
    """A tuple of a class of its own, its `__new__` not run."""
    return (f"{rebuild.known(as_tuple)}({rebuild.known(type(value))}, "
            f"[{rebuild.values(tuple.__iter__(value))}])")


def instance(rebuild: Rebuild, value) -> str:
    """An object of a user's class, made without its `__init__`."""
    kind = type(value)
    if isinstance(value, (type, BaseException)) or (
            id(value) not in rebuild.tracer.made):
        raise unsupported("result", f"the class {value.__name__}, made "
                          "in the function," if isinstance(value, type)
                          else f"a {kind.__name__}")
    slots = [name for each in kind.__mro__
             for name, found in vars(each).items()
             if type(found) is types.MemberDescriptorType]
    state = {name: getattr(value, name) for name in [
        *getattr(value, "__dict__", ()), *slots] if hasattr(value, name)}
    base, items, pairs = builtin_base(kind), (), {}
    if issubclass(base, dict):
        pairs = value
    elif base is not object:
        items = base.__iter__(value)
    return remaking(rebuild, f"{rebuild.known(base)}.__new__",
                    rebuild.known(kind), state, items, pairs)


def remaking(rebuild: Rebuild, make: str, args: str, state, items=(),
             pairs=None) -> str:
    """The text of an object, made from the parts that pickle keeps."""
    state = (f"{{{rebuild.pairs(state)}}}" if type(state) is dict
             else rebuild.value(state))
    pairs = "" if pairs is None else rebuild.pairs(pairs)
    return (f"{rebuild.known(remade)}({make}, ({args}{',' * bool(args)}), "
            f"{state}, [{rebuild.values(items)}], {{{pairs}}})")


def remade(make: Callable, args: tuple, state, items: list, pairs: dict):
    """The object that pickle would make, its class's own methods unseen."""
    made = make(*args)
    base = builtin_base(type(made))
    for key, value in pairs.items():
        base.__setitem__(made, key, value)
    if items:
        getattr(base, "extend", set.update)(made, items)
    if type(state) is dict:
        for name, value in state.items():
            object.__setattr__(made, name, value)
    elif state is not None:
        made.__setstate__(state)
    return made


DERIVED[tuple] = derived_tuple

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
    return remaking(rebuild, rebuild.known(type(made)), ", ".join(parts), {
        each: getattr(made, each) for each in ATTRIBUTES
        if getattr(made, each) != getattr(plain, each)})


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
    made = remaking(rebuild, make, rebuild.values(args), vars(error) | {
        link: value for link, value in links.items() if value})
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
        return instance(rebuild, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        make, args, state, items, pairs, *_ = (*reduce(value), *[None] * 3)
    parts = args, state, [*(items or ())], dict(pairs or ())
    rebuild.outside.kept.append(parts)
    return remaking(rebuild, rebuild.value(make), rebuild.values(args),
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
