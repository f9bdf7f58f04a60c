"""The meaning of operators and of what is written in C: a table of rules.

In: a callable and its arguments. Out: its rule's result, if it has one. An
operator asks the methods that Python would ask, in the same order, and
follows those written in Python. Torch's operators are recorded. Other C
functions run only if a list names them: they compute and have no effects.
They see constants, tensors and plain containers; the ways to look at other
objects, and to run what may call Python, are rows of the reference.
PyTorch's are torch/_dynamo/trace_rules.py and variables/builtin.py.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import os
import types
from collections import defaultdict, deque

import torch

from ..core.guard import ABSENT, CONSTANTS
from ..core.sizes import SCALARS, SYMBOLIC
from .reasons import WAYS, Raised, unsupported
from .recorder import settled

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes that may run natively.
HARMLESS: set = {getattr(builtins, name) for name in """all any bin
    bytearray bytes chr classmethod divmod enumerate filter hex list map
    max min oct ord pow property range slice sorted staticmethod sum tuple
    zip""".split()} | {
    os.fspath, int.from_bytes, deque, defaultdict, types.MappingProxyType,
    torch.Size, torch.device, torch.finfo,
    torch.iinfo, torch.is_grad_enabled, torch.get_default_dtype,
    torch._C._get_privateuse1_backend_name,
    torch._C._has_torch_function, torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic}

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested", "torch.masked._ops"}

#: Modules whose classes have methods that change no more than their object.
HOMES = SAFE_OWNERS - {"operator"} | {
    "builtins", "collections", "re", "types", "torch", "numpy"}

#: Methods that make an object or tell more than which one it is, and
#: functions that ask for its truth or its hash.
TELLING = {"__new__", "__reduce_ex__", "__reduce__", "__getstate__",
           "__dir__", "__sizeof__", "__subclasses__", "__getattribute__",
           "filterfalse", "takewhile", "dropwhile", "fromkeys"}

#: Methods that read a dict; a real one that holds the same may run them.
READING = {"keys", "values", "items", "copy", "__iter__", "__len__",
           "__reversed__"}

RULES: dict[int | tuple[str, str], object] = {}
_held: list[object] = []


def rule(*functions):
    """Let the decorated function be what calling `functions` means.

    One that is not to be imported for it is given by the module and the
    qualified name of its code; the rule of a closure gets it first.
    """
    def register(meaning):
        for function in functions:
            RULES[function if type(function) is tuple
                  else id(function)] = meaning
            _held.append(function)
        return meaning
    return register


def registered(function):
    """The rule of a callable, or None."""
    found = RULES.get(id(function))
    if found is None and type(function) is types.FunctionType:
        name = function.__code__.co_qualname
        found = RULES.get((function.__globals__.get("__name__"), name))
        if found is not None and "<locals>" in name:
            return functools.partial(found, function)
    return found


def apply(tracer, rule, args: tuple, kwargs: dict):
    """A rule's result; wrong arguments are the program's TypeError."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError:
        try:
            inspect.signature(rule).bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise Raised(error) from None
        raise


# Operators

ARITHMETIC = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod",
              "or_", "pow", "rshift", "sub", "truediv", "xor")

COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge,
               operator.eq, operator.ne}

#: In-place operators, and the operators they fall back on.
INPLACE = {getattr(operator, f"i{name.strip('_')}"): getattr(operator, name)
           for name in ARITHMETIC}

#: Classes whose operators are C's, whatever is on the other side.
PLAIN = CONSTANTS.union(SYMBOLIC, (tuple, torch.Size))


def binary(tracer, op, left, right):
    """`left op right`: recorded, answered by a method, or run natively."""
    kinds = {type(left), type(right)}
    if any(issubclass(kind, int) for kind in kinds - {int}):
        left, right = settled(left), settled(right)  # True == a symbol
    if not kinds <= PLAIN or str in kinds and (
            op in (operator.mod, operator.imod)):
        answer = WAYS["operator"](tracer, op, left, right)
        if answer is not ABSENT:
            return answer
    deep = op in COMPARISONS and not kinds & CONSTANTS
    return tracer.natively(op, (left, right), depth=int(deep))


def recorded(tracer, op, left, right):
    """`left op right` of tensors and constants."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, torch.Tensor) and (
                type(other) in PLAIN or isinstance(other, torch.Tensor)):
            return tracer.recorder.function(
                op if one is left else INPLACE.get(op, op), (left, right),
                {})
    raise unsupported("builtin", "of an operator on objects")


# Methods that a function or an operator asks its first argument

#: Operators that give a tensor if they are given one.
UNARY = (operator.neg, operator.pos, operator.invert, operator.abs, abs,
         round)
ITEMS = (operator.getitem, operator.setitem, operator.delitem)

#: Functions that ask a method of their first argument, and how deep they
#: look if it is written in C.
ASKING = {
    **dict.fromkeys((*UNARY, *ITEMS, reversed, len, int, float,
                     operator.index), 0),
    **dict.fromkeys((complex, str, repr, ascii, format), 2)}


def ask(tracer, function, *values, **more):
    """The result of a method in Python or with a rule, or of the C code."""
    name = "repr" if function is ascii else function.__name__
    if not values:
        return tracer.native(function, (), more)
    if isinstance(values[0], torch.Tensor) and function in (*UNARY, *ITEMS):
        return tracer.recorder.function(function, values, more)
    answer = tracer.asked(f"__{name}__", *values)
    return answer if answer is not ABSENT else tracer.natively(
        function, values, more, ASKING.get(function, 0))


def means(meaning, *functions):
    """Let `meaning` be the rule of these, and learn which one is called."""
    for function in functions:
        rule(function)(lambda tracer, *values, _function=function, **more:
                       meaning(tracer, _function, *values, **more))


means(binary, *INPLACE, *INPLACE.values(), *COMPARISONS)
means(ask, *ASKING)
rule(operator.truth, bool)(lambda tracer, *value: tracer.truth(*value))
rule(object.__init__)(lambda tracer, owner, *args, **kwargs: None)
rule(torch._C._get_tracing_state)(lambda tracer: None)


@rule(iter)
def _iter(tracer, value, *sentinel):
    if sentinel:
        raise unsupported("builtin", "iter with a sentinel")
    return tracer.iterate(value)


# Functions written in C


def call_native(tracer, function, args, kwargs):
    """The result of a C function, or of a C method bound to its object."""
    owner, name = function.__self__, function.__name__
    module = getattr(function, "__module__", None)
    if module in OPERATORS or (owner is None and module == "torch"):
        return tracer.recorder.function(function, args, kwargs)
    if type(function) is types.MethodWrapperType or not isinstance(
            owner, (types.NoneType, types.ModuleType, type)):
        for kind in type(owner).__mro__:
            unbound = kind.__dict__.get(name)
            if hasattr(unbound, "__objclass__") and (
                    unbound.__get__(owner, type(owner)) == function):
                return call_unbound(tracer, unbound, (owner, *args), kwargs)
    elif isinstance(owner, type) and (
            rule := registered(vars(owner).get(name))) is not None:
        return apply(tracer, rule, args, kwargs)
    elif is_allowed(function):
        return natively(tracer, function, args, kwargs)
    raise unsupported("builtin", f"{module}.{function.__qualname__}")


def call_unbound(tracer, unbound, args, kwargs):
    """The result of a method written in C; `args[0]` is its object."""
    owner, outside = args[0] if args else None, tracer.outside
    if (rule := registered(unbound)) is not None:
        return apply(tracer, rule, args, kwargs)
    if isinstance(owner, torch.Tensor):
        return tensor_method(tracer, unbound.__name__, args, kwargs)
    if is_allowed(unbound) and (
            not outside.is_dict(owner) or unbound.__name__ in READING
            and isinstance(outside.resolve(owner), unbound.__objclass__)):
        return natively(tracer, unbound, args, kwargs)
    raise unsupported("builtin", unbound.__qualname__)


def is_allowed(function) -> bool:
    """Whether C code is known to compute, and to do no more."""
    if function.__name__ in TELLING:
        return False
    if hasattr(function, "__objclass__"):
        return function.__objclass__.__module__ in HOMES
    owner = function if isinstance(function, type) else function.__self__
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    return home in SAFE_OWNERS or not HARMLESS.isdisjoint((function, owner))


#: Tensor methods that no node can stand for, by the kind of reason.
REFUSED = {
    "data-dependent": {
        "item", "tolist", "numpy", "data_ptr", "__bool__", "__int__",
        "__float__", "__index__", "__complex__", "is_nonzero", "cpu_",
        "__contains__", "__format__", "__repr__", "__str__", "__array__",
        "is_shared", "is_pinned", "is_set_to", "is_inference", "_is_view"},
    "gradient": {
        "backward", "register_hook", "retain_grad", "requires_grad_",
        "register_post_accumulate_grad_hook", "detach_"},
    "builtin": {
        "set_", "resize_", "resize_as_", "share_memory_", "storage",
        "untyped_storage", "__deepcopy__", "__reduce_ex__", "apply_",
        "map_", "map2_", "as_subclass", "__setstate__", "to_dense",
        "to_sparse", "storage_offset", "__hash__", "__dir__",
        "__setattr__", "swap"}}


def tensor_method(tracer, name: str, args, kwargs):
    """A method of a tensor as a node."""
    if name == "requires_grad_" and args[0].requires_grad is (
            [*args[1:], *kwargs.values(), True][0]):
        return args[0]
    for kind, names in REFUSED.items():
        if name in names:
            raise unsupported(kind, f"Tensor.{name}")
    return tracer.recorder.method(name, args, kwargs)


# The values that C functions see


def look(tracer, value, depth: int = 1):
    """`value` as C code may see it: nothing in it can change unseen.

    At depth 0 that is the object alone; at 1 it may compare and hash what
    is in it, however deep; at 2 it may print it, too.
    """
    value = settled(value) if depth > 1 else value
    if type(value) in CONSTANTS or isinstance(
            value, (torch.Tensor, *SYMBOLIC)):
        return value
    return WAYS["look"](tracer, value, depth)


def alone(tracer, value, depth: int):
    """A container of constants, or one whose elements C code never sees."""
    if tracer.outside.is_dict(value):
        value = tracer.outside.resolve(value)
    is_plain = isinstance(value, tuple) and CONSTANTS.issuperset(
        map(type, tuple.__iter__(value)))
    if depth and not is_plain or tracer.outside.is_outside(value):
        raise unsupported("builtin", f"reading a {type(value).__name__}")
    return value


def natively(tracer, function, args, kwargs=None, depth: int = 1):
    """Run a C function that only computes, on guarded arguments.

    It looks at its arguments to a depth, at those of a method's object
    alone if there are no others.
    """
    if hasattr(function, "__objclass__") and len(args) == 1:
        depth = 0
    elif not SCALARS.keys().isdisjoint(map(type, args)):
        depth = 2  # NumPy's numbers meet no symbols
    return tracer.native(function, *WAYS["prepare"](
        tracer, function, args, kwargs or {}, depth))


def prepared(tracer, function, args, kwargs: dict, depth: int) -> tuple:
    """The arguments of a C function that looks at all of them."""
    return [look(tracer, value, depth) for value in args], {
        key: look(tracer, value, depth) for key, value in kwargs.items()}


#: Callables that are no C functions, or that are meant to run Python.
PYTHON = (types.FunctionType, types.MethodType,
          functools._lru_cache_wrapper)

#: Classes whose methods in C make no callbacks.
LEAVES = CONSTANTS - {slice} | {type(iter(each)) for each in (
    (), [], range(0), {}, {}.values(), {}.items())}

#: Functions that make no callbacks, if given such containers.
CONTAINERS = LEAVES | {tuple, list, dict, torch.Size, *map(type, (
    {}.keys(), {}.values(), {}.items()))}
MOVING = {iter, len, list, tuple, dict, operator.getitem, list.append,
          dict.keys, dict.values, dict.items}

#: What makes a method of C's of an object.
BINDING = {types.MethodDescriptorType.__get__,
           types.WrapperDescriptorType.__get__}


def careful(function, args, kwargs):
    """A C function's result, if it can call no code of the program's."""
    kinds = {*map(type, args)}
    if (kinds <= LEAVES or function in MOVING and kinds <= CONTAINERS
            or isinstance(function, PYTHON) or function in BINDING
            or not kinds.isdisjoint(SYMBOLIC)):
        return function(*args, **kwargs)
    return WAYS["run"](function, args, kwargs)


WAYS |= {"look": alone, "prepare": prepared, "operator": recorded,
         "step": lambda tracer, iterator: iterator}
