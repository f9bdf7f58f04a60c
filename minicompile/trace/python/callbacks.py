"""C functions on objects: what they see of them, and what they call.

In: a C function and its arguments, some of them objects. Out: arguments
that it may look at, and its result. `look` guards what it will see, also
inside containers. While it runs, a `Watch` refuses before the first line
of a user's `__eq__` or `__index__`: that would run unseen, and once more
after the graph. Callbacks and iterators given to it are stand-ins, which
interpret. Dynamo has no such watch: it models each function
(torch/_dynamo/variables/builtin.py).
"""

import builtins
import functools
import operator
import os
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import chain, repeat, starmap

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ...core.errors import Unsupported
from ...core.guard import (ABSENT, CONSTANTS, IDENTITIES, Guard, is_a,
                           trusted)
from ...core.sizes import SCALARS, SYMBOLIC, formula, hint
from .. import attributes
from ..reasons import WAYS, Raised, internal, unsupported
from ..recorder import settled
from ..rules import rule
from ..tracer import begin

# The functions that may run

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes without a rule that may run natively.
HARMLESS: set = {getattr(builtins, name) for name in """bin bytearray
    bytes chr classmethod divmod enumerate hex list map oct ord property
    range slice staticmethod tuple zip""".split()} | {
    os.fspath, int.from_bytes, deque, defaultdict, types.MappingProxyType,
    functools.partial, torch.Size, torch.device, torch.finfo, torch.iinfo,
    torch.is_grad_enabled, torch.get_default_dtype,
    torch._C._get_privateuse1_backend_name,
    torch._C._has_torch_function, torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic}

#: Modules whose classes have methods that change no more than their object.
HOMES = SAFE_OWNERS - {"operator"} | {
    "builtins", "collections", "re", "types", "torch", "numpy"}
#: Python's own that have a name. Views and iterators have none; and a
#: library's class in C may say that it is builtin, too.
PYTHONS = {id(each) for space in (builtins, types)
           for each in vars(space).values()}

#: Methods that make an object or tell more than which one it is, and
#: functions that call it, or ask for its truth or its hash.
TELLING = {"__new__", "__call__", "__reduce_ex__", "__reduce__",
           "__getstate__", "__dir__", "__sizeof__", "__subclasses__",
           "__getattribute__", "filterfalse", "takewhile", "dropwhile",
           "fromkeys"}


def is_allowed(function) -> bool:
    """Whether C code is known to compute, and to do no more."""
    if function.__name__ in TELLING:
        return False
    if kind := getattr(function, "__objclass__", None):
        return kind.__module__ in HOMES and (
            kind.__module__ != "builtins" or id(kind) in PYTHONS
            or kind.__name__.startswith(("dict_", "odict_"))
            or kind.__name__.endswith("iterator"))
    owner = function if is_a(function, type) else function.__self__
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    return home in SAFE_OWNERS or not HARMLESS.isdisjoint((function, owner))


# The values that C functions see


def in_python(tracer, value, name: str):
    """A method written in Python of the value's class, or None."""
    method = attributes.method(tracer, type(value), name)
    return method if type(method) is types.FunctionType else None


#: Their text tells where an object is: one that is made will be elsewhere.
ADDRESSED = {object.__repr__, types.FunctionType.__repr__}


def pin(tracer, value) -> None:
    """Guard that a value from outside is this very object."""
    outside = tracer.outside
    if outside.is_outside(value):
        outside.guard(outside.source(value), "is", value)


#: Classes of iterators, and what gives the stand-in of one from before.
ITERATORS: dict[type, Callable] = {}


def look(tracer, value, depth: int = 1):
    """`value` as C code may see it: nothing in it can change unseen.

    At depth 0 that is the object alone; at 1 it may compare and hash what
    is in it, however deep; at 2 it may print it, too.
    """
    if depth > 1 and type(value) in SYMBOLIC:
        value = settled(value)
    outside, kind = tracer.outside, type(value)
    if depth < 2 and kind in ITERATORS:
        value = ITERATORS[kind](outside, value)
    if depth > 1 and tracer.is_made(value) and kind.__repr__ in ADDRESSED:
        raise unsupported("builtin", "the text of an address")
    if kind in CONSTANTS or is_a(value, (torch.Tensor, *SYMBOLIC)):
        return value
    if is_a(value, IDENTITIES) or hasattr(
            kind, "__members__"):  # an enumeration
        if depth:
            pin(tracer, value)
        return value
    if outside.is_dict(value) and (
            depth < 2 or kind in (dict, OrderedDict)):
        value = outside.resolve(value)
    if depth:
        _look_into(tracer, value, depth)
    if outside.is_outside(value):
        if depth > 1 or not is_featureless(kind):
            raise unsupported("builtin", f"reading a {kind.__name__}")
        if depth:
            pin(tracer, value)
    return value


def _look_into(tracer, value, depth: int) -> None:
    """Guard a container's elements; refuse comparisons in Python."""
    if type(value) is Callback or hasattr(type(value), "__next__"):
        raise unsupported("builtin", "reading an iterator")
    for name in ("__eq__", "__lt__", "__gt__", "__hash__"):
        if in_python(tracer, value, name) is not None:
            raise unsupported("builtin", "comparing objects of "
                              f"{type(value).__name__} in C")
    parts = [*dict.keys(value), *dict.values(value)] if is_a(
        value, dict) else next((base.__iter__(value) for base in (
            tuple, list, set, frozenset, deque) if is_a(
                value, base)), ())
    for part in parts:
        if tracer.outside.is_dict(part):
            raise unsupported("builtin", "reading a dict from outside")
        look(tracer, part, depth)


def is_featureless(kind: type) -> bool:
    """Whether C code can see no more of an object than which one it is."""
    return not any(isinstance(found, types.WrapperDescriptorType)
                   for each in kind.__mro__[:-1]
                   for found in vars(each).values())


TABLES, SETS = (dict, OrderedDict, defaultdict), (set, frozenset)

# How C functions use their arguments: they look at one to a depth, or:


def put_away(tracer, value):
    """They put it somewhere, or ask which object it is."""
    return value


def called(tracer, value):
    """They call it."""
    return Callback(tracer, value) if callable(value) else look(
        tracer, value, 0)


def stepped(tracer, value):
    """They step through it, or call it if it has no elements."""
    return tracer.iterate(value) if is_a(
        value, (torch.Tensor, *SETS)) or any(
            in_python(tracer, value, name)
            for name in ("__iter__", "__getitem__")) else called(
                tracer, value)


def elements(tracer, value):
    """They look up what is in it."""
    return value if is_a(value, SETS) else [
        *map(tracer.key, tracer.unpacked(value))]


def compared(tracer, value):
    """They compare it; it is settled, as none may run a second time."""
    look(tracer, value)
    return settled(value)


def known_by(tracer, value):
    """They ask which object it is, or where it is to go on."""
    if type(value) in ITERATORS and tracer.outside.is_outside(value):
        raise unsupported("builtin", "that looks at an iterator")
    return look(tracer, value)


TO_DEPTH = [functools.partial(look, depth=depth) for depth in range(3)]

#: How C functions use the first argument, and the others: by their names,
#: or for all functions of a module.
SEEN = {name: row for names, row in (
    ("append appendleft insert setdefault get pop send throw partial "
     "repeat slice setitem __setitem__ __get__ issubclass "
     "_has_torch_function "
     "_has_torch_function_unary _has_torch_function_variadic",
     (TO_DEPTH[0], put_away)),
    ("extend extendleft iadd __iadd__ join", (TO_DEPTH[0], stepped)),
    ("str repr format format_map __mod__ __format__ __repr__ __str__ "
     "complex divmod _struct",
     (TO_DEPTH[2], TO_DEPTH[2])),
    ("map starmap", (called, stepped)),
    ("accumulate groupby", (stepped, called)),
    ("list tuple zip enumerate deque fsum Size bytes bytearray "
     "from_bytes itertools", (stepped, stepped)),
    ("_heapq _bisect", (compared, compared)),
    ("hash __hash__ __setstate__", (known_by, known_by)),
    ("defaultdict", (put_away, stepped))) for name in names.split()}

rule(str.__mod__)(lambda tracer, text, values: tracer.natively(
    operator.mod, (text, values), depth=2))

#: Methods of sets that look up their argument.
KEYED = {"add", "discard", "remove", "__contains__"}


def arguments(tracer, function, args, kwargs: dict, depth: int) -> tuple:
    """The arguments of a C function, each as its row says.

    It looks at the object of a method alone if there are no others.
    """
    owner = getattr(function, "__objclass__", None)
    if (owner in TABLES or function in (
            operator.setitem, operator.delitem, operator.ior)) and (
            tracer.outside.is_dict(args[0])):
        raise unsupported("builtin", function.__qualname__)
    if function in (iter, reversed) and attributes.lookup(tracer, type(
            args[0]), f"__{function.__name__}__")[0] is ABSENT and (
                in_python(tracer, args[0], "__getitem__")):
        return [by_index(tracer, args[0])], {}
    if owner and len(args) == 1:
        depth = 0
    elif owner in CONSTANTS or not SCALARS.keys().isdisjoint(
            map(type, args)):
        depth = 2  # the methods of numbers know no symbols
    first, others = SEEN.get(getattr(function, "__name__", None)) or (
        SEEN.get(getattr(function, "__module__", None),
                 (TO_DEPTH[depth],) * 2))
    second = others
    if owner in TABLES or owner in SETS and function.__name__ in KEYED:
        second = type(tracer).key
    elif owner in SETS:
        second = others = elements
    return [use(tracer, value) for use, value in zip(
        chain((first, second), repeat(others)), args)], {
        key: others(tracer, value) for key, value in kwargs.items()}


def look_up(tracer, key, mapping=None):
    """A key as C code may look it up; a tensor from outside is guarded.

    A number that varies stays one where a dict from outside lacks it.
    """
    if type(key) is torch.SymInt and tracer.outside.is_dict(mapping):
        space = tracer.outside.space("items", mapping)
        listed = Guard(space.names, "keys", tuple(space.real)).key()
        if not (listed in tracer.outside.guards or hint(key) in space.real
                ) and {*map(type, space.written)} <= {str}:
            sizes = tracer.recorder.sizes
            sizes.ranges.append(sizes.relation(
                "({}) not in {0}", formula(key), space.names))
            return key
    key, source = settled(key), tracer.outside.source(key)
    if is_a(key, torch.Tensor):
        if source is None:
            raise unsupported("data-dependent", "an index")
        tracer.outside.guard(source, "is", tracer.outside.real(key))
    return look(tracer, key)


def items(value) -> dict:
    """The items of `**value`, which is no dict; the tracer follows it."""
    if not hasattr(value, "keys"):
        raise TypeError(f"{type(value).__name__!r} object is not a mapping")
    return {key: value[key] for key in value.keys()}


def really(tracer, function, args=(), kwargs=None):
    """The result of C code that is to make no fake tensors."""
    with unset_fake_temporarily():
        return tracer.native(function, args, kwargs)


#: A question that a guard asks: one object for one question.
asking = functools.cache(functools.partial)


# The Python that C functions call

#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)

#: Modules that C code calls to read tensors; methods that read no values.
READERS = ("torch._tensor", "torch._subclasses")
MILD = {"__hash__", "__instancecheck__", "__subclasscheck__"}

#: What gives C code the text of a symbol: its formula.
TEXTS = [each.__repr__.__code__ for each in SYMBOLIC]


class Watch:
    """A profiler for `sys.setprofile` that refuses calls of user code.

    A library's code has no effects. A symbol that C code prints becomes a
    constant, in Python's words. The sympy that computes symbols is not
    watched: it imports modules late.
    """

    def __init__(self, function):
        self.function, self.asked, self.inside = function, False, None

    def __call__(self, frame, event, _):
        if event == "return" and frame is self.inside:
            self.inside = None
        if event != "call" or self.inside:
            return
        name, code = getattr(self.function, "__name__", ""), frame.f_code
        home = frame.f_globals.get("__name__") or ""
        if code in TEXTS:
            number = frame.f_locals["self"]
            number.node._graph_repr = repr(settled(number)).__str__
        if home == "torch.fx.experimental.sym_node":
            self.inside = frame
        elif home.startswith(READERS) and code.co_name not in MILD:
            self.asked = True  # raised later: C++ is not to be unwound
        elif not (trusted(home) or home.startswith("namedtuple_")):
            raise unsupported("builtin", f"{name}, which calls "
                              f"{code.co_qualname},")


def watched(function, args, kwargs):
    """A C function's result; refused if it calls the program's code.

    If a profiler is already active, it stays and nothing is watched.
    """
    if sys.getprofile() or is_a(function, PYTHON) or not (
            {*map(type, args)}.isdisjoint(SYMBOLIC)):
        return function(*args, **kwargs)
    watch = Watch(function)
    sys.setprofile(watch)
    try:
        return function(*args, **kwargs)
    finally:
        sys.setprofile(None)
        if watch.asked:
            raise unsupported("data-dependent", getattr(
                function, "__name__", "a C function"))


def unwatched(function):
    """A function that C code may call: it interprets, and raises as Python.
    """
    @functools.wraps(function)
    def call(*args, **kwargs):
        watch = sys.getprofile()
        if type(watch) is Watch:
            sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        except Raised as raised:
            error = raised.exception
        except (Unsupported, RecursionError):
            raise
        except Exception as failure:
            raise internal(failure) from failure
        finally:
            if type(watch) is Watch:
                sys.setprofile(watch)
        raise error  # out here, where its context stays what it is
    return call


class Callback:
    """A function of the traced program that C code may call.

    None gives its argument. `then` is what C code asks of a result.
    """

    def __init__(self, tracer, function, then=None):
        self.tracer, self.function, self.then = tracer, function, then

    @unwatched
    def __call__(self, *args, **kwargs):
        made = args[0] if self.function is None else self.tracer.call(
            self.function, args, kwargs)
        made = self.tracer.outside.whole(made)  # C code may look into it
        return self.then(made) if self.then else made


class Compared:
    """A key that C code compares, by methods that the tracer follows."""

    def __init__(self, tracer, value):
        self.tracer, self.value = tracer, value

    def compare(self, other, by) -> bool:
        """The answer, with the value of another key."""
        return Callback(self.tracer, by, self.tracer.truth)(
            self.value, other.value if type(other) is Compared else other)

    __lt__ = functools.partialmethod(compare, by=operator.lt)
    __gt__ = functools.partialmethod(compare, by=operator.gt)


def is_compared(tracer, value) -> bool:
    """Whether a method of the program's compares it."""
    return any(in_python(tracer, value, name) for name in (
        "__lt__", "__gt__"))


class Elements:
    """An object that C code steps through by index."""

    def __init__(self, element, length=None):
        self.element, self.length = element, length

    def __getitem__(self, at):
        return self.element(at)

    def __len__(self):
        return self.length()


def by_index(tracer, value) -> Elements:
    """The elements of an object with a `__getitem__` in Python."""
    methods = (attributes.bound(tracer, value, name)
               for name in ("__getitem__", "__len__"))
    return Elements(*(Callback(tracer, method) for method in methods
                      if method is not ABSENT))


rule(Sequence.__iter__)(lambda tracer, value: iter(by_index(
    tracer, value)))


def stepping(tracer, iterator):
    """An iterator that C code may step."""
    step = in_python(tracer, iterator, "__next__")
    return iterator if step is None else starmap(Callback(
        tracer, types.MethodType(step, iterator)), repeat(()))


# Functions that are written in Python for a trace


def polyfill(*functions):
    """Let calling `functions` mean tracing the decorated one."""
    def register(written):
        rule(*functions)(lambda tracer, *args, **kwargs: begin(
            tracer, written, args, kwargs))
        return written
    return register


WAYS |= {"allowed": is_allowed, "prepare": arguments, "key": look_up,
         "mapping": lambda tracer, value: tracer.call(items, (value,)),
         "run": watched, "step": stepping}
