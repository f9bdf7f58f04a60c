"""The tracer: one call of a function, run on stand-ins.

In: a function and the real values of its local variables. Out: the
state that its parts share: the recorder (the graph), the outside
(sources, guards, writes) and the stack of frames; and the operations
that make up the opcodes. A call is looked up by the callable (`RULES`),
then by its kind: torch operators are recorded, Python is followed, C is
judged. PyTorch's are torch/_dynamo/symbolic_convert.py, and functions.py
and torch.py in torch/_dynamo/variables/.
"""

import functools
import inspect
import operator
import types
from collections import namedtuple
from collections.abc import Callable
from itertools import islice

import torch
from torch._ops import OpOverload, OpOverloadPacket

from ..core.errors import Unsupported, Where
from ..core.sizes import SYMBOLIC
from ..core.guard import (ABSENT, Attribute, Function, Item, home, is_a,
                          is_constant, trusted)
from ..core.state import global_state, settings
from . import attributes, rules
from .frame import Frame
from .reasons import WAYS, Raised, Stopped, unsupported
from .recorder import DATA_DEPENDENT, History, Recorder, as_said
from .rules import apply, registered
from .side_effects import BOUND, Outside, contents

#: Libraries whose insides are never followed.
OPAQUE = tuple(f"{name}." for name in (
    "warnings", "importlib", "threading", "random", "time", "io",
    "subprocess", "socket", "pickle", "numpy", "torch._dynamo",
    "torch._inductor", "torch._functorch", "torch.utils.checkpoint",
    "torch.utils.hooks", "torch.autograd", "torch.jit", "torch.library",
    "torch._higher_order_ops", "torch.distributed.fsdp"))

#: Modules among them that only say in Python what others do.
FOLLOWED = {"torch.autograd.function", "torch.autograd.grad_mode",
            "torch.jit", "torch._functorch.functional_call",
            "torch._higher_order_ops.associative_scan",
            "torch._higher_order_ops.invoke_subgraph"}

#: The attributes of functions that are compiled, or left alone.
MARKS = {"_torchdynamo_orig_callable", "_torchdynamo_disable",
         "_dynamo_marked_constant"}

DEEPEST = 120

#: Functions that judge what a trace leaves, given its Rebuild.
CHECKS: list[Callable] = []


def line_of(frames: list) -> Where | None:
    """The user's line that is running, outside of libraries."""
    for frame in reversed(frames):
        if not frame.library:
            return frame.where()
    return frames[-1].where() if frames else None


class Tracer:
    """The state of one trace; opcodes and rules act through it."""

    def __init__(self, function: types.FunctionType, history: History,
                 stop: int | None = None, why: Unsupported | None = None):
        self.function = function
        self.clock, self.stop, self.why = 0, stop, why
        self.inference = torch.is_inference_mode_enabled()
        self.frames: list = []
        self.left: list = []  # frames that wait where the trace failed
        self.where = functools.partial(line_of, self.frames)
        self.recorder = Recorder(self.where, history, self.frames)
        self.outside = Outside(self.recorder)
        self.outside.sources[id(function)] = Function(function.__name__)
        self.made: dict[int, object] = {}
        self.found: dict[tuple, tuple] = {}  # results of attributes.lookup
        self.origins: dict[int, tuple] = {}  # exceptions, and where
        self.settings = before = settings()
        self.checks = [*CHECKS]
        self.patched = any(  # then functions of torch's may call it
            is_a(each, types.FunctionType) and not trusted(home(each))
            for each in vars(torch.nn.functional).values())
        self.outside.guard(None, "state", global_state())
        self.outside.pending.append(lambda: [
            each for each in settings() if each not in before])

    def tick(self) -> int:
        """The number of the next instruction; Stopped at the last."""
        self.clock += 1
        if self.clock == self.stop:
            raise Stopped(tuple(self.frames))
        return self.clock

    def own(self, value):
        """`value`, remembered as made by the traced program."""
        self.made[id(value)] = value
        return value

    def is_made(self, value) -> bool:
        """Whether the traced program made this function or class."""
        return id(value) in self.made

    def asked(self, name: str, value, *more):
        """The result of a method in Python or with a rule; or ABSENT."""
        method = attributes.method(self, type(value), name)
        if not rules.follows(method):
            return ABSENT
        answer = self.call(method, (value, *more))
        if name not in rules.ASKING or type(answer) in SYMBOLIC:
            return answer
        (given := rules.Given()).answer = answer
        return self.native(rules.ASKING[name], (given,))

    # Calls

    def call(self, function, args=(), kwargs=None):
        """The result of `function(*args, **kwargs)`, for any callable."""
        made = self.enter(function, args, kwargs)
        return made.run()[1] if type(made) is Frame else made

    def enter(self, function, args=(), kwargs=None):
        """The result of a call, or the frame that will return it."""
        args, kwargs = tuple(args), kwargs or {}
        if (rule := registered(function)) is not None:
            return apply(self, rule, args, kwargs)
        if is_a(function, types.FunctionType):
            return _python(self, function, args, kwargs)
        if is_a(function, types.MethodType):
            return self.enter(function.__func__, (
                function.__self__, *args), kwargs)
        if is_a(function, type) and WAYS["allowed"](function):
            return rules.natively(self, function, args, kwargs)
        if is_a(function, (*BOUND, types.MethodDescriptorType,
                           types.WrapperDescriptorType)):
            return rules.call_native(self, function, args, kwargs)
        if is_a(function, (OpOverload, OpOverloadPacket)):
            return self.recorder.function(function, args, kwargs)
        target = attributes.bound(self, function, "__call__")
        if target is ABSENT:
            return self.native(operator.call, (function,))  # TypeError
        return self.enter(target, args, kwargs)

    natively = rules.natively
    binary = rules.binary
    ask = rules.ask

    def native(self, function, args=(), kwargs=None):
        """Run a C function; its exception is the program's."""
        try:
            return self.recorder.sizes.run(
                rules.careful, function, tuple(args), kwargs or {})
        except (Raised, Stopped, Unsupported, RecursionError,
                KeyboardInterrupt):
            raise
        except DATA_DEPENDENT as error:
            raise unsupported("data-dependent", "a C function") from error
        except BaseException as error:
            if id(error) not in self.origins:
                error.__context__ = error.__cause__  # of C's own
            raise Raised(error) from error

    # Operators

    def key(self, key, mapping=None):
        """A key as C code, or a dict from outside, may look it up."""
        return key if type(key) in rules.VALUES else WAYS["key"](
            self, key, mapping)

    def truth(self, value=False) -> bool:
        """`bool(value)`."""
        if is_a(value, torch.Tensor):
            return WAYS["truth"](self, value)
        if type(value) is torch.SymFloat:
            value = value != 0.0  # its own truth makes it a constant
        if type(value) in (bool, int, str, type(None), *SYMBOLIC):
            return bool(value)
        for name in ("__bool__", "__len__"):
            answer = self.asked(name, value)
            if answer is not ABSENT:
                return bool(answer)
        return self.natively(bool, (value,), depth=0)

    def stored(self, mapping: dict, key):
        """The value that a dict holds at a key, or ABSENT."""
        key = self.key(key, mapping)
        if not self.outside.is_dict(mapping):
            return dict.get(mapping, key, ABSENT)
        return self.outside.read(self.outside.space("items", mapping), key)

    # Iteration

    def iterate(self, value):
        """`iter(value)`, as an iterator that C code may step."""
        return WAYS["step"](self, self.ask(iter, value))

    def mapping(self, value) -> dict:
        """The items of `**value`, as a dict."""
        return dict(self.outside.resolve(value)) if is_a(
            value, dict) else WAYS["mapping"](self, value)

    def unpacked(self, value, most: int | None = None) -> list:
        """The elements, or the first of them, of an iterable."""
        if type(value) in (tuple, list, torch.Size):
            return [*value[:most]]
        steps = self.iterate(value)
        return self.native(list, (
            steps if most is None else islice(steps, most),))


# Python functions


def _python(tracer, function: types.FunctionType, args, kwargs):
    """A Python function: one node if it is torch's operator, else run."""
    if is_marked(function) or (
            function.__globals__.get("__name__") == "torch._compile"):
        return WAYS["marked"](tracer, function, args, kwargs)
    module = home(function) or ""
    if module in rules.OPERATORS and not tracer.patched and (
            as_said(function) is function):
        try:
            return tracer.recorder.function(function, args, kwargs)
        except Unsupported as refusal:  # of a callable, or a check inside
            if refusal.kind not in ("argument", "data-dependent"):
                raise
    if module == "torch._tensor" and args and is_a(args[0], torch.Tensor):
        return rules.tensor_method(tracer, function.__name__, args, kwargs)
    if module == "torch":  # where it is shown, not where it is written
        module = function.__globals__["__name__"]
    if module not in FOLLOWED and f"{module}.".startswith(OPAQUE):
        raise unsupported("library",
                          f"{module}.{function.__qualname__}")
    return begin(tracer, function, args, kwargs)


def is_marked(function: types.FunctionType) -> bool:
    """Whether it has marks of its own; functools.wraps() copies marks."""
    own = contents(function)
    copied = contents(own.get("__wrapped__"))
    return any(name in own and own[name] is not copied.get(name)
               for name in MARKS)


def begin(tracer, function: types.FunctionType, args, kwargs) -> Frame:
    """The frame of a Python function that is called."""
    if len(tracer.frames) > DEEPEST:
        raise unsupported("recursion", f"{DEEPEST} levels")
    if function.__code__.co_flags & (
            inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise unsupported("code", f"{function.__qualname__}, async,")
    rely_on_code(tracer, function)
    return Frame(tracer, function, bind(tracer, function, args, kwargs))


def rely_on_code(tracer, function: types.FunctionType) -> None:
    """Guard that a user's function keeps its code."""
    if not (tracer.is_made(function) or trusted(home(function))):
        tracer.outside.guard(
            Attribute(tracer.outside.found_at(function), "__code__"), "is",
            function.__code__)


def bind(tracer, function: types.FunctionType, args, kwargs) -> dict:
    """The local variables a call starts with; TypeError as Python's."""
    code = function.__code__
    taker = types.FunctionType(taking(code), {}, function.__name__, tuple(
        Default("__defaults__", index)
        for index in range(-len(function.__defaults__ or ()), 0)))
    taker.__qualname__ = function.__qualname__
    taker.__kwdefaults__ = {name: Default("__kwdefaults__", name)
                            for name in function.__kwdefaults__ or ()}
    try:
        values = taker(*args, **kwargs)
    except TypeError as error:
        raise Raised(error) from None
    return {name: default(tracer, function, *value)
            if type(value) is Default else value
            for name, value in zip(code.co_varnames, values)}


#: In place of an argument that was not given.
Default = namedtuple("Default", "place key")


def default(tracer, function: types.FunctionType, place: str, key):
    """An argument's default, guarded unless it cannot have changed."""
    value = getattr(function, place)[key]
    if tracer.is_made(function) or (
            trusted(home(function)) and is_constant(value)):
        return value
    return tracer.outside.admit(value, Item(Attribute(
        tracer.outside.found_at(function), place), key))


@functools.cache
def taking(code: types.CodeType) -> types.CodeType:
    """Code that takes what `code` takes, and returns it as a tuple.

    The values come in the order of `co_varnames`: positional,
    keyword-only, then the tuple and the dict of those left over.
    """
    stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + stars.bit_count()
    names = "".join(f"a{index}, " for index in range(count))
    plain = eval(f"lambda {names}: ({names})").__code__
    return plain.replace(
        co_argcount=code.co_argcount, co_flags=plain.co_flags | stars,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=code.co_varnames[:count])

