"""Writes to objects from outside, which wait until the graph has run.

In: what a trace does to attributes, dicts, lists, deques and sets that
existed before. Out: the calls by which `finish` does it for real, in
eager's order. A dict or an object is compared, key by key, with what was
read from it; a list, a deque or a set is copied when it is first read.
`owner.name = value` follows a `__setattr__` or a descriptor written in
Python; an object that the trace made is written to as it is. `finish` also
computes the texts and numbers of tensors that no instruction reads. Without
this file these break the graph, and so does a write to a dict; a call that
sets an attribute or reads a list is eager's. PyTorch's is
torch/_dynamo/side_effects.py.
"""

import math
import operator
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from ...core.errors import Unsupported
from ...core.graph import tensors_of
from ...core.guard import (ABSENT, CONSTANTS, ORDINARY, Attribute, Call,
                           Constant, Item, Local, Source, home, is_a,
                           is_constant, trusted)
from ...core.sizes import hint
from .. import attributes
from ..attributes import type_of
from ..bytecode import Instruction
from ..frame import NULL, OPCODES, TRUTH, Frame
from .graph_breaks import stops
from ..reasons import WAYS, refusing, unsupported
from ..reconstruct import MAKERS, Rebuild
from ..recorder import SETTLE, settled, storage
from ..rules import INPLACE, means, registered, rule, unbound
from ..side_effects import (FIRST, LONG_LIST, UNREAD, Namespace,
                            Outside, is_bound, is_hidden)
from ..tracer import CHECKS


def write(outside: Outside, space: Namespace, key, value) -> None:
    """Let `key` be `value` from now on (ABSENT deletes it)."""
    if is_a(space.owner, torch.Tensor) and (
            type(space.owner) not in ORDINARY):
        raise unsupported("effect", "a change of a tensor of parts")
    key = outside.real(key)
    if not space.written:
        outside.pending.append(partial(changes, space))
    if type(key) is torch.SymInt:
        key, space.numbers[hint(key)] = hint(key), key
    if key not in space.now:  # it comes last, or last again
        space.written.pop(key, None)
    space.written.setdefault(key, key not in space.now)
    if value is not ABSENT:
        space.now[key] = value
    elif key in space.now:
        del space.now[key]
        outside.read(space, key)  # an absence is guarded, and a presence
        if key in space.real and not is_a(
                space.owner, types.CellType):
            outside.guard(space.names, "contains", key)


WAYS["write"] = write


def writers(space: Namespace, key) -> tuple:
    """The object that a key is written to, what sets and what deletes it.
    """
    owner = space.owner
    if space.kind == "items":
        base = OrderedDict if is_a(owner, OrderedDict) else dict
        return owner, base.__setitem__, base.__delitem__
    if space.kind == "attributes" and is_hidden(owner, key):
        return space.real, dict.__setitem__, dict.__delitem__
    return owner, object.__setattr__, object.__delattr__


def changes(space: Namespace) -> Iterator[tuple]:
    """Yield what writes the items or attributes back, in order.

    A key that was deleted and came back is deleted first.
    """
    real = space.real
    for key, anew in space.written.items():
        owner, put, remove = writers(space, key)
        value = space.now.get(key, ABSENT)
        old = space.before.get(key, UNREAD) if key in real else ABSENT
        if value is not old and value is ABSENT or (
                anew and key in real and value is not ABSENT):
            yield remove, owner, key
            old = ABSENT
        if value is not old:
            yield put, owner, space.numbers.get(key, key), value


# What was written to


def account(rebuild: Rebuild) -> None:
    """Note the places written to: they may be counters."""
    outside, owners = rebuild.outside, {}
    counters = outside.recorder.sizes.history.counters
    for _, *given in [call for ask in outside.pending for call in ask()]:
        owner, key = (*given, None, None)[:2]
        owners[id(owner)] = owner
        space = outside.overlays.get((id(owner), "items"))
        if type(key) is str:
            counters.add(key)
        elif type(key) is int:
            counters.add(outside.place(space, key) if space else Item(
                outside.source(owner), key))
    keep_apart(outside, {*map(type_of, owners.values())})


def keep_apart(outside: Outside, kinds: set[type]) -> None:
    """Guard that no two objects, of classes written to, are one."""
    places: dict[type, dict[int, Source]] = {}
    for value, real in outside.reals.items():
        place, kind = outside.sources[value], type_of(real)
        if kind in kinds and type(place) is not Constant:
            places.setdefault(kind, {})[value] = place
    for same in places.values():
        if len(same) > 1:
            outside.relate(f"len(set(map(id, [{{}}]))) == {len(same)}",
                           *same.values())


CHECKS.append(account)

# Containers from outside


def replaced(before: list, now) -> Iterator[tuple]:
    """Yield the calls that put a copy's elements into the real sequence,
    or that append them if it had none, or none was read."""
    kind, changed = type(now), [at for at, (old, new) in enumerate(
        zip(before, now)) if old is not new]
    if len(now) != len(before) or len(changed) > LONG_LIST:
        if before:
            yield kind.clear, now
        yield kind.extend, now, (*now,)
    else:
        for at in changed:
            yield kind.__setitem__, now, at, now[at]


#: Opcodes that push what they read; that only move what they take; that
#: store it; that ask for its truth; that call.
LOADING = {"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "BINARY_SUBSCR"}
MOVERS = {*"""LOAD_GLOBAL LOAD_DEREF LOAD_FAST LOAD_CONST PUSH_NULL COPY
    SWAP POP_TOP STORE_FAST STORE_DEREF JUMP POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE""".split()}
STORING = {"STORE_ATTR", "STORE_SUBSCR"}
ASKING_TRUTH = {*TRUTH, "TO_BOOL", "UNARY_NOT"}
CALLING = "CALL", "CALL_KW"


def appends(step: Instruction) -> bool:
    """Whether an instruction wants a method that only appends."""
    return step.name == "LOAD_ATTR" and (
        step.argument[0] in ("append", "extend"))


def hands_on(values: list) -> bool:
    """Whether a call is of a function of the program's, which gets each
    value in a variable of its own."""
    function = next(each for each in values if each is not NULL)
    if type(function) is types.MethodType:
        function = function.__func__
    return type(function) is types.FunctionType and not (
        trusted(home(function)) or registered(function)
        or function.__code__.co_flags & (CO_VARARGS | CO_VARKEYWORDS))


# Texts, and numbers of tensors, that no instruction has read


def later(tracer, *reason) -> Callable:
    """A function that breaks the graph here, if called before the end."""
    error = unsupported(*reason).at(tracer.where())
    error.stops = stops(tracer.frames)

    def stop():
        raise copy(error)  # what is raised holds its frames
    return stop


@dataclass(eq=False)
class Later:
    """The result of `function(*args)`, which is called once the graph has
    run, of these `versions` of its tensors. `now` gives it before that, or
    breaks the graph where it was made.
    """

    now: Callable
    function: Callable
    args: tuple = ()
    versions: list = field(default_factory=list)


def read_now(value):
    """The value, not put off any more."""
    return value.now() if type(value) is Later else value


def versioned(tracer, args: tuple) -> list[tuple]:
    """The writes to each tensor, and whether it has a gradient: both
    change its text."""
    return [(tracer.recorder.written[storage(each)], each.requires_grad)
            for each in tensors_of(args)]


def finished(rebuild: Rebuild, value: Later) -> tuple:
    """The call that gives it, unless a tensor has changed meanwhile."""
    if versioned(rebuild.tracer, value.args) != value.versions:
        value.now()  # or never
    return value.function, *value.args


SETTLE[Later], MAKERS[Later] = read_now, finished
rule(torch.set_printoptions)(refusing("effect", "torch.set_printoptions"))


def samples(values: tuple) -> tuple:
    """The samples of values; the same tuple, if all of them are known."""
    found = [SAMPLES[type(each)](each) for each in values]
    return values if all(map(operator.is_, found, values)) else (
        type(values)(found))


#: The class of a value -> its sample: what takes it fails for no other.
SAMPLES: dict[type, Callable] = {
    **dict.fromkeys(CONSTANTS, lambda value: value),
    tuple: samples, torch.Size: samples,
    torch.SymInt: lambda _: -1, torch.SymFloat: lambda _: math.nan,
    Later: lambda value: value.function(*samples(value.args)),
    FakeTensor: lambda value: value if value.constant is not None else (
        torch.full([2] * value.dim(), math.nan).to(value.dtype))}


def computed(tracer, function, *args):
    """The result of a function that only computes, or a `Later`."""
    which, found, kinds = versioned(tracer, args), None, {*map(type, args)}
    with suppress(Exception), unset_fake_temporarily():
        if (given := samples(args)) is not args:
            found, kinds = function(*given), kinds.union(map(type, given))
    if type(found) not in (str, tuple) and (  # of a text, a list, a size
            kinds & {str, list} or Later not in kinds and not which) or (
            is_a(found, (type(None), torch.Tensor))) or (
            which and torch._C._functorch.peek_interpreter_stack()):
        return tracer.call(function, [*map(read_now, args)])
    now = later(tracer, "data-dependent", function.__name__) if which else (
        lambda: function(*settled(args)))
    return Later(now, function, args, which)


#: Functions that give a text, or a number of a tensor or of another.
COMPUTING = {*map(id, (
    str, repr, ascii, format, str.format, float, int, round, abs,
    torch.Tensor.item, torch.Tensor.tolist))}


def call_read(call: Callable, frame, count, *values):
    """A call; the graph may break at one of Python's library."""
    function, *args = [each for each in values if each is not NULL]
    plain, args = unbound(
        function, is_bound(function) and function.__self__, tuple(args))
    if id(plain) in COMPUTING and not frame.keywords and (
            frame.current().name == "CALL"):
        return computed(frame.tracer, plain, *args)
    if Later in map(type, values) and not hands_on(values):
        try:
            values = [*map(read_now, values)]
        except Unsupported:
            if type(plain).__module__ == "builtins" and (
                    getattr(plain, "__objclass__", plain).__module__ or ""
                    ).partition(".")[0] in sys.stdlib_module_names:
                raise unsupported("library", plain.__qualname__) from None
            raise
    return call(frame, count, *values)


def BINARY_OP(frame, operation, left, right):
    plain = INPLACE.get(operation, operation)
    if plain is operator.mod and type(left) is str or (
            Later in (type(left), type(right)) and (
            plain in (operator.add, operator.sub, operator.mul)
            or plain is operator.truediv and type(right) in CONSTANTS)):
        return computed(frame.tracer, plain, left, right)
    return frame.tracer.binary(operation, read_now(left), read_now(right))


def FORMAT_VALUE(frame, how, value, spec=""):
    if how[0]:
        value = computed(frame.tracer, how[0], value)
    return computed(frame.tracer, format, value, spec)


def together(*values) -> tuple:
    """These values, of which nothing asks yet."""
    return values


#: The instructions whose results may be put off.
PUTTING_OFF = {
    **{name: (*row, partial(call_read, call)) for name in CALLING
       for *row, call in [OPCODES[name]]}, "BINARY_OP": (2, 1, BINARY_OP),
    "FORMAT_VALUE": (lambda how: 1 + how[1], 1, FORMAT_VALUE),
    "FORMAT_SIMPLE": (1, 1, lambda f, _, x: computed(f.tracer, format, x)),
    "FORMAT_WITH_SPEC": (2, 1, lambda f, _, x, spec: computed(
        f.tracer, format, x, spec)),
    "CONVERT_VALUE": (1, 1, lambda f, how, x: computed(f.tracer, how, x)),
    "BUILD_STRING": (int, 1, lambda f, _, *parts: computed(
        f.tracer, str.join, "", parts)),
    "BUILD_TUPLE": (int, 1, lambda f, _, *values: computed(
        f.tracer, together, *values) if f.current().offset >= 0 and (
            Later in map(type, values)) else values)}
OPCODES |= PUTTING_OFF

# Lists that grow


def taken(frame: Frame, step: Instruction, values: list) -> None:
    """Read the lists and texts that an instruction takes, or looks at."""
    outside, name = frame.tracer.outside, step.name
    if step.offset < 0 or not outside.unread and (
            Later not in map(type, values)):
        return  # it hands values over a break, or nothing was put off
    if name in MOVERS or name in CALLING and hands_on(values) or (
            name == "RETURN_VALUE" and len(frame.tracer.frames) == 1):
        return
    if name not in PUTTING_OFF:
        values[:] = map(read_now, values)
    if name == "IS_OP" or appends(step):
        return
    more = values[1:]
    if name in ASKING_TRUTH or (
            name == "BINARY_SUBSCR" and type(*more) is int) or (
            name == "CALL" and any(each is len for each in values[:2])):
        values = [each for each in values if type(each) is not list]
    elif step.argument is operator.iadd and type(*more) in (
            list, tuple) or name in STORING and outside.is_outside(more[0]):
        values = more
    for each in values or frame.stack[-1:]:
        outside.whole(each)


def grown(outside: Outside, real, source: Source, trusted: bool = False):
    """The value that stands for `real`. A list has one for the elements
    that are appended to it, until an instruction takes it.

    How long the real one is, and what is in it, is then no fact. Nor is
    a text that a graph break handed over, until an instruction reads it.
    """
    if type(real) is str and type(source) is Local and (
            source.name.startswith(".stack")):
        outside.guard(source, "type", str)
        return outside.remember(real, Later(partial(
            outside.admit, real, source), str), source)
    if type(real) not in (list, deque):
        return outside.admit(real, source, trusted)
    value = stand_in(outside, real, source)
    steps = [step for frame in outside.recorder.frames[-1:] for step in
             frame.program.instructions[frame.next - 1:frame.next + 1]]
    return value if not steps or steps[0].name in LOADING or (
        steps[0].name == "CALL" and appends(steps[1])
        ) else outside.whole(value)


WAYS |= {"taken": taken, "grown": grown}


def stand_in(outside: Outside, real: list | deque, source: Source):
    """The value of a sequence, which is empty until that is read."""
    if id(real) not in outside.values:
        value, before = [], []
        outside.guard(source, "type", type(real))
        if type(real) is deque:
            outside.guard(Attribute(source, "maxlen"), "equal", real.maxlen)
            value = deque((), real.maxlen)
        outside.remember(real, value, source)
        outside.unread[id(value)] = partial(
            copied, outside, real, before, value)
        outside.pending.append(partial(replaced, before, value))
    outside.met(value := outside.values[id(real)], source)
    return value


def copied(outside: Outside, real: list | deque, before: list, value):
    """The value with a copy of the sequence in it, which the trace may
    change, before what was appended."""
    del outside.unread[id(value)]
    before += outside.elements(real, outside.source(value))
    added = [*value]
    value.clear()
    value.extend([*before, *added])
    return value


@rule(list.__len__)
def list_length(tracer, values: list) -> int:
    """How long a list is: if it was not read, the old length may vary."""
    outside, real = tracer.outside, tracer.outside.real(values)
    if id(values) not in outside.unread:
        return tracer.natively(len, (values,), depth=0)
    return tracer.binary(operator.add, len(values), outside.admit(
        len(real), Call(outside.constant(len), outside.source(values))))


@rule(list.__getitem__)
def element(tracer, values: list, key):
    """An element of a list, of which no other need be read."""
    outside, real = tracer.outside, tracer.outside.real(values)
    if id(values) in outside.unread and not -len(values) <= key < 0:
        at = key + len(values) * (key < 0)
        if -len(real) <= at < len(real):
            return grown(outside, real[at], Item(
                outside.source(values), at))
        outside.whole(values)
    return tracer.natively(operator.getitem, (values, key), depth=0)


def came_and_went(before: tuple, now: set) -> Iterator[tuple]:
    """Yield what adds new elements to the real set, and removes others."""
    for change, elements in (
            (set.update, now.difference(before)),
            (set.difference_update, {*before} - now)):
        if elements:
            yield change, now, (*elements,)


def constants(outside: Outside, real: set | frozenset, source: Source):
    """A set of constants, copied; its order is guarded, too."""
    if not all(map(is_constant, real)):
        raise unsupported("attribute", f"a set of objects, {source},")
    before = tuple(real)
    outside.guard(source, "keys", before)
    value = outside.remember(real, type(real)(before), source)
    outside.pending.append(partial(came_and_went, before, value))
    return value


@rule(set.__iter__, frozenset.__iter__)
def in_order(tracer, values: set | frozenset):
    """An iterator of a set; if the copy has another order, in the real's.
    """
    real = tracer.outside.real(values)
    if real is values or [*type(real)((*real,))] == [*real]:
        return iter(values)
    if real != values:
        raise unsupported("effect", "iterating over a set")
    return iter((*real,))


FIRST |= {set: constants, frozenset: constants, **dict.fromkeys(
    (list, deque), lambda outside, *given: outside.whole(
        stand_in(outside, *given)))}


# Attributes

#: Classes whose objects a program may change only if it made them. A
#: function of the program's may get attributes, though.
FIXED = torch.Tensor, types.ModuleType, type, types.FunctionType
#: Attributes that decide what all others are: the same holds of these.
DECIDING = "__class__", "__dict__"
#: Classes in C that set an attribute as `object` does.
LIKE_OBJECT = (object, type, BaseException, types.ModuleType, partial,
               types.SimpleNamespace)


def store_attr(tracer, owner, name: str, value) -> None:
    """`owner.name = value`, or `del owner.name`; outside, it waits."""
    given, owner = () if value is ABSENT else (value,), settled(owner)
    how = "__setattr__" if given else "__delattr__"
    tracer.call(attributes.bound(tracer, owner, how), (name, *given))


def store_plain(tracer, function, owner, name: str, value=ABSENT) -> None:
    """The same as C does it: `object.__setattr__`, say."""
    outside, given = tracer.outside, () if value is ABSENT else (value,)
    if is_a(owner, torch.Tensor) and name == "data" and value is owner:
        return
    if is_a(owner, torch.Tensor) and name == "grad" and value is None:
        if outside.source(owner) is not None:
            write(outside, outside.space("slots", owner), name, value)
        return
    if is_a(owner, torch.Tensor) and name == "requires_grad" and given:
        tracer.call(torch.Tensor.requires_grad_, (owner, *given))
        return
    found, place = attributes.lookup(tracer, type(owner), name)
    existed = attributes.existed(tracer, owner)
    if is_a(owner, FIXED) and not tracer.is_made(owner) and not (
            existed and found is ABSENT and is_a(
                owner, (types.FunctionType, torch.Tensor))) or (
            name in DECIDING and existed):
        tracer.recorder.sizes.history.counters.add(name)
        raise unsupported("effect",
                          f"setting {name} of a {type_of(owner).__name__}")
    hook = attributes.method(tracer, type(found), "__set__" if given
                             else "__delete__")
    is_slot = hook is not ABSENT
    if is_slot and place is not None:
        found = outside.admit(found, place)
    elif place is not None:  # it may become one that sets
        outside.guard(place, "type", type(found))
    start = found, owner
    if isinstance(found, property):
        hook, start = found.fset if given else found.fdel, (owner,)
    if type(hook) is types.FunctionType:
        tracer.call(hook, (*start, *given))
    elif existed and (
            found is not ABSENT or type(owner).__dictoffset__) and (
            not isinstance(found, property)):
        if is_slot and (not given or (
                type(owner).__flags__ & attributes.MADE_IN_C)):
            raise unsupported("effect", f"deleting or setting {name}")
        if not given and attributes.own(tracer, owner, name) is ABSENT:
            raise attributes.no_attribute(owner, name)
        write(outside, outside.space(
            "slots" if is_slot else "attributes", owner), name, value)
    else:
        tracer.native(function, (owner, name, *given))


rule(setattr)(store_attr)
rule(delattr)(partial(store_attr, value=ABSENT))
means(store_plain, *(function for kind in LIKE_OBJECT for function in (
    kind.__setattr__, kind.__delattr__)))

OPCODES |= {
    "STORE_ATTR": (2, 0, lambda f, name, value, owner: store_attr(
        f.tracer, owner, name, value)),
    "DELETE_ATTR": (1, 0, lambda f, name, owner: store_attr(
        f.tracer, owner, name, ABSENT))}
