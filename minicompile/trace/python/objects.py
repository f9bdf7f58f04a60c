"""Objects that are no plain containers: made, read, asked, made again.

In: a class that is called; an object that is read for the first time, and
its source; an operator with an object on one side; an object that the
program made. Out: the object; its stand-in, guarded by the facts that this
shows; the result of the first method, in Python's order, that does not
decline; or the text that makes the object again in its present state, from
the parts that pickle would keep. PyTorch's are the `reconstruct` methods in
torch/_dynamo/variables/, builder.py and user_defined.py there.
"""

import builtins
import copyreg
import gc
import operator
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import torch

from ...core.errors import Unsupported
from ...core.sizes import SYMBOLIC
from ...core.guard import (ABSENT, CONSTANTS, Attribute, Call, Source, is_a,
                           trusted)
from .. import attributes
from ..attributes import type_of
from ..reasons import WAYS, Raised, unsupported
from ..recorder import settled
from ..reconstruct import DERIVED, MAKERS, Rebuild
from ..rules import COMPARISONS, INPLACE, means, rule, unbound
from ..side_effects import (BOUND, FIRST, SLOTS, Outside, contents,
                            is_hidden, made_tuple)
from ..tracer import MARKS
from .callbacks import Callback, Elements, in_python

# Objects that the program makes


def bare(tracer, new, kind, /, *args, **kwargs):
    """An instance without attributes, whose class has no `__del__`."""
    if type(attributes.lookup(tracer, kind, "__del__")[0]) is (
            types.FunctionType):
        raise unsupported("finalizer", f"{kind.__qualname__}.__del__")
    return tracer.own(tracer.native(new, (kind, *args), kwargs))


#: Python's own exceptions.
ERRORS = [each for each in vars(builtins).values()
          if is_a(each, type) and issubclass(each, BaseException)]
means(bare, *(kind.__new__ for kind in (
    object, dict, list, tuple, set, *ERRORS)))
means(lambda tracer, start, /, *args, **kwargs: tracer.native(
    start, args, kwargs), *(kind.__init__ for kind in (object, *ERRORS)))


@rule(type.__call__)
def make(tracer, kind: type, /, *args, **kwargs):
    """An instance of a class, its `__init__` followed."""
    if issubclass(kind, (torch.Tensor, torch.autograd.Function)):
        raise unsupported("builtin", kind.__qualname__)
    bare = attributes.method(tracer, kind, "__new__")
    value = tracer.call(getattr(bare, "__func__", bare), (kind, *args),
                        kwargs)
    done = tracer.call(attributes.bound(tracer, value, "__init__"), args,
                       kwargs) if is_a(value, kind) else None
    if done is not None:
        raise Raised(TypeError("__init__() should return None, not "
                               f"{type_of(done).__name__!r}"))
    return value


@rule(types.GenericAlias.__call__)
def _subscripted(tracer, alias, /, *args, **kwargs):
    """`list[int]()` is `list()`; an object with a `__dict__` would also
    remember the alias."""
    kind = alias.__origin__
    if kind.__dictoffset__:
        raise unsupported("builtin", f"a call of {alias}")
    return tracer.call(kind, args, kwargs)

# Values that only C code gets of an object

#: The parts of a function that are read, and guarded, at its calls.
HIDDEN = {"__defaults__", "__kwdefaults__", "__closure__", "__globals__"}

#: An exception that is traced has none.
TRACEBACK = vars(BaseException)["__traceback__"]


def stored(tracer, owner, name: str, read):
    """The result of the first `read()`, as an attribute from outside."""
    if type(owner) is types.FunctionType and name in HIDDEN:
        raise unsupported("attribute", f"a function's {name}")
    source = tracer.outside.found_at(owner)
    if is_a(owner, (type, types.ModuleType)):
        return tracer.outside.admit(read(), Attribute(source, name))
    if name == "__dict__":
        space = tracer.outside.space("attributes", owner)
        tracer.outside.guard(space.names, "type", type(space.real))
        return space.real
    space = tracer.outside.space("slots", owner)
    if is_hidden(owner, name):  # a guard would run the program's code
        raise unsupported("attribute", f"{name}, behind __getattribute__,")
    if name not in space.now:
        try:
            space.now[name] = WAYS["grown"](
                tracer.outside, read(), Attribute(source, name))
        except Raised:
            tracer.outside.relate(f"not hasattr({{}}, {name!r})", source)
            raise
    return tracer.outside.read(space, name)


@rule(*(kind.__get__ for kind in SLOTS))
def of_slot(tracer, slot, owner, kind=None):
    """The value that C code keeps for an object; guarded."""
    def read():
        return tracer.native(type(slot).__get__, (slot, owner, kind))

    if slot is TRACEBACK and not tracer.frames[-1].library:
        raise unsupported("attribute", "a traceback")
    return stored(tracer, owner, slot.__name__, read) if (
        owner is not None and attributes.existed(tracer, owner)) else read()


@rule(property.__get__)
def of_property(tracer, found: property, owner, kind=None):
    return found if owner is None else tracer.call(found.fget, (owner,))


#: Attributes of tensors that tell what a trace does not know.
TENSOR_SECRETS = {"_version", "_cdata", "_base", "_backward_hooks",
                  "output_nr", "name", "grad_fn", "is_leaf", "__dict__",
                  "retains_grad", "_post_accumulate_grad_hooks"}


def of_tensor(tracer, tensor: torch.Tensor, name: str):
    """An attribute of a tensor that is known, or read from outside."""
    if name == "grad":  # only an input has one
        return None if tracer.outside.source(tensor) is None else stored(
            tracer, tensor, name, lambda: tracer.outside.real(tensor).grad)
    if name in ("grad_fn", "is_leaf") and not tensor.requires_grad:
        return name == "is_leaf" or None
    if name in TENSOR_SECRETS:
        raise unsupported("attribute", f"a tensor's {name}")
    return tracer.recorder.function(getattr, (tensor, name), {})

#: Where an object is whose attributes another one has, too.
TARGETS = {types.MethodType: "__func__", types.GenericAlias: "__origin__"}


@rule(*(kind.__getattribute__ for kind in (*TARGETS, types.ModuleType)))
def forwarded(tracer, owner, name: str):
    """An attribute of its own, of another object, or of a module."""
    try:
        return attributes.generic(tracer, owner, name)
    except Raised:
        if target := TARGETS.get(type(owner)):
            return attributes.load_attr(
                tracer, getattr(owner, target), name)
        own = attributes.own(tracer, owner, "__getattr__")
        if own is ABSENT and hasattr(type(owner), "__getattr__") and (
                not trusted(type(owner).__module__)):
            raise  # then its class is asked
        return tracer.native(getattr, (owner, name))

# Operators on objects

#: The comparison that the right operand is asked for.
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq",
            "ne": "ne"}


def ask_objects(tracer, op, left, right):
    """`left op right`: a user's method, or recorded; ABSENT if neither."""
    plain = INPLACE.get(op, op)
    all_decline = plain in (operator.eq, operator.ne)
    rows = order(tracer, plain, left, right)
    if plain is not op:
        rows.insert(0, (f"__{op.__name__}__", left, right))
    for name, a, b in rows:
        if is_a(a, torch.Tensor):
            try:
                return tracer.recorder.function(
                    op if a is left else plain, (left, right), {})
            except Unsupported as refusal:  # of an object, which is asked
                if (refusal.kind != "argument" or a is not left
                        or not in_python(tracer, right, rows[-1][0])):
                    raise
                continue
        if attributes.method(tracer, type(a), name) is None:
            return ABSENT  # it cannot be called, as C code will say
        answer = tracer.asked(name, a, b)
        known = type(a) in CONSTANTS and (
            all_decline or is_a(a, (int, float, complex)))
        if answer is ABSENT and known and hasattr(type(a), name):
            answer = tracer.native(getattr(type(a), name), (a, b))
        if answer is ABSENT:
            all_decline = False
        elif answer is not NotImplemented:
            return answer
    return same(tracer, left, right) is (plain is operator.eq) if (
        all_decline) else ABSENT


def order(tracer, op, left, right) -> list[tuple]:
    """The methods Python tries for an operator, and their arguments."""
    plain = op.__name__.strip("_")
    name, other = f"__{plain}__", f"__{MIRRORED.get(plain, 'r' + plain)}__"
    rows, both = [(name, left, right)], (type(left), type(right))
    if op in COMPARISONS or both[0] is not both[1]:
        rows.append((other, right, left))
    first = both[0] in both[1].__mro__[1:] and (
        op in COMPARISONS or attributes.lookup(tracer, both[0], other)
        != attributes.lookup(tracer, both[1], other))
    return rows[::-1] if first else rows


def same(tracer, left, right) -> bool:
    """`left is right`, guarded if both are from outside."""
    if left is right:
        return True
    if {type(left), type(right)} & {*SYMBOLIC} and (
            type_of(left) is type_of(right)):
        return bool(left == right) and settled(left) is settled(right)
    ours = tracer.outside.source(left), tracer.outside.source(right)
    if None not in ours:
        tracer.outside.relate("{0} is not {1}", *ours)
    return False


WAYS |= {"tensor": of_tensor, "operator": ask_objects}


@rule(object.__eq__)
def _equal(tracer, one, other):
    return same(tracer, one, other) or NotImplemented


@rule(object.__ne__)
def _unequal(tracer, one, other):
    equal = tracer.asked("__eq__", one, other)
    return equal if equal is NotImplemented else not tracer.truth(equal)

# Methods and functions that every use creates again


def bound_method(outside: Outside, real: types.MethodType, source: Source):
    """A bound method, its function and its object read apart."""
    function = outside.admit(real.__func__, Attribute(source, "__func__"))
    owner = outside.admit(real.__self__, Attribute(source, "__self__"))
    return types.MethodType(function, owner)


def c_method(outside: Outside, real, source: Source):
    """A method written in C: its object read, and bound again."""
    outside.guard(Attribute(source, "__name__"), "equal", real.__name__)
    owner = WAYS["grown"](outside, real.__self__, Attribute(
        source, "__self__"))
    if real.__name__ != "append":
        outside.whole(owner)
    found = getattr(owner, real.__name__, None)
    if not isinstance(found, BOUND):
        raise unsupported("attribute", f"{source}, bound to an object,")
    return found


def inner(outside: Outside, real: types.FunctionType, source: Source):
    """A function known by its code: its next closure is as good."""
    for name in ("__code__", "__globals__"):
        outside.guard(Attribute(source, name), "is", getattr(real, name))
    for name in sorted(MARKS - vars(real).keys()):
        outside.lacks(Attribute(source, "__dict__"), name)
    return outside.remember(real, real, source)


def shown_dict(proxy: types.MappingProxyType) -> dict:
    """The dict that a mappingproxy shows."""
    return gc.get_referents(proxy)[0]


def proxy(outside: Outside, real, source: Source):
    """A mappingproxy of a dict, which is read as a whole."""
    names = outside.admit(shown_dict(real), Call(
        outside.constant(shown_dict), source))
    if not outside.is_dict(names):
        raise unsupported("builtin", "reading a mappingproxy")
    return outside.remember(real, types.MappingProxyType(
        outside.resolve(names)), source)


FIRST |= {types.MethodType: bound_method, types.FunctionType: inner,
          types.MappingProxyType: proxy,
          **dict.fromkeys(BOUND, c_method)}

# Results: objects and tuples of a class of their own

#: Classes whose `__new__` makes the bare instance of a derived class.
BASES = (OrderedDict, dict, list, set, deque, object)


def builtin_base(kind: type) -> type:
    """The builtin class whose methods make or change a `kind` unseen."""
    return next(base for base in BASES if issubclass(kind, base))


def instance(rebuild: Rebuild, value) -> tuple:
    """An object of a user's class, made without its `__init__`."""
    kind = type(value)
    if not rebuild.tracer.is_made(value):
        raise unsupported("result", f"a {kind.__name__}")
    state = {}
    for each in kind.__mro__:
        for name, found in vars(each).items():
            if type(found) is types.MemberDescriptorType or (
                    name == "__dict__" and isinstance(found, SLOTS)
                    and found.__get__(value)):
                with suppress(AttributeError):  # an empty slot
                    state[name] = found.__get__(value)
    base = builtin_base(kind)
    try:
        base.__new__(kind)
    except TypeError:  # written in C
        raise unsupported("result", f"a {kind.__name__}") from None
    contents = dict(base.items(value)) if issubclass(base, dict) else (
        [] if base is object else [*base.__iter__(value)])
    return remade, base.__new__, (kind,), state, contents


def remade(make: Callable, args: tuple, state=None, contents=()):
    """The object that pickle would make, its class's own methods unseen."""
    made = make(*args)
    base = builtin_base(type(made))
    if type(contents) is dict:
        for key, value in contents.items():
            base.__setitem__(made, key, value)
    elif contents:
        getattr(base, "extend", set.update)(made, contents)
    if type(state) is dict:
        for name, value in state.items():
            object.__setattr__(made, name, value)
    elif state is not None:
        made.__setstate__(state)
    return made


def derived_tuple(rebuild: Rebuild, value: tuple) -> tuple:
    """A tuple of a class of its own, with what it may have besides."""
    made = type(value), [*tuple.__iter__(value)]
    state = getattr(value, "__dict__", None)
    return (remade, made_tuple, made, state) if state else (
        made_tuple, *made)


DERIVED[tuple] = derived_tuple

# Functions

#: The attributes of a function that its constructor does not take.
ATTRIBUTES = ("__kwdefaults__", "__qualname__", "__module__", "__doc__",
              "__annotations__", "__dict__")


def made_function(rebuild: Rebuild, made: types.FunctionType) -> tuple:
    """A function: its code, globals and defaults, and its cells."""
    rebuild.outside.globals(made.__globals__)
    plain = types.FunctionType(made.__code__, made.__globals__,
                               closure=made.__closure__)
    return remade, types.FunctionType, (
        made.__code__, made.__globals__, made.__name__, made.__defaults__,
        made.__closure__), {
        each: getattr(made, each) for each in ATTRIBUTES
        if getattr(made, each) != getattr(plain, each)}


def cell(rebuild: Rebuild, made: types.CellType) -> str:
    """A cell, filled once all else is made: a function may be in it."""
    name = rebuild.hold(rebuild.call(types.CellType))

    def write():
        content = contents(made).get("cell_contents", ABSENT)
        if content is not ABSENT:
            rebuild.lines.append(
                f"{name}.cell_contents = {rebuild.value(content)}")
    rebuild.later.append(write)
    return name


def rebound(rebuild: Rebuild, method: types.MethodType) -> str | tuple:
    """A bound method; one of a stand-in's class is read from its object."""
    function, owner = method.__func__, method.__self__
    return f"{rebuild.value(owner)}.{method.__name__}" if type(
        owner) in SYMBOLIC and function in vars(type(owner)).values() else (
            types.MethodType, function, owner)


def bound_in_c(rebuild: Rebuild, method) -> str | tuple:
    """A method in C, of the class that has it: of `super()`, say."""
    found, owner = unbound(method, method.__self__, ())
    return f"{rebuild.known(found)}.__get__({rebuild.values(owner)})" if (
        owner) else as_pickled(rebuild, method)


MAKERS |= {types.FunctionType: made_function, types.CellType: cell,
           types.MethodType: rebound, **dict.fromkeys(BOUND, bound_in_c),
           Callback: lambda r, v: r.value(v.function),
           Elements: lambda _, v: (Elements, v.element, v.length)}

# Objects written in C

#: Modules of classes that pickle knows how to make again.
PICKLED = ("builtins", "collections", "functools", "itertools")


def as_pickled(rebuild: Rebuild, value) -> str | tuple:
    """An object written in C where it stands, or a user's instance. An
    iterator is put to its place when its list has all its elements."""
    kind = type(value)
    if kind in copyreg.dispatch_table:
        return remade, *copyreg.dispatch_table[kind](value)
    reduce = getattr(kind, "__reduce__", None)
    if kind.__module__ not in PICKLED or reduce is object.__reduce__ or (
            type(reduce) is not types.MethodDescriptorType):
        return instance(rebuild, value)
    with warnings.catch_warnings(action="ignore",
                                 category=DeprecationWarning):
        make, args, state, items, pairs, *_ = (*reduce(value), *[None] * 3)
    contents = dict(pairs or ()) or [*(items or ())]
    if state is None or type(state) is dict:
        return remade, make, args, state, contents
    name = rebuild.hold(rebuild.call(remade, make, args, None, contents))
    rebuild.behind.append(f"{name}.__setstate__({rebuild.value(state)})")
    return name


DERIVED[object] = as_pickled

# Views and iterators of dicts

#: The method that makes each; iterators notice that their dict changed.
DICT_VIEWS = {type(made): name for name in ("keys", "values", "items")
              for made in (getattr({}, name)(), iter(getattr({}, name)()))}


def dict_view(rebuild: Rebuild, made) -> tuple:
    """A view of the same dict, or an iterator as far along as this one."""
    outside = rebuild.outside
    found = next((each for each in gc.get_referents(made)
                  if is_a(each, dict)), {})
    whole = next((
        space.real if space.kind == "attributes" else space.owner
        for space in outside.overlays.values()
        if space.now is found), found)
    view = getattr(dict, DICT_VIEWS[type(made)])
    if not hasattr(made, "__next__"):
        return view, whole
    try:
        left = len(made.__reduce__()[1][0])
    except RuntimeError:
        left = None
    if left is None or outside.is_dict(whole) and outside.keys(
            space := outside.space("items", whole)) != list(space.real):
        raise unsupported("result", "an iterator of a changed dict")
    return advanced, view, whole, len(whole) - left


def advanced(view: Callable, mapping: dict, count: int):
    """An iterator of a view of a dict, `count` steps along."""
    iterator = iter(view(mapping))
    deque(islice(iterator, count), 0)
    return iterator


MAKERS |= dict.fromkeys(DICT_VIEWS, dict_view)
