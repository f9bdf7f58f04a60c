"""Why a check failed, in words.

In: a check, and the call that failed. Out: for each guard that does not
hold: its subject, the old value, the new value, and the user's line that
the guard comes from. Slow, and run only when a graph could not be reused.
PyTorch's counterpart is get_guard_fail_reason in torch/_dynamo/guards.py.
"""

import functools
import reprlib
from collections.abc import Callable, Iterator
from operator import contains
from types import FunctionType, ModuleType

import torch
from torch.fx.graph import dtype_abbrs

from ...core.guard import Guard, TensorFacts, chain, is_plain
from ...core.state import NEVER_ACTIVE, SWITCHES, global_state
from .. import Check, Held, Names, condition

#: How values are shown: of a huge one, only the beginning.
ABRIDGED = reprlib.Repr()
ABRIDGED.maxstring = ABRIDGED.maxother = ABRIDGED.maxlong = 80


def failure(guard: Guard, what: str, old: str, new: str) -> str:
    """That `what` was `old` and is `new`, and who relied on it."""
    where = guard.where
    relied = f"\n  relied on at {where}  {where.text}" if where else ""
    return f"{what} was {old}, is {new}{relied.rstrip()}"


def failures(check: Check, L: tuple, F: object) -> Iterator[str]:
    """The failures, in order; nothing about what a failed place holds."""
    told: set[object] = set()
    names = Names({**check.names.values})
    read = functools.cache(lambda source: eval(
        source.code(), names.values, {"L": L, "F": F}))
    for guard in check.guards:
        if type(guard.expected) is Held and guard.expected() is None:
            yield failure(guard, f"`{guard.source}`", "there", "deleted")
        if not check.alive:
            continue
        if any(not told.isdisjoint(chain(place)) for place in guard.places):
            continue  # reading a defaultdict's item would change it
        try:
            for each in (step for place in guard.places
                         for step in reversed([*chain(place)])):
                read(each)
        except Exception as error:
            yield failure(guard, f"`{each}`", "there", "gone ("
                          f"{type(error).__name__}: {error})")
            told.add(each)
            continue
        values = [*map(read, guard.places)]
        given = {f"x{at}": value for at, value in enumerate(values)}
        asked = f"bool({condition(names, guard)})".format(*given)
        if attempt(eval, asked, names.values, given) is not True:
            told.add(guard.source)
            for what, old, new in changed_facts(guard, *values):
                yield failure(guard, what, old, new if new != old
                              else f"another: {new}")


#: How a guard of each kind reads a value.
READ = {"type": type, "length": len, "keys": tuple}


def changed_facts(guard: Guard, x: object = None, *others: object
                  ) -> Iterator[tuple[str, str, str]]:
    """Each fact of a failing guard: its subject, the old, the new value."""
    name, old = f"`{guard.source}`", guard.expected
    match guard.kind:
        case "tensor":
            for what, was, now in tensor_facts(old, x):
                if repr(was) != repr(now):
                    yield f"{what} of {name}", str(was), str(now)
        case "state":
            for switch, was, now in zip(SWITCHES, old, global_state()):
                if was != now:
                    yield switch, shown(was), shown(now)
            yield from ((mode, "inactive", "active") for mode, active
                        in NEVER_ACTIVE.items() if active())
        case "type" | "length" | "keys" as kind:
            yield (f"{kind} of {name}", abridged(old),
                   abridged(attempt(READ[kind], x)))
        case "contains":
            yield f"key {old!r} in {name}", "there", "gone"
        case "lacks":
            yield from ((f"key {key!r} in {name}", "absent", "there")
                        for key in old if attempt(contains, x, key))
        case "relation":
            numbers = [f"{place} is {value}" for place, value in zip(
                guard.places, (x, *others)) if type(value) in (int, float)]
            yield (f"`{old.format(*guard.places)}`", "true", "false"
                   + ": " * bool(numbers) + ", ".join(numbers))
        case _:
            yield name, abridged(old), abridged(x)


def attempt(read: Callable, *values: object) -> object:
    """The value that reading gives, or the exception it raises."""
    try:
        return read(*values)
    except Exception as error:
        return error


def tensor_facts(facts: TensorFacts, x: object) -> Iterator[tuple]:
    """How each fact is said, its old value, and its value in x."""
    yield "type", facts.type.__qualname__, type(x).__qualname__
    if type(x) is not facts.type:
        return
    for name in ("dtype", "device", "requires_grad", "layout"):
        yield name, getattr(facts, name, torch.strided), getattr(x, name)
    if not is_plain(x):
        yield "dispatch keys", *map(torch._C._dispatch_keys, (
            torch.empty(0, device=x.device), x))
        return
    old, new = facts.shape, tuple(x.shape)
    if len(old) != len(new):
        yield "shape", old, new
    for dim, (was, now) in enumerate(zip(old, new)):
        if was is not None:
            yield f"size of dimension {dim}", was, now
    if old == new:
        yield "strides", facts.stride, attempt(torch.Tensor.stride, x)


def shown(setting: object) -> str:
    """A switch as `on` or `off`, autocast by device, others as they are."""
    if type(setting) is tuple and setting:
        return ", ".join(" to ".join(map(str, each)) if type(
            each) is tuple else str(each) for each in setting)
    return {True: "on", False: "off", (): "off"}.get(setting, str(setting))


def describe(tensor: object) -> str:
    """`f32[2, 3]` for a tensor, a tuple of these for a tuple, else repr."""
    if isinstance(tensor, (tuple, list)):
        return "(" + ", ".join(map(describe, tensor)) + ")"
    if not isinstance(tensor, torch.Tensor):
        return repr(tensor)
    name = dtype_abbrs.get(tensor.dtype, str(tensor.dtype))
    return f"{name}{list(tensor.shape)}"


def abridged(value: object) -> str:
    """The value in at most 60 characters, whatever its __repr__ does."""
    value = value() if type(value) is Held else value
    kind = type(value).__name__
    try:
        if issubclass(type(value), torch.Tensor):
            text = f"a {kind} {describe(value)}"
        elif issubclass(type(value), (type, FunctionType, ModuleType)):
            name = getattr(value, "__qualname__", value.__name__)
            text = f"{kind} {name}".removeprefix("type ")
        else:
            text = ABRIDGED.repr(value)
    except Exception:
        text = f"a {kind}"
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
