"""The meaning of operators and of what is written in C: a table of rules.

In: a callable and its arguments. Out: its rule's result, if it has one. An
operator asks the methods that Python would ask, in the same order, and
follows those written in Python. Torch's operators are recorded. Of other C
functions, those run that cannot call Python or read what may change: on
constants, and on containers that they only step through. Rows of the
reference say which others may, and on what. PyTorch's are
torch/_dynamo/trace_rules.py and variables/builtin.py.
"""

import functools
import operator
import traceback
import types
from collections import OrderedDict

import torch

from ..core.guard import ABSENT, CONSTANTS, home, is_a, trusted
from ..core.sizes import SYMBOLIC
from .bytecode import BINARY, COMPARE
from .reasons import WAYS, unsupported
from .recorder import Recorder, settled
from .side_effects import Outside, is_bound

#: Modules whose functions become one node, Python or not.
OPERATORS = {"torch.nn.functional", "torch.functional", "torch._C._nn",
             "torch._C._linalg", "torch._C._fft", "torch._C._special",
             "torch._C._sparse", "torch._C._nested", "torch.masked._ops"}

RULES: dict[int | tuple[str, str], object] = {}
_held: list[object] = []


def rule(*functions):
    """Let the decorated function be what calling `functions` means.

    A function that should not be imported for it is given as the module
    and the qualified name of its code. The rule of a closure gets the
    closure as its first argument.
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


def follows(method) -> bool:
    """Whether a method is written in Python, or has a rule."""
    return type(method) is types.FunctionType or id(method) in RULES


def apply(tracer, rule, args: tuple, kwargs: dict):
    """A rule's result; arguments that it does not take are Python's."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_globals is not globals():  # it was raised in the rule
            raise
        raise unsupported("builtin", f"called so ({error})") from None


# Operators

COMPARISONS = {*COMPARE.values()}

#: In-place operators, and the operators they fall back on.
INPLACE = dict(zip(BINARY[13:], BINARY[:13], strict=True))

#: Classes whose operators are C's, whatever is on the other side.
PLAIN = CONSTANTS.union(SYMBOLIC, [torch.Size])


def binary(tracer, op, left, right):
    """`left op right`: recorded, answered by a method, or run natively."""
    kinds = {type(left), type(right)}
    tensors = {kind for kind in kinds if issubclass(kind, torch.Tensor)}
    if tensors and kinds - tensors <= PLAIN - {str}:
        op = op if type(left) in tensors else INPLACE.get(op, op)
        return tracer.recorder.function(op, (left, right), {})
    if any(issubclass(kind, int) for kind in kinds - {int}):
        left, right = settled(left), settled(right)  # True == a symbol
    if not kinds <= PLAIN or str in kinds and (
            op in (operator.mod, operator.imod)):
        answer = WAYS["operator"](tracer, op, left, right)
        if answer is not ABSENT:
            return answer
    deep = op in COMPARISONS and not kinds & CONSTANTS
    return tracer.natively(op, (left, right), depth=int(deep))


# Methods that a function or an operator asks its first argument

#: Operators that give a tensor if they are given one.
GIVING = {operator.getitem, operator.setitem, operator.delitem}


def ask(tracer, function, *values, **more):
    """The result of a method in Python or with a rule, or of the C code."""
    if not values:
        return tracer.native(function, (), more)
    if is_a(values[0], torch.Tensor) and function in GIVING:
        return WAYS["giving"](tracer.recorder, function, values, more)
    answer = tracer.asked(f"__{function.__name__}__", *values)
    return answer if answer is not ABSENT else tracer.natively(
        function, values, more, depth=0)


def whole(tracer, function, mapping: dict):
    """The result of a method of a dict that reads all of it."""
    return tracer.native(function, (tracer.outside.resolve(mapping),))


def means(meaning, *functions):
    """Let `meaning` be the rule of all these, and hear which is called."""
    for function in functions:
        rule(function)(lambda tracer, /, *values, _which=function, **more:
                       meaning(tracer, _which, *values, **more))


means(binary, *INPLACE, *INPLACE.values(), *COMPARISONS)
means(ask, *GIVING, len)
means(whole, dict.keys, dict.values, dict.items, dict.__iter__,
      dict.__len__)
rule(operator.truth, bool)(lambda tracer, *value: tracer.truth(*value))
rule(iter)(lambda tracer, value: ask(tracer, iter, value))
rule(torch._C._get_tracing_state)(lambda tracer: None)

# Functions written in C

#: Methods of which C code takes some answers only, and who asks for one.
ASKING = {f"__{asks.__name__}__": asks for asks in (
    bool, complex, float, hash, int, iter, len, repr, str, operator.index)}

#: Stands for an object whose method has given an answer.
Given = type("Given", (), dict.fromkeys(ASKING, lambda it: it.answer))

#: Classes of values that never change, and call nothing.
VALUES = CONSTANTS - {slice}

#: Containers and their iterators, and functions that only move elements.
CONTAINERS = VALUES | {
    Given, tuple, list, dict, OrderedDict, torch.Size, *map(type, (
        {}.keys(), {}.values(), {}.items(), *map(iter, (
            (), [], range(0), {}, {}.values(), {}.items()))))}
MOVING = {iter, next, len, bool, list, tuple, dict, operator.getitem,
          list.append, list.extend, dict.keys, dict.values, dict.items,
          dict.__iter__, dict.__len__}

#: What makes a method of C's of an object.
BINDING = {types.MethodDescriptorType.__get__,
           types.WrapperDescriptorType.__get__}


def is_harmless(function, args) -> bool:
    """Whether C code reads no more than it is given, and calls nothing."""
    kinds = {*map(type, args)}
    return kinds <= VALUES or function in BINDING or (
        function in MOVING and kinds <= CONTAINERS)


def careful(function, args, kwargs):
    """A C function's result, if it can call no code of the program's."""
    if kwargs or not is_harmless(function, args):
        return WAYS["run"](function, args, kwargs)
    return function(*args)


def natively(tracer, function, args, kwargs=None, depth: int = 1):
    """Run a C function that only computes; a row guards what it looks at.

    `depth`: 0 for each argument alone, 1 for what is in it, 2 if it may
    print that.
    """
    if kwargs or not is_harmless(function, args) or any(
            map(tracer.outside.is_outside, args)):
        args, kwargs = WAYS["prepare"](
            tracer, function, args, kwargs or {}, depth)
    return tracer.native(function, args, kwargs)


def call_native(tracer, function, args, kwargs):
    """The result of a C function, or of a method in C."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if module in OPERATORS or owner is None and module == "torch":
        return tracer.recorder.function(function, args, kwargs)
    function, args = unbound(function, owner, args)
    if rule := registered(function) or is_a(owner, type) and (
            registered(vars(owner).get(function.__name__))):
        return apply(tracer, rule, args, kwargs)
    if hasattr(function, "__objclass__") and args and is_a(
            args[0], torch.Tensor):
        return tensor_method(tracer, function.__name__, args, kwargs)
    if not WAYS["allowed"](function):
        raise unsupported("builtin", function.__qualname__)
    return natively(tracer, function, args, kwargs)


def unbound(function, owner, args: tuple) -> tuple:
    """A C method as its class has it, and its object before `args`."""
    if type(function) is types.MethodWrapperType or is_bound(function):
        for kind in type(owner).__mro__:
            found = kind.__dict__.get(function.__name__)
            if hasattr(found, "__objclass__") and (
                    found.__get__(owner, type(owner)) == function):
                return found, (owner, *args)
    return function, args


#: Tensor methods that no node can stand for, though a fake tensor may
#: answer, and the kind of reason.
REFUSED = {name: kind for kind, names in (
    ("data-dependent", """
        numpy data_ptr const_data_ptr __index__ __format__ __repr__ __str__
        __array__ is_shared is_pinned is_set_to is_inference _is_view
        _nnz values _values indices _indices is_coalesced crow_indices
        col_indices ccol_indices row_indices"""),  # a fake has no elements
    ("gradient", """
        backward register_hook retain_grad requires_grad_ detach_
        register_post_accumulate_grad_hook"""),
    ("builtin", """
        set_ resize_ resize_as_ share_memory_ as_subclass __deepcopy__
        __dir__ __setstate__ to_sparse storage_offset storage_type __hash__
        """))
    for name in names.split()}


def tensor_method(tracer, name: str, args, kwargs):
    """A method of a tensor as a node."""
    if name in REFUSED:
        raise unsupported(REFUSED[name], f"Tensor.{name}")
    found = getattr(torch.Tensor, name, None)
    if type(found) is types.FunctionType and not trusted(home(found)):
        raise unsupported("builtin", f"Tensor.{name}, replaced,")
    return tracer.recorder.method(name, args, kwargs)


WAYS |= {"allowed": MOVING.__contains__, "giving": Recorder.function,
         "step": lambda _, iterator: iterator, "grown": Outside.admit,
         "taken": lambda frame, step, values: None}
